"""Read the state of kernel modules: whether a module is loaded, its build, and its firmware files."""

from __future__ import annotations

import os
from contextlib import suppress
from fnmatch import fnmatchcase

from cdigen.host.kernelmodules import kernel_name
from cdigen.host.procfs import kernel_release, read_line, read_text
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.inventory import Driver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root

MODULES = "/sys/module"
# The kernel's name of the architecture, from Linux 6.1 on (Documentation/admin-guide/sysctl/kernel.rst,
# "arch").
ARCHITECTURE = "/proc/sys/kernel/arch"
# The kernel's default search path for firmware. The kernel searches the folder in the parameter
# firmware_class.path first (Documentation/driver-api/firmware/fw_search_path.rst).
FIRMWARE_FOLDERS = (
    "/lib/firmware/updates/{release}",
    "/lib/firmware/updates",
    "/lib/firmware/{release}",
    "/lib/firmware",
)
# The list of the modules of a kernel, with the modules that each module needs (modules.dep(5)).
_DEPENDENCIES = "/lib/modules/{release}/modules.dep"
_MAX_DEPENDENCIES = 4 << 20  # bytes
# modprobe(8) finds the module of a device in this file. In Debian, the file has about 30,000 lines.
_ALIASES = "/lib/modules/{release}/modules.alias"
_MAX_ALIASES = 16 << 20  # bytes
_FIRMWARE_PARAMETER = f"{MODULES}/firmware_class/parameters/path"


def is_loaded(host: Root, module: str) -> bool:
    """Return whether MODULE is loaded, or is built into the kernel and in use."""
    return host.exists(f"{MODULES}/{module}")


def fitting_modules(host: Root, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules in NAMES that match a PCI function without a driver, in the order of NAMES.

    The function searches modules.alias, the alias table of the running kernel's modules. If several modules
    match the same PCI function, only the first in NAMES is in the result. The result is empty if
    modules.alias or the PCI bus cannot be read.
    """
    try:
        text = read_text(host, _ALIASES.format(release=kernel_release(host) or "-"), limit=_MAX_ALIASES)
    except OSError:
        return ()
    rows = [line.split() for line in text.splitlines() if line.startswith("alias pci:")]
    patterns = {
        name: [row[1] for row in rows if len(row) == 3 and kernel_name(row[2]) == name] for name in names
    }
    folders = (f"{PCI_DEVICES}/{address}" for address in host.names(PCI_DEVICES))
    free = [read_line(host, f"{each}/modalias") for each in folders if "driver" not in host.names(each)]
    fitting = {
        next((name for name in names if any(fnmatchcase(alias, each) for each in patterns[name])), "")
        for alias in filter(None, free)
    }
    return tuple(name for name in names if name in fitting)


def loading_step(host: Root, module: str) -> str:
    """Return the next step for MODULE, which is not loaded: load it, or install it for the running kernel."""
    release = kernel_release(host)
    try:
        text = read_text(host, _DEPENDENCIES.format(release=release or "-"), limit=_MAX_DEPENDENCIES)
    except OSError:
        text = ""
    files = (line.partition(":")[0].rpartition("/")[2] for line in text.splitlines())
    if not text or module in {kernel_name(file.partition(".ko")[0]) for file in files}:
        return f"run 'modprobe {module}'"
    return f"the kernel {release} has no module {module}: install the package with its module for this kernel"


def load_of(host: Root, *modules: str) -> str:
    """Return a text that changes each time one of MODULES is loaded, or "" if none of them is loaded.

    The text has the inode number of each module's folder in sysfs. This number is unique during a boot (the
    kernel's fs/kernfs/dir.c, idr_alloc_cyclic). The timestamps of the folder are not suitable, because the
    kernel sets new timestamps after it has evicted the inode.
    """
    inodes: list[str] = []
    for module in modules:
        with suppress(OSError):
            inodes.append(str(host.stat(f"{MODULES}/{module}").st_ino))
    return " ".join(inodes)


def read_driver(host: Root, module: str) -> Driver:
    """Return the version and the build of the loaded module MODULE.

    A module that DKMS builds has its own version in sysfs (``MODULE_VERSION``). A module of the kernel's tree
    has no version in sysfs. For such a module, the result contains the kernel's release.
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
    """Return the folders in which the kernel of HOST searches for firmware, in the order of the search."""
    parameter = read_line(host, _FIRMWARE_PARAMETER)
    # If the release is not known, "-" is used. No folder has this name, so that the folder is skipped.
    release = kernel_release(host) or "-"
    folders = tuple(folder.format(release=release) for folder in FIRMWARE_FOLDERS)
    return (parameter, *folders) if parameter.startswith("/") else folders


def firmware_names(host: Root, folder: str) -> tuple[str, ...]:
    """Return the names of the files in the folder FOLDER (``amdgpu``) of each firmware folder."""
    return tuple(name for place in firmware_folders(host) for name in host.names(f"{place}/{folder}"))
