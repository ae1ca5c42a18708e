"""Read the NPUs of amdxdna.

Each NPU has one accelerator node (drivers/accel/amdxdna creates no other nodes). The index is the position in
the order of PCI addresses. Current processors have only one NPU.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import read_line
from cdigen.model.inventory import Accelerator
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.kernel.scan import NodeScan

# PCI device number -> model (drivers/accel/amdxdna/amdxdna_pci_drv.c, pci_ids).
_MODELS = {"0x1502": "Ryzen AI NPU (Phoenix, Hawk Point)", "0x17f0": "Ryzen AI NPU (Strix, Krackan)"}


def read_npus(scan: NodeScan) -> tuple[Accelerator, ...]:
    """Return the NPUs that are bound to amdxdna; add a finding for each problem."""
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
