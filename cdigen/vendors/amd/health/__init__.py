"""The health of AMD's GPUs and NPUs (``HEALTH``), from amdgpu, KFD and the PCI bus."""

from __future__ import annotations

from functools import partial

from cdigen.model.health import Measurement
from cdigen.value import replace
from cdigen.vendors.amd.health.causes import CAUSES, KFD_LOST, LINES
from cdigen.vendors.base import deferred
from cdigen.vendors.health import VendorHealth
from cdigen.vendors.kernel.drm import health as drm_health
from cdigen.vendors.kernel.pci import health as pci_health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import HealthSample
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext


def check(context: DiscoveryContext, inventory: Inventory) -> HealthSample:
    """Return the health according to KFD, and according to sysfs files.

    amdgpu does not query the GPU for these files. KFD is not read again: a GPU in INVENTORY has the node
    /dev/kfd only if KFD lists the GPU.
    """
    sample = pci_health.check(context, inventory)
    computing = (
        Measurement(
            cause=KFD_LOST, address=device.address, what="KFD nodes", value=_computes(device), worse="lower"
        )
        for device in inventory.accelerators
        if device.address in sample.covered
    )
    return replace(sample, measurements=(*sample.measurements, *computing))


def _computes(device: Accelerator) -> int:
    nodes = (*device.nodes, *(node for partition in device.partitions for node in partition.nodes))
    return int(any(node.role == "control" for node in nodes))


HEALTH = VendorHealth(
    causes=CAUSES,
    modules=("amdgpu",),
    check=check,
    parse_log=partial(drm_health.parse_log, lines=LINES),
    parse_uevents=drm_health.parse_uevents,
    probe=deferred("cdigen.vendors.amd.health.ras:probe"),
)
