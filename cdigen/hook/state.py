"""Read where the container's root is from the OCI state on standard input: ``root_path``.

The state names the bundle, whose config.json names the root. Source: OCI runtime-spec 1.3, runtime.md
("State") and config.md ("Root"). Both are the runtime's, not the image's; they are bounded nevertheless,
as annotations and environment in them are anybody's.

In a user namespace the hook may not be allowed to read the bundle: rootful podman keeps it in a folder of
mode 0700. Then crun's state names the root, and runc starts the hook in it.
"""

from __future__ import annotations

import posix
from _stat import S_ISREG
from posix import O_CLOEXEC, O_NONBLOCK, O_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Bounds of ours. A config.json has 12 KB with ordinary engines; Kubernetes lets annotations, which are
# in both, have 256 KiB.
MAX_STATE = 4 << 20
MAX_CONFIG = 16 << 20
MAX_PATH = 4096
_PIECE = 65536


class StateError(ValueError):
    """Say in one line why the container's root is not known."""


def root_path(stdin: int) -> str | None:
    """Return the path, on the host, of the root of the container whose state STDIN gives.

    None where it may not be read: the root is then the current folder, if the runtime is runc
    (libcontainer/rootfs_linux.go, prepareRootfs). StateError: the state or the bundle's config.json is
    not as the OCI specification says.
    """
    state = _object(_read(stdin, MAX_STATE, "the state on standard input"), "the state on standard input")
    bundle = _path(state.get("bundle"), "the state's bundle")
    if not bundle.startswith("/"):
        raise StateError(f"the state's bundle {bundle[:100]!a} is not an absolute path")
    where = f"{bundle}/config.json"
    try:
        config = _read_file(where)
    except PermissionError:
        return _path(state["root"], "the state's root") if "root" in state else None
    root = _object(config, where).get("root")
    if not isinstance(root, dict):
        raise StateError(f"{where[:200]!a} has no root")
    path = _path(root.get("path"), "root.path of config.json")
    return path if path.startswith("/") else f"{bundle}/{path}"


def _path(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_PATH or "\0" in value:
        raise StateError(f"{what} is not a path")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise StateError(f"{what} is not Unicode")
    return value


def _read_file(where: str) -> bytes:
    try:
        fd = posix.open(where, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        try:
            if not S_ISREG(posix.fstat(fd).st_mode):
                raise StateError(f"{where[:200]!a} is not a regular file")
            return _read(fd, MAX_CONFIG, where)
        finally:
            posix.close(fd)
    except PermissionError:
        raise
    except OSError as error:
        raise StateError(f"{where[:200]!a}: {error.strerror}") from error


def _read(fd: int, limit: int, what: str) -> bytes:
    pieces: list[bytes] = []
    room = limit
    try:
        while piece := posix.read(fd, _PIECE):
            room -= len(piece)
            if room < 0:
                raise StateError(f"{what[:200]} has more than {limit} bytes")
            pieces.append(piece)
    except OSError as error:
        raise StateError(f"{what[:200]}: {error.strerror}") from error
    return b"".join(pieces)


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = _decoded(data.decode().strip())
    except (ValueError, RecursionError) as error:
        raise StateError(f"{what[:200]} is not JSON ({type(error).__name__})") from error
    if not isinstance(value, dict):
        raise StateError(f"{what[:200]} is not a JSON object")
    return value


def _decoded(text: str) -> object:
    """Return the JSON value TEXT; the scanner alone, as ``json`` would bring ``re``: 6 ms.

    The scanner is private to ``json``: where it is another one day, and for what is not JSON (it knows
    no errors of its own), ``json`` has the word. ValueError, RecursionError: as ``json`` raises them.
    """
    try:
        from _json import make_scanner  # noqa: PLC0415 - it may not be there

        value, end = make_scanner(_context())(text, 0)
        if end == len(text):
            return value
    except Exception:  # noqa: BLE001, S110 - whatever it was: it is asked again below
        pass
    import json  # noqa: PLC0415 - the slow way is not paid for by others

    return json.loads(text)


class _Context:
    """What ``json.decoder.JSONDecoder`` is to the scanner."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - read by the scanner written in Python only


def _context() -> Any:
    return _Context()
