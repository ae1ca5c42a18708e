"""List the driver files, kernel files, nodes and uevents that the daemon watches for NVIDIA."""

from __future__ import annotations

from cdigen.model.loader import MULTIARCH
from cdigen.vendors.base import Watches
from cdigen.vendors.kernel.modules import FIRMWARE_FOLDERS
from cdigen.vendors.nvidia.files import file_list
from cdigen.vendors.nvidia.files.tables import (
    BINARIES,
    BINARY_FOLDERS,
    CONFIG_FOLDERS,
    CONFIGS,
    CONFIGS32,
    LIBRARY32_FOLDERS,
    LIBRARY_FOLDERS,
    LIBRARY_NAMES,
    NIXOS_FIRMWARE,
    SOCKETS,
    WINE_FOLDER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.vendors.context import DiscoveryContext

# The subsystems of the watched uevents: pci and module for the kernel module, drm and misc for its nodes.
SUBSYSTEMS = ("pci", "module", "drm", "misc")
# The kernel sends no event when it creates or removes these files.
POLLED = (
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus",
    "/proc/driver/nvidia/capabilities",
    "/proc/driver/nvidia-caps/mig-minors",
    "/sys/bus/pci/drivers/nvidia",
)
NODES = (
    "/dev/nvidia*",
    "/dev/nvidia-caps/*",
    "/dev/nvidia-caps-imex-channels/*",
    "/dev/dri/*",
    "/dev/dri/by-path/*",
    "/dev/dxg",
)
LIBRARIES = (*LIBRARY_NAMES, "libdxcore*")
# The paths of Debian's driver alternatives, and the folder with the file lists of Tegra boards.
OWN_FOLDERS = ("/etc/alternatives/nvidia*", "/etc/nvidia-container-runtime/host-files-for-container.d")


def watches(context: DiscoveryContext) -> Watches:
    """Return the files and subsystems to watch. The paths of the files are paths on this machine."""
    driver = context.driver
    files = [driver.outer_path(path) for path in dict.fromkeys(_driver_paths(context))]
    files += [context.dev.outer_path(path) for path in NODES]
    files += [driver.outer_path(f"{folder}/{name}") for folder in ("/run", "/var/run") for name, _ in SOCKETS]
    if context.mps_pipe_dir:
        files.append(context.host.outer_path(context.mps_pipe_dir))
    return Watches(
        files=tuple(files),
        polled=tuple(context.host.outer_path(path) for path in POLLED),
        subsystems=SUBSYSTEMS,
    )


def _driver_paths(context: DiscoveryContext) -> Iterator[str]:
    libraries = context.library_search_paths or (
        *(folder.format(multiarch=name) for folder in LIBRARY_FOLDERS for name in MULTIARCH.values()),
        *(LIBRARY32_FOLDERS if context.compat32 else ()),
    )
    for folder in libraries:
        yield from (f"{folder}/{name}" for name in LIBRARIES)
        yield f"{folder}/nvidia"
        yield f"{folder}/nvidia/current"
        yield f"{folder}/{WINE_FOLDER}"
    yield "/etc/ld.so.cache"
    yield from OWN_FOLDERS
    binaries = context.binary_search_paths or BINARY_FOLDERS
    yield from (f"{folder}/{name}" for folder in binaries for name, _ in BINARIES)
    configs = (*CONFIGS, *(CONFIGS32 if context.compat32 else ()))
    for folder in context.config_search_paths or CONFIG_FOLDERS:
        yield f"{folder}/{file_list.PATH}"
        yield from (f"{folder}/{path.format(version='*', architecture='*')}" for path, _, _ in configs)
    firmware = (folder for folder in (*FIRMWARE_FOLDERS, NIXOS_FIRMWARE) if "{" not in folder)
    yield from (f"{folder}/nvidia" for folder in firmware)
