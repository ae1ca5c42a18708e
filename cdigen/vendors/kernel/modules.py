"""Tell whether a kernel module is loaded, of which build it is, and which firmware there is for it."""

from __future__ import annotations

import os

from cdigen.host.procfs import kernel_release, read_line
from cdigen.model.inventory import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MODULES = "/sys/module"
# The kernel's word for its machine, from 6.1 on (Documentation/admin-guide/sysctl/kernel.rst, "arch").
ARCHITECTURE = "/proc/sys/kernel/arch"
# The kernel's own search path, after that of its parameter (Documentation/driver-api/firmware/
# fw_search_path.rst).
FIRMWARE_FOLDERS = (
    "/lib/firmware/updates/{release}",
    "/lib/firmware/updates",
    "/lib/firmware/{release}",
    "/lib/firmware",
)
_FIRMWARE_PARAMETER = f"{MODULES}/firmware_class/parameters/path"


def is_loaded(host: Root, module: str) -> bool:
    """Return whether MODULE is loaded, or built into the kernel and in use."""
    return host.exists(f"{MODULES}/{module}")


def load_of(host: Root, module: str) -> str:
    """Return what is another after each loading of MODULE, empty where it is not loaded.

    It is the inode number of its folder in sysfs, of which no two in a boot are alike (the kernel's
    fs/kernfs/dir.c, idr_alloc_cyclic). Times are no use: the kernel makes them up whenever it has forgotten
    the inode.
    """
    try:
        return str(host.stat(f"{MODULES}/{module}").st_ino)
    except OSError:
        return ""


def read_driver(host: Root, module: str) -> Driver:
    """Read what there is to say of MODULE, which is loaded.

    Modules of the kernel's own tree have no version but the kernel's; those that DKMS builds have
    (``MODULE_VERSION``, which sysfs shows).
    """
    version = read_line(host, f"{MODULES}/{module}/version")
    machine = read_line(host, ARCHITECTURE)
    is_word = machine.isascii() and machine.replace("_", "").isalnum()
    return Driver(
        version=version or kernel_release(host),
        flavour="dkms" if version else "in-tree",
        architecture=machine if is_word else os.uname().machine,
    )


def firmware_folders(host: Root) -> tuple[str, ...]:
    """Return the folders in which the kernel of HOST looks for firmware, the first one first."""
    given = read_line(host, _FIRMWARE_PARAMETER)
    # "-" is not a folder: without a release those of a release are passed over.
    release = kernel_release(host) or "-"
    folders = tuple(folder.format(release=release) for folder in FIRMWARE_FOLDERS)
    return (given, *folders) if given.startswith("/") else folders


def firmware_names(host: Root, folder: str) -> tuple[str, ...]:
    """Return the names of the firmware files in FOLDER (``amdgpu``) of all that the kernel searches."""
    return tuple(name for place in firmware_folders(host) for name in host.names(f"{place}/{folder}"))
