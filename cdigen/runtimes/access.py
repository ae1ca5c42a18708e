"""Ask whether another process may read a file, as the kernel would decide: ``may_read``, ``may_list``.

cdigen often looks as root, for whom nothing is closed; whether a user's podman can read the same file is
written in the modes of the file and of every folder on the way (path_resolution(7)).
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.runtimes.users import Reader

_READ, _SEARCH = 4, 1
_ACCESS_LIST = "system.posix_acl_access"


def may_read(host: Root, path: str, reader: Reader) -> bool:
    """Return whether READER may open PATH of HOST for reading; True where there is nothing at PATH."""
    return _may(host, path, reader, _READ)


def may_list(host: Root, path: str, reader: Reader) -> bool:
    """Return whether READER may list the folder PATH of HOST and look at what is in it."""
    return _may(host, path, reader, _READ | _SEARCH)


def _may(host: Root, path: str, reader: Reader, wanted: int) -> bool:
    if reader.uid == 0:
        return True
    try:
        real, status = host.located(path)
        return (
            _is_open(host, real, status, reader, wanted)
            and _ways_open(host, real, reader)
            # A link's own folder must be searchable too, not only the one where it leads.
            and (real == path or _ways_open(host, path, reader))
        )
    except OSError:
        return True


def _ways_open(host: Root, path: str, reader: Reader) -> bool:
    folder = path.rpartition("/")[0]
    while folder:
        real, status = host.located(folder)
        if not _is_open(host, real, status, reader, _SEARCH):
            return False
        folder = folder.rpartition("/")[0]
    return True


def _is_open(host: Root, real: str, status: os.stat_result, reader: Reader, wanted: int) -> bool:
    if status.st_uid == reader.uid:
        bits = status.st_mode >> 6
    elif status.st_gid in reader.gids:
        bits = status.st_mode >> 3
    else:
        bits = status.st_mode
    # An access list may allow more than the mode shows (acl(5)): so no fault is reported.
    return stat.S_IMODE(bits) & wanted == wanted or _has_access_list(host.outer_path(real))


def _has_access_list(path: str) -> bool:
    try:
        return bool(os.getxattr(path, _ACCESS_LIST, follow_symlinks=False))
    except OSError:
        return False
