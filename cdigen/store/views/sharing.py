"""Share copies among views: ``link_copy`` links a file that another view has already, byte for byte.

Kinds that give parts of one driver have a view each. Where files can be linked or reflinked, that costs
nothing; where they have to be copied, each is copied once.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.store.views.folder import view_names
from cdigen.store.views.sources import unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory
    from cdigen.store.views.sources import ViewSource

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


def link_copy(place: Directory, file: int, source: ViewSource, at: tuple[Directory, str]) -> bool:
    """Link the copy of SOURCE in a view of PLACE to AT, a folder and a name; return whether there was one.

    FILE is SOURCE's descriptor. What does not work is as if there were none.
    """
    folder, name = at
    for view in view_names(place):
        with suppress(OSError):
            fd = os.open(f"{view}/{source.path}", _READ, dir_fd=place.fd)
            try:
                if _is_copy(fd, file, source):
                    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder.fd, follow_symlinks=True)
                    return True
            finally:
                os.close(fd)
    return False


def _is_copy(fd: int, file: int, source: ViewSource) -> bool:
    status = os.fstat(fd)
    told = (status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode))
    return (
        told == (source.size, source.mtime_ns, source.copy_mode)
        and not unfit(status, fd)
        and _is_equal(fd, file)
    )


def _is_equal(one: int, other: int) -> bool:
    """Return whether two open files have the same bytes: size and time alone do not tell that."""
    offset = 0
    while part := os.pread(one, _CHUNK, offset):
        if part != os.pread(other, _CHUNK, offset):
            return False
        offset += len(part)
    return not os.pread(other, 1, offset)
