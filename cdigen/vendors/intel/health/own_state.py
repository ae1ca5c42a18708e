"""Read the health that GPUs of xe tell of themselves: ``probe``.

``gpu_health`` is ok, warning or critical; reading it makes xe ask the GPU's firmware (the kernel's
Documentation/ABI/testing/sysfs-driver-intel-xe-ras, Linux 7.3).
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import Look, Symptom
from cdigen.vendors.intel.health.causes import HEALTH_CRITICAL
from cdigen.vendors.kernel.device_files import DEADLINE_S, Wanted, read_devices
from cdigen.vendors.kernel.pci_health import sleeps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory


def probe(host: Root, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> Look:
    """Ask each GPU of INVENTORY that tells its health and does not sleep."""
    addresses = [device.address for device in inventory.accelerators]
    paths = {address: f"{PCI_DEVICES}/{address}/gpu_health" for address in addresses}
    wanted = {
        address: Wanted(files=(path,))
        for address, path in paths.items()
        if host.exists(path) and not sleeps(host, address)
    }
    told = read_devices(host, wanted, deadline_s=deadline_s)
    answers = {address: files.texts.get(paths[address], "").strip() for address, files in told.items()}
    states = {address: state for address, state in answers.items() if state}
    return Look(
        source="probe",
        covered=tuple(states),
        symptoms=tuple(
            Symptom(cause=HEALTH_CRITICAL, address=address, detail=f"{paths[address]} says {state}")
            for address, state in states.items()
            if state == "critical"
        ),
        unread="; ".join(f"{address}: {files.problem}" for address, files in told.items() if files.problem),
    )
