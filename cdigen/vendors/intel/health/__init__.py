"""The health of Intel's devices (``HEALTH``), from xe, i915, intel_vpu, habanalabs and the PCI bus."""

from __future__ import annotations

from functools import partial

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import Symptom
from cdigen.value import replace
from cdigen.vendors.base import deferred
from cdigen.vendors.health import VendorHealth
from cdigen.vendors.intel.health.causes import CAUSES, GAUDI_STATUS, LINES, SURVIVABILITY
from cdigen.vendors.intel.presence import GAUDI, GPU
from cdigen.vendors.kernel.driver_lines import concerns, meaning
from cdigen.vendors.kernel.drm import health as drm_health
from cdigen.vendors.kernel.pci import health as pci_health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.health import DeviceEvent, HealthSample, Recovery
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext

# (subsystem, property, value) in a uevent of a driver -> cause or recovery. The functions
# intel_gt_reset_global and ivpu_pm_recovery_work send these events. ivpu_pm_recovery_work sends the same
# event after a successful and after a failed restart of the NPU.
_EVENTS = {
    ("drm", "RESET", "1"): "i915-resetting",
    ("drm", "ERROR", "0"): "reset",
    ("pci", "IVPU_PM_EVENT", "IVPU_RECOVER"): "reset",
}


def check(context: DiscoveryContext, inventory: Inventory) -> HealthSample:
    """Return the health according to sysfs files.

    These files include the status of Gaudis, and the file of xe's survivability mode. The drivers do not
    query the device for these files.
    """
    sample = pci_health.check(context, inventory)
    found = [
        symptom
        for device in inventory.accelerators
        if device.address in sample.covered and (symptom := _symptom(context.host, device))
    ]
    return replace(sample, symptoms=(*sample.symptoms, *found))


def parse_uevents(event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return the symptoms and recoveries in the uevent EVENT of Intel's drivers, DRM or the PCI bus."""
    if event.action == "change" and concerns(event, inventory):
        for name, value in event.properties:
            what = _EVENTS.get((event.subsystem, name, value))
            if what:
                return (meaning(what, event.address, f"the driver reported {name}={value}", event.at_s),)
    return drm_health.parse_uevents(event, inventory)


def _symptom(host: Root, device: Accelerator) -> Symptom | None:
    folder = f"{PCI_DEVICES}/{device.address}"
    if device.device_class == GAUDI:
        return _gaudis(host, device.address, folder)
    # The file exists only in survivability mode (xe_survivability_mode.c). Only root can read the file.
    if device.device_class == GPU and host.exists(f"{folder}/survivability_mode"):
        detail = f"{folder}/survivability_mode exists"
        return Symptom(cause=SURVIVABILITY, address=device.address, detail=detail)
    return None


def _gaudis(host: Root, address: str, folder: str) -> Symptom | None:
    """Return the symptom for the status of the Gaudi at ADDRESS, or None if the status is not a cause.

    The path of the status file depends on the release of the driver.
    """
    for place in (folder, *(f"{folder}/accel/{name}/device" for name in host.names(f"{folder}/accel"))):
        status = read_line(host, f"{place}/status")
        if status:
            cause = GAUDI_STATUS.get(status.lower())
            return Symptom(cause=cause, address=address, detail=f"the status is {status}") if cause else None
    return None


HEALTH = VendorHealth(
    causes=CAUSES,
    # A load of the NPU's driver intel_vpu would be treated as a load of the GPUs' driver.
    modules=("i915", "xe", "habanalabs"),
    check=check,
    parse_log=partial(drm_health.parse_log, lines=LINES),
    parse_uevents=parse_uevents,
    probe=deferred("cdigen.vendors.intel.health.own_state:probe"),
)
