"""What tells that a file was changed."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def traces(path: Path) -> tuple[int, ...]:
    """Return what a change of PATH leaves a trace in; that it was read may change its time of access."""
    status = path.lstat()
    return (
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
