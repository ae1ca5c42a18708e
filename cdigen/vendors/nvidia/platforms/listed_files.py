"""Check a file that a Tegra's list or WSL names as the driver's: ``read_listed_file``.

They are not searched for and not held against the driver's version; ``read_listed_file`` only judges
whether a container would get what the name promises.
"""

from __future__ import annotations

import stat

from cdigen.binfmt import elf
from cdigen.host.root import is_plain, reason, shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root


class UnusableFile(ValueError):
    """Say in one line why a container must not get the file."""


class NotALibrary(UnusableFile):
    """Say why a file that is named like a library is none."""


@frozen
class ListedFile:
    """What a name leads to: ``path`` within its tree, with ``host_path`` as the host names it.

    ``soname`` and ``machine`` (e_machine) are those of a library, else None.
    """

    path: str
    host_path: str
    is_folder: bool
    is_library: bool
    is_executable: bool
    modified_ns: int
    soname: str | None = None
    machine: int | None = None


def is_library_name(name: str) -> bool:
    """Return whether NAME is a library's: ``libcuda.so.1.1``, ``libnvos.so``."""
    return name.startswith("lib") and (name.endswith(".so") or ".so." in name)


def read_listed_file(root: Root, path: str) -> ListedFile:
    """Return what PATH leads to: a folder, a file with content, or a library.

    Raises FileNotFoundError or NotADirectoryError where nothing is there, Unusable where something
    else is: a device, a socket, an empty file, a name that a spec cannot hold. Whether it has to be a
    library is judged by the names of both PATH and the file.
    """
    try:
        real = root.resolve(path)
        status = root.stat(real)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnusableFile(f"it cannot be read: {reason(error)}") from None
    if real == "/":
        raise UnusableFile("it leads to the root folder")
    host_path = root.host_path(real)
    if not is_plain(host_path):
        raise UnusableFile(f"it leads to {shown(host_path)}, which a spec cannot hold")
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        raise UnusableFile("it is not a file")
    names = {path.rpartition("/")[2], real.rpartition("/")[2]}
    is_library = not is_folder and all(is_library_name(name) for name in names)
    library = _read_library(root, real) if is_library else None
    if not is_folder and not status.st_size:
        raise UnusableFile("it is empty")
    return ListedFile(
        path=real,
        host_path=host_path,
        is_folder=is_folder,
        is_library=is_library,
        is_executable=bool(status.st_mode & 0o111),
        modified_ns=status.st_mtime_ns,
        soname=_usable_soname(library.soname) if library else None,
        machine=library.machine if library else None,
    )


def _read_library(root: Root, real: str) -> elf.SharedObject:
    try:
        with root.open(real) as file:
            return elf.read_shared_object(file.read_at, file.size)
    except elf.ElfError as error:
        raise NotALibrary(f"it is not a shared library: {error}") from None
    except OSError as error:
        raise NotALibrary(f"it cannot be read: {reason(error)}") from None


def _usable_soname(soname: str | None) -> str | None:
    """Return SONAME if it may name a file of a folder."""
    if soname is None or "/" in soname or soname in {"", ".", ".."} or not is_plain(soname):
        return None
    return soname
