"""Make the container's dynamic loader find library folders: by its cache, and by what ldconfig reads.

``list_in_cache`` changes /etc/ld.so.cache as ldconfig would have made it with our folders first, without
running anything and without a look at the image's libraries. ``list_in_conf`` keeps what an ldconfig run
later in the container would otherwise lose. An image without /etc has no loader to find anything by it,
and gets none made.
"""

from __future__ import annotations

import posix

from cdigen.binfmt.ldcache import ABIS, MAX_SIZE, CacheError
from cdigen.binfmt.ldcache_merge import merge
from cdigen.hook.container import ContainerPathError, MissingPathError, open_folder, read_file, write_file
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.hook.container import ContainerRoot

CACHE = "/etc/ld.so.cache"
CONF_FOLDER = "/etc/ld.so.conf.d"
# ldconfig reads these files in C order and prefers the folders it reads first (elf/ldconfig.c).
CONF_NAME = "00-cdigen.conf"
_MAX_CONF = 1 << 20


@frozen
class LibraryFolder:
    """A folder of the container, as its processes see it, and names of libraries in it.

    ``flags`` tells the ABI, as in the loader's cache. Of equal names in several folders the first one's
    is found.
    """

    path: str
    flags: int
    names: tuple[str, ...]


def folder_of(values: tuple[str, ...]) -> LibraryFolder:
    """Return what the VALUES of an update-ldcache step stand for: ABI, folder, names."""
    abi, path, *names = values
    return LibraryFolder(path=path, flags=ABIS[abi], names=tuple(names))


def list_in_cache(container: ContainerRoot, folders: list[LibraryFolder]) -> None:
    """Make the loader's cache list FOLDERS before everything else. ContainerPathError: it stays as it is."""
    libraries = [(name, f"{folder.path}/{name}", folder.flags) for folder in folders for name in folder.names]
    etc = open_folder(container, "/etc")
    try:
        before = read_file(container, etc, "ld.so.cache", CACHE, MAX_SIZE)
        try:
            after = merge(before or b"", libraries)
        except CacheError as error:
            raise ContainerPathError(CACHE, str(error)) from error
        if after != before:
            write_file(etc, "ld.so.cache", after, CACHE)
    finally:
        posix.close(etc)


def list_in_conf(container: ContainerRoot, folders: list[LibraryFolder], gone: tuple[str, ...] = ()) -> None:
    """Name FOLDERS where ldconfig looks first. Without /etc/ld.so.conf.d no image's ldconfig would look.

    Folders that the file names already stay, after ours, but those in GONE: a container with devices of two
    kinds has the hook run once for each. ContainerPathError: the file stays as it is.
    """
    where = f"{CONF_FOLDER}/{CONF_NAME}"
    ours = [folder.path.encode("utf-8", "surrogateescape") for folder in folders]
    stale = [path.encode() for path in gone]
    try:
        conf = open_folder(container, CONF_FOLDER)
    except MissingPathError:
        return
    try:
        before = read_file(container, conf, CONF_NAME, where, _MAX_CONF) or b""
        others = [line for line in before.splitlines() if line.startswith(b"/") and line not in stale]
        after = b"".join([path + b"\n" for path in dict.fromkeys((*ours, *others))])
        if before != after and len(after) <= _MAX_CONF:
            write_file(conf, CONF_NAME, after, where)
    finally:
        posix.close(conf)
