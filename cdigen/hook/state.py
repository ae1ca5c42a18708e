"""``root_path``: reads the path of the container's root from the OCI state on standard input.

The state contains the path of the bundle. config.json in the bundle contains the path of the root. Source:
OCI runtime-spec 1.3, runtime.md ("State") and config.md ("Root"). The runtime writes the state and
config.json. The hook limits the size of both, because both contain annotations, and config.json also contains
environment variables. Images and users can set these values.

In a user namespace, the hook can lack the permission to read the bundle, because rootful podman stores the
bundle in a folder with the mode 0700. In this case, crun's state contains the path of the root, and runc
starts the hook in the root.
"""

from __future__ import annotations

import posix
from _stat import S_ISREG
from posix import O_CLOEXEC, O_NONBLOCK, O_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Limits of cdigen in bytes. With common engines, config.json has 12 KB. Kubernetes permits 256 KiB of
# annotations, which are in the state and in config.json.
MAX_STATE = 4 << 20
MAX_CONFIG = 16 << 20
MAX_PATH = 4096
_PIECE = 65536


class StateError(ValueError):
    """The error for a state without a usable root path. The text of the error is the reason in one line."""


def root_path(stdin: int) -> str | None:
    """Return the host path of the container's root; STDIN is the descriptor with the OCI state.

    The result is None if the hook has no permission to read the bundle and the state contains no root. With
    runc, the root is then the current folder (libcontainer/rootfs_linux.go, prepareRootfs). Raise StateError
    if the state or the bundle's config.json does not conform to the OCI specification.
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
    left = limit
    try:
        while piece := posix.read(fd, _PIECE):
            left -= len(piece)
            if left < 0:
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
    """Return the JSON value in TEXT.

    The function imports only the scanner of ``json``. The import of ``json`` takes 6 ms, because ``json``
    imports ``re``. The scanner is a private part of ``json``. If the scanner fails for any reason, ``json``
    parses TEXT. Raise ValueError or RecursionError as ``json`` does.
    """
    try:
        from _json import make_scanner  # noqa: PLC0415 - the module is private, and can be missing

        context: Any = _Context()
        value, end = make_scanner(context)(text, 0)
        if end == len(text):
            return value
    except Exception:  # noqa: BLE001, S110 - after any error, json parses the text below
        pass
    import json  # noqa: PLC0415 - the import is necessary only if the scanner fails

    return json.loads(text)


class _Context:
    """The attributes of ``json.decoder.JSONDecoder`` that the scanner reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012 - only the scanner in pure Python reads memo
