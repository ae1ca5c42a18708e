"""List what the daemon watches for Intel: nodes, drivers' folders, uevent subsystems."""

from __future__ import annotations

from cdigen.vendors.base import Watches
from cdigen.vendors.intel.presence import PCI_DRIVERS
from cdigen.vendors.intel.tables import DRIVERS, VFIO_DRIVERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.vendors.base import DiscoveryContext

# Devices that come, go and change drivers (pci), the drivers themselves, and the nodes that each makes.
SUBSYSTEMS = ("pci", "module", "drm", "accel", "mei", "habanalabs", "infiniband_verbs")
VFIO_SUBSYSTEMS = ("vfio", "vfio-dev")
NODES = ("/dev/dri/*", "/dev/dri/by-path/*", "/dev/accel/*", "/dev/mei*", "/dev/infiniband/uverbs*")
VFIO_NODES = ("/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu")


def watches(context: DiscoveryContext, *, vfio: bool) -> Watches:
    """Return the paths and subsystems of CONTEXT that matter, as paths of this machine."""
    host, dev = context.host, context.dev
    drivers = (*DRIVERS, *(VFIO_DRIVERS if vfio else ()))
    polled = [f"{PCI_DRIVERS}/{driver}" for driver in drivers]
    polled += _numbers_of_virtual_functions(host)
    return Watches(
        files=tuple(f"{dev.outer}{path}" for path in (*NODES, *(VFIO_NODES if vfio else ()))),
        polled=tuple(f"{host.outer}{path}" for path in polled),
        subsystems=(*SUBSYSTEMS, *(VFIO_SUBSYSTEMS if vfio else ())),
    )


def _numbers_of_virtual_functions(host: Root) -> list[str]:
    """Return the files that say how many virtual functions each GPU has; the kernel announces no change."""
    folders = (
        f"{PCI_DRIVERS}/{driver}/{name}"
        for driver, device_class in DRIVERS.items()
        if device_class == "gpu"
        for name in host.names(f"{PCI_DRIVERS}/{driver}")
        if ":" in name
    )
    return [f"{folder}/sriov_numvfs" for folder in folders if host.exists(f"{folder}/sriov_numvfs")]
