"""Read a mount table (proc_pid_mountinfo(5)) row by row, in bounded memory: ``rows``.

In a user namespace, any user can fill a mount table with 100,000 overlays (sysctl fs.mount-max). An overlay
can have 500 layers (fs/overlayfs/params.c), and its row lists all layers.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# The root and the mount point have at most 4096 bytes each. An escaped byte takes up to four characters. All
# fields that cdigen uses are before the options of the file system.
MAX_ROW = 1 << 16


def rows(path: str) -> Iterator[bytes]:
    """Yield the rows of the table PATH without line ends, cut to ``MAX_ROW`` bytes each. Raises OSError."""
    with open(path, "rb", buffering=MAX_ROW) as file:
        is_begun = False
        while piece := file.readline(MAX_ROW):
            if not is_begun:
                yield piece.rstrip(b"\n")
            is_begun = not piece.endswith(b"\n")
