"""Functions that add library folders to the loader's cache and to the configuration of ldconfig.

``list_in_cache`` changes /etc/ld.so.cache. The new content is equal to the output of an ldconfig that reads
cdigen's folders first. The function runs no program and reads no library of the image. ``list_in_conf`` adds
the folders to ldconfig's configuration, so a later run of ldconfig in the container keeps the folders. In an
image without /etc, no loader uses these files, and the hook does not create the files.
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
# ldconfig reads the files in CONF_FOLDER in the order of the C locale. It prefers the folders that it reads
# first (elf/ldconfig.c).
CONF_NAME = "00-cdigen.conf"
_MAX_CONF = 1 << 20


@frozen
class LibraryFolder:
    """A library folder in the container, and names of libraries in the folder.

    ``path`` is the path in the container. ``flags`` is the ABI, as in the loader's cache. If a library name
    is in several folders, the loader finds the library in the first folder.
    """

    path: str
    flags: int
    names: tuple[str, ...]


def folder_of(values: tuple[str, ...]) -> LibraryFolder:
    """Return the folder of an update-ldcache step. VALUES are the ABI, the folder and the library names."""
    abi, path, *names = values
    return LibraryFolder(path=path, flags=ABIS[abi], names=tuple(names))


def list_in_cache(container: ContainerRoot, folders: list[LibraryFolder]) -> None:
    """Add FOLDERS to the loader's cache before all other entries.

    Raise ContainerPathError if the cache cannot be changed.
    """
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
    """Add FOLDERS to the file that ldconfig reads first.

    Do nothing if /etc/ld.so.conf.d does not exist. The file keeps the folders that it already has, because
    the hook runs once for each kind of device. FOLDERS come before these folders. A folder in GONE is removed
    if it is not in FOLDERS. Raise ContainerPathError if the file cannot be changed.
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
