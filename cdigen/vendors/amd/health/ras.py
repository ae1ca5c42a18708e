"""Read the error counters of RAS (``probe``).

RAS (reliability, availability, serviceability) is the GPU's detection of hardware errors. Each file
``ras/<block>_err_count`` of a GPU has the counters of one block, in lines such as ``ue: 0`` and ``ce: 0``.
When the file is read, amdgpu queries the GPU. During a reset of the GPU, the file has another text
instead (amdgpu_ras_sysfs_read in amdgpu_ras.c).
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import HealthSample, Measurement
from cdigen.vendors.amd.health.causes import UNCORRECTABLE
from cdigen.vendors.kernel.device_files import DEADLINE_S, DeviceFiles, FilesToRead, read_devices
from cdigen.vendors.kernel.pci.health import is_suspended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

_SUFFIX = "_err_count"


def probe(context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> HealthSample:
    """Return the number of errors of each GPU in INVENTORY that has counters and is not suspended."""
    host = context.host
    requests = {}
    for device in inventory.accelerators:
        folder = f"{PCI_DEVICES}/{device.address}/ras"
        files = tuple(f"{folder}/{name}" for name in host.names(folder) if name.endswith(_SUFFIX))
        if files and not is_suspended(host, device.address):
            requests[device.address] = FilesToRead(files=files)
    results = read_devices(host, requests, deadline_s=deadline_s)
    return HealthSample(
        source="probe",
        covered=tuple(address for address, files in results.items() if not files.problem),
        measurements=tuple(each for address, files in results.items() for each in _counts(address, files)),
        unread="; ".join(
            f"{address}: {files.problem}" for address, files in results.items() if files.problem
        ),
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
