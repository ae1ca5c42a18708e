"""Whether a live host is mounted whole below a folder: ``findings``, for cdigen in a container.

Such a folder has the kernel's own file systems below it, which the tree of a recorded host has not, or is a
mount where their folders are empty. In a container the host's ``/`` is mounted there read-only, and writable
what cdigen writes to (docs/operations.md).
"""

from __future__ import annotations

import os

from cdigen.host.mountinfo import rows
from cdigen.host.root import shown
from cdigen.model.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISSING, READ_ONLY, REMOVED = "host-mount-missing", "host-mount-read-only", "host-mount-removed"
# Folder of the host, the type of its file system, and what is not known without it.
_KERNELS = (
    ("/proc", "proc", "which driver runs"),
    ("/sys", "sysfs", "which devices there are"),
    ("/dev", "devtmpfs", "which nodes the devices have"),
)
_MOUNTINFO = "/proc/self/mountinfo"


def findings(outer: str, writable: Sequence[str], mountinfo: str = _MOUNTINFO) -> tuple[Finding, ...]:
    """Return what is missing of the live host that is mounted at OUTER, nothing for a folder that is none.

    WRITABLE are folders of this machine that cdigen writes to, of which those below OUTER matter. MOUNTINFO
    is this process's mount table (proc_pid_mountinfo(5)).
    """
    outer = outer.rstrip("/")
    if not outer:
        return ()
    try:
        table = tuple(_Mounts(mountinfo))
    except OSError:
        return ()
    types = {device: kind for device, _, _, kind in table}
    present = {path for path, kind, _ in _KERNELS if types.get(_device(f"{outer}{path}")) == kind}
    if not present and not _is_alone(outer, table):
        return ()
    below = [path for path in dict.fromkeys(writable) if path.startswith(f"{outer}/")]
    return (
        *(_missing(outer, path, kind, why) for path, kind, why in _KERNELS if _lacks(outer, path, present)),
        *_unwritable(outer, below),
        *_removed(outer, below, table),
    )


def _is_alone(outer: str, table: Sequence[tuple[str, bytes, str, str]]) -> bool:
    """Return whether OUTER is a mount of a host without all that is mounted below it."""
    try:
        is_empty = not os.listdir(f"{outer}/proc") and not os.listdir(f"{outer}/sys")
    except OSError:
        return False
    return is_empty and any(point == outer for _, _, point, _ in table)


class _Mounts:
    """The rows of a mount table: device, root in the file system, mount point, type of file system."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Iterator[tuple[str, bytes, str, str]]:
        for row in rows(self._path):
            own, _, file_system = row.partition(b" - ")
            fields = own.split(b" ")
            if len(fields) >= 5:
                kind = file_system.split(b" ")[0].decode("ascii", "replace")
                yield fields[2].decode("ascii", "replace"), fields[3], os.fsdecode(fields[4]), kind


def _device(path: str) -> str:
    """Return the number of the file system at PATH as the table has it, "" where nothing is."""
    try:
        number = os.stat(path).st_dev
    except OSError:
        return ""
    return f"{os.major(number)}:{os.minor(number)}"


def _lacks(outer: str, path: str, present: set[str]) -> bool:
    # A host that is a container itself has a /dev of another type, with this node in it.
    return path not in present and not (path == "/dev" and os.path.exists(f"{outer}/dev/null"))


def _missing(outer: str, path: str, kind: str, why: str) -> Finding:
    return Finding(
        severity="error",
        rule=MISSING,
        path=path,
        message=f"the host's {path} is not mounted at {shown(outer + path)} (no {kind} is there): {why} "
        "cannot be seen",
        hint=_whole(outer),
    )


def _whole(outer: str) -> str:
    at = shown(outer)
    return (
        f"mount the host with all that is mounted below it: hostPath / at {at} with 'mountPropagation: "
        f"HostToContainer' in a manifest, '--volume /:{at}:ro,rslave' for podman run and docker run"
    )


def _unwritable(outer: str, folders: Sequence[str]) -> Iterator[Finding]:
    for folder in folders:
        try:
            is_closed = os.statvfs(_existing(folder)).f_flag & os.ST_RDONLY
        except OSError:
            continue
        if is_closed:
            yield Finding(
                severity="error",
                rule=READ_ONLY,
                path=folder[len(outer) :],
                message=f"{shown(folder)} is on a mount that is read-only: nothing can be written there",
                hint=_writable(outer, _mounted(folder[len(outer) :])),
            )


def _writable(outer: str, folder: str) -> str:
    host, at = shown(folder), shown(outer + folder)
    return (
        f"mount the host's {host} writable: hostPath {host} at {at} in a manifest, "
        f"'--volume {host}:{at}:rw,rslave' for podman run and docker run"
    )


def _mounted(path: str) -> str:
    """Return which folder of the host to mount for PATH: all of /run, as others remove what is in it."""
    return "/run" if path.startswith("/run/") else path


def _existing(path: str) -> str:
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _removed(
    outer: str, folders: Sequence[str], table: Sequence[tuple[str, bytes, str, str]]
) -> Iterator[Finding]:
    """Yield each of FOLDERS that is a mount of a folder that the host has no more."""
    gone = {point for _, root, point, _ in table if root.endswith(b"//deleted")}
    for folder in folders:
        if folder in gone:
            host = os.path.dirname(folder[len(outer) :])
            yield Finding(
                severity="error",
                rule=REMOVED,
                path=folder[len(outer) :],
                message=f"the folder that is mounted at {shown(folder)} was removed on the host, which sees "
                "nothing of what is written there",
                hint=f"mount a folder above it: {_writable(outer, host)}",
            )
