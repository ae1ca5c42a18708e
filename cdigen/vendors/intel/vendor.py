"""Intel's implementation of the vendor protocol (``VENDOR``).

Modules that only hosts with Intel devices need are imported in functions, not at the top of this file.
"""

from __future__ import annotations

from functools import partial

from cdigen.host.sysfs import PCI_DRIVERS, bound
from cdigen.vendors.base import Vendor, Watches, deferred
from cdigen.vendors.context import VendorOption
from cdigen.vendors.intel import presence
from cdigen.vendors.intel.presence import CDI_VENDOR, DRIVERS, GPU, HABANA, INTEL, NAMINGS, VFIO_DRIVERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.errors import HostError
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.context import DiscoveryContext

VFIO = VendorOption(
    name="vfio", default=False, help="offer GPUs that are bound to vfio-pci or xe-vfio-pci, by PCI address"
)

# The subsystems of devices and driver changes (pci), of kernel modules, and of the nodes of each driver.
SUBSYSTEMS = ("pci", "module", "drm", "accel", "mei", "habanalabs", "infiniband_verbs")
VFIO_SUBSYSTEMS = ("vfio", "vfio-dev")
NODES = ("/dev/dri/*", "/dev/dri/by-path/*", "/dev/accel/*", "/dev/mei*", "/dev/infiniband/uverbs*")
# The INF files of Intel's drivers for Windows, such as iigd_dch.inf.
_WINDOWS_DRIVERS = "iigd_"
VFIO_NODES = ("/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu")


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory, or raise HostError.

    The kinds of the HostError are the kinds in ``discovery.discover``.
    """
    vfio = _offers_vfio(context)
    if not presence.has_devices(context.host, vfio=vfio):
        raise _in_windows(context) or presence.no_device(context.host)
    from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above

    return discovery.discover(context, vfio=vfio)


def _in_windows(context: DiscoveryContext) -> HostError | None:
    if not context.dev.exists("/dev/dxg"):
        return None
    from cdigen.vendors.kernel.wsl import windows_gpu  # noqa: PLC0415 - only in WSL2

    return windows_gpu(context, "Intel", _WINDOWS_DRIVERS, "/dev/dri")


def watches(context: DiscoveryContext) -> Watches:
    """Return the nodes, and the files of the drivers."""
    host, dev, vfio = context.host, context.dev, _offers_vfio(context)
    drivers = (*DRIVERS, *(VFIO_DRIVERS if vfio else ()))
    polled = [f"{PCI_DRIVERS}/{driver}" for driver in drivers]
    polled += _numbers_of_virtual_functions(host)
    return Watches(
        files=tuple(f"{dev.outer}{path}" for path in (*NODES, *(VFIO_NODES if vfio else ()))),
        polled=tuple(f"{host.outer}{path}" for path in polled),
        subsystems=(*SUBSYSTEMS, *(VFIO_SUBSYSTEMS if vfio else ())),
    )


def _odd_nodes(context: DiscoveryContext, *, which: str) -> tuple[HostNode, ...]:
    """Return the ``missing`` or ``wrong`` nodes of GPUs, NPUs and Gaudis."""
    from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above
    from cdigen.vendors.kernel.drm.devices import with_groups  # noqa: PLC0415 - see above

    reader = discovery.read_nodes(context, vfio=_offers_vfio(context))
    return with_groups(context.host, getattr(reader, which))


def _offers_vfio(context: DiscoveryContext) -> bool:
    return context.option("intel", VFIO) is True


def _numbers_of_virtual_functions(host: Root) -> list[str]:
    """Return the files with the number of virtual functions of each GPU.

    The kernel sends no events for these files.
    """
    drivers = (driver for driver, device_class in DRIVERS.items() if device_class == GPU)
    gpus = (f"{PCI_DRIVERS}/{driver}/{name}" for driver in drivers for name in bound(host, driver))
    return [f"{folder}/sriov_numvfs" for folder in gpus if host.exists(f"{folder}/sriov_numvfs")]


VENDOR = Vendor(
    NAME="intel",
    CDI_VENDOR=CDI_VENDOR,
    NAMINGS=NAMINGS,
    OPTIONS=(VFIO,),
    MODULES=tuple(DRIVERS),
    PCI_VENDORS=(INTEL, HABANA),
    discover=discover,
    edits=deferred("cdigen.vendors.intel.edits:drafts"),
    watches=watches,
    missing_nodes=partial(_odd_nodes, which="missing"),
    wrong_nodes=partial(_odd_nodes, which="wrong"),
    diagnostics=deferred("cdigen.vendors.intel.diagnostics:diagnostics"),
)
