"""Properties that show a change of a file."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def traces(path: Path) -> tuple[int, ...]:
    """Return the properties of PATH that a change alters, except the access time, which a read alters too."""
    status = path.lstat()
    return (
        status.st_ino,
        status.st_mode,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
