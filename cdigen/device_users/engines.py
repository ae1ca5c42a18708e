"""``Engine``: reads the containers of podman and Docker from their API sockets, to find users of devices.

An engine gets only GET requests: for the list of running containers, and for the inspection of each
container. The parser of a response keeps only the members in _MEMBERS, so the environment variables of a
container are never stored. A response may be late, endless or invalid. Therefore each query has a deadline,
each response has a maximum size, and each container is inspected only once.
"""

from __future__ import annotations

import json
import socket
import time

from cdigen.host.root import reason, shown
from cdigen.model.view import DEFAULT_KIND
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds. A busy Docker returns a list in 20 ms and an inspection in 3 ms.
DEADLINE_S = 2.0
MAX_CONTAINERS = 256
# A list has 2 kB for a container with many labels. The variables and labels in an inspection have about 100
# kB.
_MAX_LIST, _MAX_ONE = 2 << 20, 1 << 20
_MAX_NAME, _MAX_DEVICES = 200, 64
_PIECE = 1 << 16
_LIST = "/containers/json"
# The beginnings of the Server headers of podman and Docker.
_ENGINES = (("Libpod", "podman"), ("Docker", "Docker"))
_MEMBERS = frozenset(
    (
        "Id",
        "Names",
        "Created",
        "HostConfig",
        "DeviceRequests",
        "Driver",
        "Count",
        "DeviceIDs",
        "Devices",
        "PathOnHost",
    )
)
# Docker's name of the driver for `--gpus`, whose ids are names in the kind DEFAULT_KIND.
_GPUS = "nvidia"


@frozen
class UserContainer:
    """A running container: its ``id`` and ``name`` in the engine, and its ``devices`` as CDI names.

    ``nodes`` are device nodes of the host. ``since_s`` is the creation time of the container, None if
    unknown.
    """

    id: str
    name: str
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float | None = None


@frozen
class EngineReport:
    """The running ``containers`` of an engine (``podman``) that have devices.

    ``problem`` is the reason why containers are missing, or empty. ``has_failed`` is true if all
    containers are missing.
    """

    engine: str
    containers: tuple[UserContainer, ...] = ()
    problem: str = ""
    has_failed: bool = False


class EngineError(Exception):
    """The reason why a query of an engine failed."""


class _GoneError(EngineError):
    """The container has ended after the list was read."""


class Engine:
    """The engine that listens on the socket PATH. Only one thread at a time may query it."""

    def __init__(self, path: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s
        # The present containers by id. The devices of a container do not change.
        self._known: dict[str, UserContainer] = {}

    def query(self) -> EngineReport:
        """Return the containers with devices, at the latest at the deadline; never raise."""
        until_s = time.monotonic() + self._deadline_s
        try:
            header, rows = self._get(_LIST, until_s, _MAX_LIST)
            if not isinstance(rows, list):
                raise EngineError("the response is not a list of containers")
        except EngineError as error:
            return EngineReport(engine=shown(self._path), problem=str(error), has_failed=True)
        engine = next((name for mark, name in _ENGINES if header.startswith(mark)), shown(self._path))
        problem = f"only {MAX_CONTAINERS} containers were read" if len(rows) > MAX_CONTAINERS else ""
        known = {}
        for row in rows[:MAX_CONTAINERS]:
            try:
                container = _id(row)
                known[container] = self._known.get(container) or self._inspected(container, row, until_s)
            except _GoneError:
                continue
            except EngineError as error:
                problem = f"not all containers could be read: {error}"
        self._known = known
        users = tuple(one for one in known.values() if one.devices or one.nodes)
        return EngineReport(engine=engine, containers=users, problem=problem)

    def _inspected(self, container: str, row: Any, until_s: float) -> UserContainer:
        _, found = self._get(f"/containers/{container}/json", until_s, _MAX_ONE)
        devices, nodes = _devices(found)
        names = row.get("Names")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else container[:12]
        made = row.get("Created")
        return UserContainer(
            id=container,
            name=name.removeprefix("/")[:_MAX_NAME],
            devices=devices,
            nodes=nodes,
            since_s=float(made) if isinstance(made, int) and 0 < made < 1 << 40 else None,
        )

    def _get(self, target: str, until_s: float, limit: int) -> tuple[str, Any]:
        """Return the Server header and the parsed JSON of the response to TARGET; raise EngineError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_left_s(until_s))
                client.connect(self._path)
                # With HTTP/1.0, the response has no chunks and ends with the connection.
                client.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                answer = _received(client, until_s, limit)
        except TimeoutError:
            raise EngineError("no response in time") from None
        except OSError as error:
            raise EngineError(f"cannot connect: {reason(error)}") from None
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        if status.split(" ")[1:2] == ["404"]:
            raise _GoneError(f"no such path: {target}")
        if status.split(" ")[1:2] != ["200"]:
            raise EngineError(f"unexpected HTTP status: {shown(status[:60])!r}")
        header = next((line.partition(":")[2].strip() for line in lines if line[:7].lower() == "server:"), "")
        try:
            return header, json.loads(body, object_pairs_hook=_kept)
        except (ValueError, RecursionError):
            raise EngineError("the response is not JSON") from None


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name in _MEMBERS}


def _received(client: socket.socket, until_s: float, limit: int) -> bytes:
    data = bytearray()
    while True:
        client.settimeout(_left_s(until_s))
        piece = client.recv(_PIECE)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > limit:
            raise EngineError(f"the response has more than {limit >> 20} MiB")


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _id(row: Any) -> str:
    """Return the container id in ROW; raise EngineError for an invalid id, because a path will contain it."""
    found = row.get("Id") if isinstance(row, dict) else None
    if isinstance(found, str) and found.isalnum() and found.isascii() and len(found) <= _MAX_NAME:
        return found
    raise EngineError("a container of the list has no id")


def _devices(found: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the CDI names and the device nodes in FOUND, the inspection of a container."""
    host = found.get("HostConfig") if isinstance(found, dict) else None
    if not isinstance(host, dict):
        return (), ()
    names: list[str] = []
    for request in _rows(host.get("DeviceRequests")):
        ids = _texts(request.get("DeviceIDs"))
        if request.get("Driver") == "cdi":
            names += ids
        elif request.get("Driver") in (_GPUS, ""):
            names += [f"{DEFAULT_KIND}={one}" for one in ids or _first_gpus(request.get("Count"))]
    paths = _texts([row.get("PathOnHost") for row in _rows(host.get("Devices"))])
    names += [path for path in paths if not path.startswith("/")]
    nodes = [path for path in paths if path.startswith("/")]
    return (
        tuple(name[:_MAX_NAME] for name in names[:_MAX_DEVICES]),
        tuple(node[:_MAX_NAME] for node in nodes[:_MAX_DEVICES]),
    )


def _first_gpus(count: Any) -> list[str]:
    """Return the GPUs that Docker injects for COUNT: the first COUNT GPUs, or all for -1."""
    if not isinstance(count, int):
        return []
    # Moby, daemon/nvidia_linux.go
    return ["all"] if count == -1 else [str(index) for index in range(min(count, _MAX_DEVICES))]


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
