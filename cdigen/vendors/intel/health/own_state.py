"""Read the health that GPUs of xe report (``probe``).

The file ``gpu_health`` contains ok, warning or critical. When the file is read, xe queries the GPU's firmware
(the kernel's Documentation/ABI/testing/sysfs-driver-intel-xe-ras, Linux 7.3).
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import HealthSample, Symptom
from cdigen.vendors.intel.health.causes import HEALTH_CRITICAL
from cdigen.vendors.kernel.device_files import DEADLINE_S, FilesToRead, read_devices
from cdigen.vendors.kernel.pci.health import is_suspended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext


def probe(context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> HealthSample:
    """Return the health of each GPU in INVENTORY that reports its health and is not suspended."""
    host = context.host
    addresses = [device.address for device in inventory.accelerators]
    paths = {address: f"{PCI_DEVICES}/{address}/gpu_health" for address in addresses}
    requests = {
        address: FilesToRead(files=(path,))
        for address, path in paths.items()
        if host.exists(path) and not is_suspended(host, address)
    }
    results = read_devices(host, requests, deadline_s=deadline_s)
    answers = {address: files.texts.get(paths[address], "").strip() for address, files in results.items()}
    states = {address: state for address, state in answers.items() if state}
    return HealthSample(
        source="probe",
        covered=tuple(states),
        symptoms=tuple(
            Symptom(cause=HEALTH_CRITICAL, address=address, detail=f"{paths[address]} is {state}")
            for address, state in states.items()
            if state == "critical"
        ),
        unread="; ".join(
            f"{address}: {files.problem}" for address, files in results.items() if files.problem
        ),
    )
