"""Read the NPUs of amdxdna; each is one accelerator node (drivers/accel/amdxdna makes no other).

The index counts them by their PCI addresses; there has been one in a processor so far.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import read_line
from cdigen.model.inventory import Accelerator
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.kernel.scan import NodeScan

# PCI's numbers (drivers/accel/amdxdna/amdxdna_pci_drv.c, pci_ids).
_MODELS = {"0x1502": "Ryzen AI NPU (Phoenix, Hawk Point)", "0x17f0": "Ryzen AI NPU (Strix, Krackan)"}


def read_npus(scan: NodeScan) -> tuple[Accelerator, ...]:
    """Read the NPUs that their driver has; each problem is a finding."""
    return tuple(_read(scan, *item) for item in enumerate(sysfs.bound(scan.host, "amdxdna")))


def _read(scan: NodeScan, index: int, address: str) -> Accelerator:
    folder = f"{sysfs.PCI_DRIVERS}/amdxdna/{address}"
    device_id = read_line(scan.host, f"{folder}/device")
    device = Accelerator(
        index=index,
        address=address,
        model=_MODELS.get(device_id, f"AMD NPU {device_id}".rstrip()),
        uuid=None,
        minor=None,
        nodes=(),
        usable=False,
        device_class="npu",
        device_id=device_id,
    )
    minor = next(iter(drm.minors(scan.host, folder, "accel")), None)
    return scan.accelerator(device, folder, minor, word="NPU", driver="amdxdna")
