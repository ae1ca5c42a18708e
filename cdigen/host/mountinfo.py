"""Read a mount table (proc_pid_mountinfo(5)) row by row, in bounded memory: ``rows``.

Any user can fill one in a user namespace: 100,000 mounts (sysctl fs.mount-max) of overlays with 500 layers
each (fs/overlayfs/params.c), all named in the row.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Root and mount point have at most 4096 bytes, each perhaps escaped as four; the other fields that are used
# come before a file system's own options.
MAX_ROW = 1 << 16


def rows(path: str) -> Iterator[bytes]:
    """Yield the rows of the table PATH without their ends, cut after ``MAX_ROW`` bytes. Raises OSError."""
    with open(path, "rb", buffering=MAX_ROW) as file:
        is_begun = False
        while piece := file.readline(MAX_ROW):
            if not is_begun:
                yield piece.rstrip(b"\n")
            is_begun = not piece.endswith(b"\n")
