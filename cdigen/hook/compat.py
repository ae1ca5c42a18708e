"""``compat_folder``: finds an image's forward-compatibility libraries, among them a newer libcuda.

``compat_folder`` reads only the names of the image's files and an ELF note of the image's libcuda. The
function limits the size of both reads. It does not mount, copy or execute a file. If libcuda works with the
host's driver, the hook adds the image's folder to the loader's cache before cdigen's folder. The processes in
the container then load the image's libcuda. Source: NVIDIA, "CUDA Compatibility", forward compatibility.
``binfmt.cuda_compat`` implements the rules.
"""

from __future__ import annotations

import posix
from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY

from cdigen.binfmt.cuda_compat import read_note, suits
from cdigen.binfmt.ldcache import ABIS
from cdigen.hook.container import ContainerPathError, MissingPathError, path_error, regular_size, reopen
from cdigen.hook.image_paths import open_image_path
from cdigen.hook.loader import LibraryFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.hook.container import ContainerRoot

FOLDER = "/usr/local/cuda/compat"

# The libraries in NVIDIA's cuda-compat packages (11.x to 13.1). A name is the SONAME or the name that
# programs load. The SONAME of a library in VERSIONED_NAMES is the name, a dot and the driver's version.
NAMES = (
    "libcuda.so.1",
    "libcuda.so",
    "libcudadebugger.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-nvvm.so",
    "libnvidia-nvvm70.so.4",
    "libnvidia-ptxjitcompiler.so.1",
)
VERSIONED_NAMES = (
    "libnvidia-fatbinaryloader.so",
    "libnvidia-gpucomp.so",
    "libnvidia-pkcs11-openssl3.so",
    "libnvidia-pkcs11.so",
    "libnvidia-tileiras.so",
)

# A read of a file in these folders can have side effects. The runtime masks such files after the hook ends.
KERNEL_FOLDERS = frozenset({"dev", "proc", "sys"})

# Limits of cdigen. The packages have 20 files, and a version has 10 characters.
MAX_FILES = 1024
_MAX_VERSION = 32
_LIBCUDA = "libcuda.so."
# The values of e_machine, two bytes at the offset 18 in every ELF file (System V gABI, chapter 4).
_MACHINES = {62: "x86_64", 183: "aarch64"}


def compat_folder(container: ContainerRoot, driver_version: str) -> LibraryFolder | None:
    """Return the image's compatibility libraries if they work with the host's driver, or None.

    DRIVER_VERSION is the version of the host's driver. Raise ContainerPathError if the folder has several
    versions of libcuda, too many files or an invalid libcuda, or if the system refuses to read the folder.
    """
    try:
        folder = open_image_path(container, FOLDER, closed=KERNEL_FOLDERS)
    except MissingPathError:
        return None
    try:
        present = _names(folder)
    except OSError as error:
        raise path_error(FOLDER, error) from error
    finally:
        posix.close(folder)
    versions = sorted(name[len(_LIBCUDA) :] for name in present if _is_libcuda(name))
    if not versions:
        return None
    if len(versions) > 1:
        raise ContainerPathError(FOLDER, f"there are {len(versions)} versions of libcuda, not one")
    abi = _suiting_abi(container, versions[0], driver_version)
    if abi is None:
        return None
    every = (*NAMES, *[f"{name}.{versions[0]}" for name in VERSIONED_NAMES])
    names = tuple(name for name in every if name in present)
    return LibraryFolder(path=FOLDER, flags=ABIS[abi], names=names)


def _names(folder: int) -> frozenset[str]:
    """Return the file names in FOLDER, a descriptor that was opened with O_PATH."""
    fd = posix.open(f"/proc/self/fd/{folder}", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        names: set[str] = set()
        with posix.scandir(fd) as entries:
            for entry in entries:
                names.add(entry.name)
                if len(names) > MAX_FILES:
                    raise ContainerPathError(FOLDER, f"there are more than {MAX_FILES} files")
    finally:
        posix.close(fd)
    return frozenset(names)


def _is_libcuda(name: str) -> bool:
    """Return whether NAME is ``libcuda.so.`` with a driver version.

    A driver version has at least two numbers with dots between them.
    """
    version = name.removeprefix(_LIBCUDA)
    parts = version.split(".")
    return (
        name.startswith(_LIBCUDA)
        and len(version) <= _MAX_VERSION
        and len(parts) > 1
        and all(part.isascii() and part.isdigit() for part in parts)
    )


def _suiting_abi(container: ContainerRoot, version: str, driver_version: str) -> str | None:
    """Return the ABI of the image's libcuda, or None if libcuda does not work with the host's driver.

    VERSION is the version in the file name of libcuda.
    """
    where = f"{FOLDER}/{_LIBCUDA}{version}"
    opened = open_image_path(container, where, closed=KERNEL_FOLDERS)
    try:
        size = regular_size(opened, where)
        fd = reopen(opened)
        try:
            return _abi_if_suitable(
                lambda offset, length: posix.pread(fd, length, offset), size, version, driver_version
            )
        finally:
            posix.close(fd)
    except OSError as error:
        raise path_error(where, error) from error
    except ValueError as error:
        raise ContainerPathError(where, str(error)) from error
    finally:
        posix.close(opened)


def _abi_if_suitable(
    read_at: Callable[[int, int], bytes], size: int, version: str, driver_version: str
) -> str | None:
    if not suits(version, read_note(read_at, size), driver_version):
        return None
    machine = int.from_bytes(read_at(18, 2), "little")
    if machine not in _MACHINES:
        raise ValueError(f"no driver libraries for the ELF machine {machine}")
    return _MACHINES[machine]
