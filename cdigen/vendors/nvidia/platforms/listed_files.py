"""Check a driver file that is in the list of a Tegra board or in a folder of WSL (``read_listed_file``).

``read_listed_file`` checks only that the file has the type that its name implies. It does not compare the
file with the driver's version.
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
    """A container must not get the file. The message is the reason in one line."""


class NotALibrary(UnusableFile):
    """A file with the name of a library is not a library. The message is the reason."""


@frozen
class ListedFile:
    """A file of the driver, after all symbolic links are resolved.

    ``path`` is the path in the driver's tree. ``host_path`` is the path on the host. ``soname`` and
    ``machine`` (e_machine) are the values of a library. For a file that is not a library, both are None.
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
    """Return whether NAME is the name of a library, such as ``libcuda.so.1.1`` or ``libnvos.so``."""
    return name.startswith("lib") and (name.endswith(".so") or ".so." in name)


def read_listed_file(root: Root, path: str) -> ListedFile:
    """Return the folder, file or library at PATH.

    The function raises FileNotFoundError or NotADirectoryError if PATH does not exist. It raises UnusableFile
    for a device, a socket, an empty file, or a path that a spec cannot contain. If the names of PATH and of
    its target are both names of libraries, the file must be a library.
    """
    try:
        real = root.resolve(path)
        status = root.stat(real)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise UnusableFile(f"the file cannot be read: {reason(error)}") from None
    if real == "/":
        raise UnusableFile("the path leads to the root folder")
    host_path = root.host_path(real)
    if not is_plain(host_path):
        raise UnusableFile(f"the path leads to {shown(host_path)}, which has unprintable characters")
    is_folder = stat.S_ISDIR(status.st_mode)
    if not is_folder and not stat.S_ISREG(status.st_mode):
        raise UnusableFile("not a regular file")
    names = {path.rpartition("/")[2], real.rpartition("/")[2]}
    is_library = not is_folder and all(is_library_name(name) for name in names)
    library = _read_library(root, real) if is_library else None
    if not is_folder and not status.st_size:
        raise UnusableFile("the file is empty")
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
        raise NotALibrary(f"not a shared library: {error}") from None
    except OSError as error:
        raise NotALibrary(f"the file cannot be read: {reason(error)}") from None


def _usable_soname(soname: str | None) -> str | None:
    """Return SONAME if it is a valid file name, else None."""
    if soname is None or "/" in soname or soname in {"", ".", ".."} or not is_plain(soname):
        return None
    return soname
