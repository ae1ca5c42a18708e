"""Read the error counters of RAS: ``probe``.

Each file is a block of the GPU's, with lines ``ue: 0`` and ``ce: 0``; reading it makes amdgpu ask the GPU.
While a GPU is being reset the text is another (amdgpu_ras_sysfs_read in amdgpu_ras.c).
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import Look, Measurement
from cdigen.vendors.amd.health.causes import UNCORRECTABLE
from cdigen.vendors.kernel.device_files import DEADLINE_S, DeviceFiles, Wanted, read_devices
from cdigen.vendors.kernel.pci_health import sleeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory

_SUFFIX = "_err_count"


def probe(host: Root, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> Look:
    """Count the errors of each GPU of INVENTORY that has such counters and does not sleep."""
    wanted = {}
    for device in inventory.accelerators:
        folder = f"{PCI_DEVICES}/{device.address}/ras"
        files = tuple(f"{folder}/{name}" for name in host.names(folder) if name.endswith(_SUFFIX))
        if files and not sleeps(host, device.address):
            wanted[device.address] = Wanted(files=files)
    told = read_devices(host, wanted, deadline_s=deadline_s)
    return Look(
        source="probe",
        covered=tuple(address for address, files in told.items() if not files.problem),
        measurements=tuple(each for address, files in told.items() for each in _counts(address, files)),
        unread="; ".join(f"{address}: {files.problem}" for address, files in told.items() if files.problem),
    )


def _counts(address: str, files: DeviceFiles) -> Iterator[Measurement]:
    for path, text in files.texts.items():
        block = path.rpartition("/")[2].removesuffix(_SUFFIX)
        values = [line.partition("ue: ")[2] for line in text.splitlines() if line.startswith("ue: ")]
        if len(values) == 1 and values[0].isascii() and values[0].isdigit() and len(values[0]) <= 20:
            yield Measurement(
                cause=UNCORRECTABLE,
                address=address,
                what=f"uncorrectable errors of {block}",
                value=int(values[0]),
                worse="higher",
            )
