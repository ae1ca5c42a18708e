"""Share copies of files between views: ``link_copy`` adds a hard link to an equal copy in another view.

Each capability kind of a driver has a separate view. Hard links and reflinks to the files of the driver need
no space. If a file must be copied, cdigen copies the file only once, and links the copy into the other views.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from cdigen.store.descriptors import closing
from cdigen.store.views.folder import view_names
from cdigen.store.views.sources import unfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.store.directory import Directory
    from cdigen.store.views.sources import ViewSource

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 20


def link_copy(views_dir: Directory, file: int, source: ViewSource, at: tuple[Directory, str]) -> bool:
    """Hard-link a copy of SOURCE from a view in VIEWS_DIR, and return whether a copy was linked.

    AT is the folder and the name of the new link. FILE is the descriptor of SOURCE. The function ignores a
    copy that cannot be read or linked.
    """
    folder, name = at
    for view in view_names(views_dir):
        with suppress(OSError), closing(os.open(f"{view}/{source.path}", _READ, dir_fd=views_dir.fd)) as fd:
            if _is_copy(fd, file, source):
                os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder.fd, follow_symlinks=True)
                return True
    return False


def _is_copy(fd: int, file: int, source: ViewSource) -> bool:
    status = os.fstat(fd)
    properties = (status.st_size, status.st_mtime_ns, stat.S_IMODE(status.st_mode))
    return (
        properties == (source.size, source.mtime_ns, source.copy_mode)
        and not unfit(status, fd)
        and _is_equal(fd, file)
    )


def _is_equal(one: int, other: int) -> bool:
    """Return whether two open files have the same bytes. An equal size and time is not sufficient."""
    offset = 0
    while part := os.pread(one, _CHUNK, offset):
        if part != os.pread(other, _CHUNK, offset):
            return False
        offset += len(part)
    return not os.pread(other, 1, offset)
