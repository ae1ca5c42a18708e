"""Check that a live host is mounted completely at a folder: ``findings``, for cdigen in a container.

A folder is a live host if a file system of the kernel is mounted at its /proc, /sys or /dev. A mount with an
empty /proc and an empty /sys is also a live host. All other folders are recorded hosts, and are not checked.
In a container, the host's ``/`` is mounted read-only at the folder. The folders to which cdigen writes are
mounted writable (docs/how-to/container-image.md).
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
# Each row: a folder of the host, the type of its file system, and the content of the folder.
_KERNELS = (
    ("/proc", "proc", "the running driver"),
    ("/sys", "sysfs", "the devices"),
    ("/dev", "devtmpfs", "the device nodes"),
)
_MOUNTINFO = "/proc/self/mountinfo"


def findings(outer: str, writable: Sequence[str], mountinfo: str = _MOUNTINFO) -> tuple[Finding, ...]:
    """Return the findings on missing, read-only and removed mounts of the live host at OUTER.

    The result is empty if OUTER is not a live host. WRITABLE are folders of this machine to which cdigen
    writes. Folders outside OUTER are not checked. MOUNTINFO is this process's mount table
    (proc_pid_mountinfo(5)).
    """
    outer = outer.rstrip("/")
    if not outer:
        return ()
    try:
        table = tuple(_mounts(mountinfo))
    except OSError:
        return ()
    types = {device: kind for device, _, _, kind in table}
    present = {path for path, kind, _ in _KERNELS if types.get(_device(f"{outer}{path}")) == kind}
    if not present and not _is_alone(outer, table):
        return ()
    below = [path for path in dict.fromkeys(writable) if path.startswith(f"{outer}/")]
    return (
        *(_missing(outer, *kernel) for kernel in _KERNELS if _lacks(outer, kernel[0], present)),
        *_unwritable(outer, below),
        *_removed(outer, below, table),
    )


def _is_alone(outer: str, table: Sequence[tuple[str, bytes, str, str]]) -> bool:
    """Return whether OUTER is a mount of a host's root without the mounts below the root."""
    try:
        is_empty = not os.listdir(f"{outer}/proc") and not os.listdir(f"{outer}/sys")
    except OSError:
        return False
    return is_empty and any(point == outer for _, _, point, _ in table)


def _mounts(path: str) -> Iterator[tuple[str, bytes, str, str]]:
    """Yield the rows of a mount table: device, root in the file system, mount point, file system type."""
    for row in rows(path):
        own, _, file_system = row.partition(b" - ")
        fields = own.split(b" ")
        if len(fields) >= 5:
            kind = file_system.split(b" ")[0].decode("ascii", "replace")
            yield fields[2].decode("ascii", "replace"), fields[3], os.fsdecode(fields[4]), kind


def _device(path: str) -> str:
    """Return the device number of PATH's file system as MAJOR:MINOR, "" if PATH cannot be read."""
    try:
        number = os.stat(path).st_dev
    except OSError:
        return ""
    return f"{os.major(number)}:{os.minor(number)}"


def _lacks(outer: str, path: str, present: set[str]) -> bool:
    # If the host is itself a container, its /dev has another file system type, but /dev/null exists.
    return path not in present and not (path == "/dev" and os.path.exists(f"{outer}/dev/null"))


def _missing(outer: str, path: str, kind: str, content: str) -> Finding:
    return Finding(
        severity="error",
        rule=MISSING,
        path=path,
        message=f"the host's {path} is not mounted at {shown(outer + path)} (no {kind}): cdigen cannot find "
        f"{content}",
        hint=_whole(outer),
    )


def _whole(outer: str) -> str:
    at = shown(outer)
    return (
        f"mount the host with all mounts below it: hostPath / at {at} with 'mountPropagation: "
        f"HostToContainer' in a manifest, '--volume /:{at}:ro,rslave' for podman run and docker run"
    )


def _unwritable(outer: str, folders: Sequence[str]) -> Iterator[Finding]:
    for folder in folders:
        try:
            is_closed = os.statvfs(existing(folder)).f_flag & os.ST_RDONLY
        except OSError:
            continue
        if is_closed:
            yield Finding(
                severity="error",
                rule=READ_ONLY,
                path=folder[len(outer) :],
                message=f"{shown(folder)} is on a read-only mount",
                hint=_writable(outer, _mounted(folder[len(outer) :])),
            )


def _writable(outer: str, folder: str) -> str:
    host, at = shown(folder), shown(outer + folder)
    return (
        f"mount the host's {host} writable: hostPath {host} at {at} in a manifest, "
        f"'--volume {host}:{at}:rw,rslave' for podman run and docker run"
    )


def _mounted(path: str) -> str:
    """Return the host folder to mount for PATH; this is /run for PATH below /run.

    Other programs can remove folders in /run, so a mount of a single folder could become invalid.
    """
    return "/run" if path.startswith("/run/") else path


def existing(path: str) -> str:
    """Return the folder PATH of this machine, or its nearest existing parent folder."""
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path) or "/"
    return path


def _removed(
    outer: str, folders: Sequence[str], table: Sequence[tuple[str, bytes, str, str]]
) -> Iterator[Finding]:
    """Yield a finding for each mount in FOLDERS whose source folder was removed on the host."""
    gone = {point for _, root, point, _ in table if root.endswith(b"//deleted")}
    for folder in folders:
        if folder in gone:
            host = os.path.dirname(folder[len(outer) :])
            yield Finding(
                severity="error",
                rule=REMOVED,
                path=folder[len(outer) :],
                message=f"the folder that is mounted at {shown(folder)} was removed on the host: files "
                "written there do not reach the host",
                hint=f"mount a folder above it: {_writable(outer, host)}",
            )
