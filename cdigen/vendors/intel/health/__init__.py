"""The health of Intel's GPUs, NPUs and Gaudis: ``HEALTH`` (``vendors.health.VendorHealth``)."""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import Look, Symptom
from cdigen.value import replace
from cdigen.vendors.intel.health.causes import CAUSES, GAUDI_STATUS, LINES, SURVIVABILITY
from cdigen.vendors.intel.presence import GAUDI, GPU
from cdigen.vendors.kernel import driver_lines, drm_health, pci_health
from cdigen.vendors.kernel.driver_lines import concerns, meaning
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.figures import DeviceFigures
    from cdigen.model.health import CauseRule, DeviceEvent, LogRecord, Recovery
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.base import DiscoveryContext

# Properties of the drivers' own uevents -> the cause, or what they clear: intel_gt_reset_global, and
# ivpu_pm_recovery_work, which says so whether the NPU could be started again or not.
_EVENTS = {
    ("drm", "RESET", "1"): "i915-resetting",
    ("drm", "ERROR", "0"): "reset",
    ("pci", "IVPU_PM_EVENT", "IVPU_RECOVER"): "reset",
}
# An NPU's driver is not among them: loading it would be taken for a loading of the GPUs'.
_MODULES = ("i915", "xe", "habanalabs")


class IntelHealth:
    """What xe, i915, intel_vpu, habanalabs and the PCI bus tell of Intel's devices."""

    CAUSES: tuple[CauseRule, ...] = CAUSES

    def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Read what sysfs tells without the device: also Gaudis' status, and failed firmware of xe's GPUs."""
        host = context.host
        seen = pci_health.look_at(host, [device.address for device in inventory.accelerators])
        found = [
            symptom
            for device in inventory.accelerators
            if device.address in seen.covered and (symptom := _symptom(host, device))
        ]
        return replace(seen, symptoms=(*seen.symptoms, *found))

    def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return what a record of the drivers, of DRM or of PCIe means; pure."""
        return (
            driver_lines.heard(record, LINES)
            or drm_health.heard(record, inventory)
            or pci_health.heard(record, inventory)
        )

    def noticed(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
        """Return what a uevent of the drivers, of DRM or of the PCI bus means; pure."""
        if event.action == "change" and concerns(event, inventory):
            for name, value in event.properties:
                what = _EVENTS.get((event.subsystem, name, value))
                if what:
                    return (meaning(what, event.address, f"the driver said {name}={value}", event.at_s),)
        return drm_health.noticed(event, inventory) or pci_health.noticed(event)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        """Read the health that GPUs of xe tell of themselves, for which it asks their firmware."""
        from cdigen.vendors.intel.health.own_state import probe  # noqa: PLC0415 - in ten minutes once

        return probe(context.host, inventory)

    def load(self, context: DiscoveryContext) -> str:
        """Return what is another after each loading of a GPU's or a Gaudi's driver."""
        return " ".join(filter(None, (load_of(context.host, module) for module in _MODULES)))

    def figures(self, context: DiscoveryContext, inventory: Inventory) -> tuple[DeviceFigures, ...]:
        """Read what the drivers show in sysfs and hwmon of each device."""
        from cdigen.vendors.intel.health.figures import figures  # noqa: PLC0415 - only where asked for

        return figures(context.host, inventory)


def _symptom(host: Root, device: Accelerator) -> Symptom | None:
    folder = f"{PCI_DEVICES}/{device.address}"
    if device.device_class == GAUDI:
        return _gaudis(host, device.address, folder)
    # The file is there in that mode only (xe_survivability_mode.c); it is for root.
    if device.device_class == GPU and host.exists(f"{folder}/survivability_mode"):
        detail = f"{folder}/survivability_mode is there"
        return Symptom(cause=SURVIVABILITY, address=device.address, detail=detail)
    return None


def _gaudis(host: Root, address: str, folder: str) -> Symptom | None:
    """Return what the status of the Gaudi at ADDRESS means; where it is depends on the driver's release."""
    for place in (folder, *(f"{folder}/accel/{name}/device" for name in host.names(f"{folder}/accel"))):
        status = read_line(host, f"{place}/status")
        if status:
            cause = GAUDI_STATUS.get(status.lower())
            return Symptom(cause=cause, address=address, detail=f"its status is {status}") if cause else None
    return None


HEALTH = IntelHealth()
