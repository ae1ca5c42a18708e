"""What podman and Docker tell of their containers at their API sockets: ``Engine``.

Only GET, and only the list of running containers and each one's inspection are asked. Of what comes, the
members of _WANTED are kept while it is parsed, nothing else: a container's variables become no value. Who
answers is believed only as to who has a device. An answer may be late, endless or garbage: each asking has a
deadline, each answer a size, and a container is inspected once.
"""

from __future__ import annotations

import json
import socket
import time

from cdigen.holders.model import Container, Told
from cdigen.host.root import reason, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# A busy Docker lists in 20 ms and inspects in 3.
DEADLINE_S = 2.0
MAX_CONTAINERS = 256
# Of a list: 2 kB a container with many labels. Of one container: variables and labels of some 100 kB.
_MAX_LIST, _MAX_ONE = 2 << 20, 1 << 20
_MAX_NAME, _MAX_DEVICES = 200, 64
_PIECE = 1 << 16
_LIST = "/containers/json"
# Docker's and podman's Server headers.
_ENGINES = (("Libpod", "podman"), ("Docker", "Docker"))
_WANTED = frozenset(
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
# The driver that stands for `--gpus`, and the kind that its ids mean.
_GPUS, _GPU_KIND = "nvidia", "nvidia.com/gpu"


class EngineError(Exception):
    """Says why an engine does not tell."""


class _GoneError(EngineError):
    """The container has ended since the list was made."""


class Engine:
    """The engine that listens at the socket PATH. One thread asks at a time."""

    def __init__(self, path: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s
        # By the id: what a container has does not change. Of those that are there now.
        self._known: dict[str, Container] = {}

    def ask(self) -> Told:
        """Return what it tells, within the deadline; never raises."""
        until_s = time.monotonic() + self._deadline_s
        try:
            header, rows = self._get(_LIST, until_s, _MAX_LIST)
            if not isinstance(rows, list):
                raise EngineError("its list of containers is none")
        except EngineError as error:
            return Told(engine=shown(self._path), problem=str(error), is_silent=True)
        engine = next((name for mark, name in _ENGINES if header.startswith(mark)), shown(self._path))
        problem = f"only {MAX_CONTAINERS} containers were looked at" if len(rows) > MAX_CONTAINERS else ""
        known = {}
        for row in rows[:MAX_CONTAINERS]:
            try:
                container = _id(row)
                known[container] = self._known.get(container) or self._inspected(container, row, until_s)
            except _GoneError:
                continue
            except EngineError as error:
                problem = f"not all containers could be looked at: {error}"
        self._known = known
        holders = tuple(one for one in known.values() if one.devices or one.nodes)
        return Told(engine=engine, containers=holders, problem=problem)

    def _inspected(self, container: str, row: Any, until_s: float) -> Container:
        _, found = self._get(f"/containers/{container}/json", until_s, _MAX_ONE)
        devices, nodes = _devices(found)
        names = row.get("Names")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else container[:12]
        made = row.get("Created")
        return Container(
            id=container,
            name=name.removeprefix("/")[:_MAX_NAME],
            devices=devices,
            nodes=nodes,
            since_s=float(made) if isinstance(made, int) and 0 < made < 1 << 40 else None,
        )

    def _get(self, target: str, until_s: float, limit: int) -> tuple[str, Any]:
        """Return the Server header and the document of the answer to TARGET; EngineError."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(_left_s(until_s))
                client.connect(self._path)
                # Of 1.0: the answer has no chunks, and ends with the connection.
                client.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                answer = _received(client, until_s, limit)
        except TimeoutError:
            raise EngineError("no answer in time") from None
        except OSError as error:
            raise EngineError(f"cannot ask it: {reason(error)}") from None
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        if status.split(" ")[1:2] == ["404"]:
            raise _GoneError(f"it has no {target}")
        if status.split(" ")[1:2] != ["200"]:
            raise EngineError(f"it answers {shown(status[:60])!r}")
        header = next((line.partition(":")[2].strip() for line in lines if line[:7].lower() == "server:"), "")
        try:
            return header, json.loads(body, object_pairs_hook=_kept)
        except (ValueError, RecursionError):
            raise EngineError("its answer is not JSON") from None


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name in _WANTED}


def _received(client: socket.socket, until_s: float, limit: int) -> bytes:
    data = bytearray()
    while True:
        client.settimeout(_left_s(until_s))
        piece = client.recv(_PIECE)
        if not piece:
            return bytes(data)
        data += piece
        if len(data) > limit:
            raise EngineError(f"its answer has more than {limit >> 20} MiB")


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _id(row: Any) -> str:
    """Return the id in ROW of the list; it becomes part of a path."""
    found = row.get("Id") if isinstance(row, dict) else None
    if isinstance(found, str) and found.isalnum() and found.isascii() and len(found) <= _MAX_NAME:
        return found
    raise EngineError("a container of its list has no id")


def _devices(found: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the CDI names and the nodes that FOUND, the inspection of a container, has."""
    host = found.get("HostConfig") if isinstance(found, dict) else None
    if not isinstance(host, dict):
        return (), ()
    names: list[str] = []
    for request in _rows(host.get("DeviceRequests")):
        ids = _texts(request.get("DeviceIDs"))
        if request.get("Driver") == "cdi":
            names += ids
        elif request.get("Driver") in (_GPUS, ""):
            names += [f"{_GPU_KIND}={one}" for one in ids or _counted(request.get("Count"))]
    told = _texts([row.get("PathOnHost") for row in _rows(host.get("Devices"))])
    names += [path for path in told if not path.startswith("/")]
    nodes = [path for path in told if path.startswith("/")]
    return (
        tuple(name[:_MAX_NAME] for name in names[:_MAX_DEVICES]),
        tuple(node[:_MAX_NAME] for node in nodes[:_MAX_DEVICES]),
    )


def _counted(count: Any) -> list[str]:
    """Return the GPUs that Docker gives for COUNT: the first, or all (Moby, daemon/nvidia_linux.go)."""
    if not isinstance(count, int):
        return []
    return ["all"] if count == -1 else [str(index) for index in range(min(count, _MAX_DEVICES))]


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
