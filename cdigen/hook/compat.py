"""Find the image's forward-compatibility libraries, where it brings a libcuda newer than the host's driver.

``compat_folder`` is the central name. Of the image only names and one ELF note are read, both bounded, and
nothing is mounted, copied or executed: where the note allows the driver, the loader's cache names the
image's folder before ours, and what the container's processes then load is their own file. Source:
NVIDIA, "CUDA Compatibility", forward compatibility; the rules are those of ``binfmt.cuda_compat``.
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

# What NVIDIA's cuda-compat packages have (11.x to 13.1), by SONAME or name that is asked for; in the
# second row those whose SONAME ends in the driver's version.
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

# To read a file there can have effects; the runtime masks such only after the hook.
KERNEL_FOLDERS = frozenset({"dev", "proc", "sys"})

# Bounds of ours: the packages have 20 files, and versions 10 characters.
MAX_FILES = 1024
_MAX_VERSION = 32
_LIBCUDA = "libcuda.so."
# e_machine, two bytes at 18 in every ELF file: System V gABI, chapter 4.
_MACHINES = {62: "x86_64", 183: "aarch64"}


def compat_folder(container: ContainerRoot, driver_version: str) -> LibraryFolder | None:
    """Return the image's compatibility libraries, if it has some that suit the host's DRIVER_VERSION.

    ContainerPathError: they are there, but not as NVIDIA's packages have them, or the system does not let
    us look.
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
    wanted = (*NAMES, *[f"{name}.{versions[0]}" for name in VERSIONED_NAMES])
    names = tuple(name for name in wanted if name in present)
    return LibraryFolder(path=FOLDER, flags=ABIS[abi], names=names)


def _names(folder: int) -> frozenset[str]:
    """Return the names in a folder opened with O_PATH."""
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
    """Tell whether NAME is libcuda.so with a driver's version: numbers, at least two, with points."""
    version = name.removeprefix(_LIBCUDA)
    parts = version.split(".")
    return (
        name.startswith(_LIBCUDA)
        and len(version) <= _MAX_VERSION
        and len(parts) > 1
        and all(part.isascii() and part.isdigit() for part in parts)
    )


def _suiting_abi(container: ContainerRoot, version: str, driver_version: str) -> str | None:
    """Return the ABI of the image's libcuda of VERSION if it may be used with the driver."""
    where = f"{FOLDER}/{_LIBCUDA}{version}"
    seen = open_image_path(container, where, closed=KERNEL_FOLDERS)
    try:
        size = regular_size(seen, where)
        fd = reopen(seen)
        try:
            return _judged(_reader(fd), size, version, driver_version)
        finally:
            posix.close(fd)
    except OSError as error:
        raise path_error(where, error) from error
    except ValueError as error:
        raise ContainerPathError(where, str(error)) from error
    finally:
        posix.close(seen)


def _judged(read_at: Callable[[int, int], bytes], size: int, version: str, driver_version: str) -> str | None:
    if not suits(version, read_note(read_at, size), driver_version):
        return None
    machine = int.from_bytes(read_at(18, 2), "little")
    if machine not in _MACHINES:
        raise ValueError(f"its machine {machine} has no driver libraries")
    return _MACHINES[machine]


def _reader(fd: int) -> Callable[[int, int], bytes]:
    def read_at(offset: int, length: int) -> bytes:
        return posix.pread(fd, length, offset)

    return read_at
