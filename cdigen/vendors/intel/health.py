"""The health of Intel's devices (``HEALTH``), from xe, i915, intel_vpu, habanalabs and the PCI bus.

``probe`` reads the file ``gpu_health`` of GPUs of xe, which contains ok, warning or critical. When the file
is read, xe queries the GPU's firmware (the kernel's Documentation/ABI/testing/sysfs-driver-intel-xe-ras,
Linux 7.3).
"""

from __future__ import annotations

from functools import partial

from cdigen.host.procfs import read_line
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import CauseRule, HealthSample, Symptom
from cdigen.value import replace
from cdigen.vendors.health import VendorHealth
from cdigen.vendors.intel.presence import GAUDI, GPU
from cdigen.vendors.kernel.device_files import DEADLINE_S, FilesToRead, problems, read_devices
from cdigen.vendors.kernel.driver_lines import Line, concerns, meaning
from cdigen.vendors.kernel.drm import health as drm_health
from cdigen.vendors.kernel.drm.health import DRM_CAUSES, WAIT_FOR_RESET
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.kernel.pci.health import PCI_CAUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.health import DeviceEvent, Recovery
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext

_I915 = "the kernel's drivers/gpu/drm/i915/gt/intel_reset.c"
_XE = "https://docs.kernel.org/gpu/xe/xe_device.html"
_IVPU = "the kernel's drivers/accel/ivpu/ivpu_pm.c"
_GAUDI = "the kernel's Documentation/ABI/testing/sysfs-driver-habanalabs"
_REBOUND = "the driver is bound to the device again"
_STATUS = "the driver's status of the device changes"
SURVIVABILITY, HEALTH_CRITICAL = "xe-survivability", "xe-health-critical"
# Status of habanalabs in lower case -> cause. "operational" is not a cause. "in reset after device release",
# the status after each program, is also not a cause. Up to Linux 5.14, the words were "Malfunction" and "In
# reset".
GAUDI_STATUS = {
    "disabled": "gaudi-disabled",
    "malfunction": "gaudi-disabled",
    "needs reset": "gaudi-needs-reset",
    "in reset": "gaudi-in-reset",
}
CAUSES = (
    CauseRule(
        cause="xe-wedged",
        cleared_by=("reload",),
        clears_when=_REBOUND,
        meaning="xe cannot recover the GPU, and blocks it.",
        reference=_XE,
    ),
    CauseRule(
        cause=SURVIVABILITY,
        cleared_by=("gone",),
        clears_when="the GPU has its firmware again, and leaves survivability mode",
        meaning="The GPU's firmware is broken, and must be flashed again.",
        reference=_XE,
        next_step="flash the GPU's firmware ('xpu-smi updatefw', or fwupd), then reboot the host",
    ),
    CauseRule(
        cause=HEALTH_CRITICAL,
        cleared_by=("gone",),
        clears_when="the GPU's own health state (gpu_health) changes",
        meaning="The GPU reports a critical state.",
        reference=_XE,
        next_step="reboot the host; if the state stays critical, replace the GPU",
    ),
    CauseRule(
        cause="i915-resetting",
        cleared_by=("reset", "reload", "clear_after"),
        clears_when="the reset succeeds, or no error follows for a while",
        meaning="The whole GPU is being reset after it hung.",
        reference=_I915,
        next_step=WAIT_FOR_RESET,
    ),
    CauseRule(
        cause="i915-wedged",
        cleared_by=("reset", "reload"),
        clears_when=f"a later reset succeeds, or {_REBOUND}",
        meaning="The GPU hung and could not be reset: i915 blocks it.",
        reference=_I915,
    ),
    CauseRule(
        cause="ivpu-recovering",
        cleared_by=("reset", "reload", "clear_after"),
        clears_when="the driver has reset the NPU, or no error follows for a while",
        meaning="The NPU hung and is being reset.",
        reference=_IVPU,
        next_step=WAIT_FOR_RESET,
    ),
    CauseRule(
        cause="ivpu-failed",
        cleared_by=("reload", "clear_after"),
        clears_when=f"{_REBOUND}, or no error follows for a while",
        meaning="The NPU could not be started: each program that uses it makes the driver try again.",
        reference=_IVPU,
    ),
    CauseRule(
        cause="gaudi-disabled",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi could not be reset, and cannot be used.",
        reference=_GAUDI,
        next_step="reboot the host; if the Gaudi stays disabled, replace it",
    ),
    CauseRule(
        cause="gaudi-needs-reset",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi cannot be used until it is reset.",
        reference=_GAUDI,
        next_step="write 1 into hard_reset of the device in /sys/class/accel, or reboot the host",
    ),
    CauseRule(
        cause="gaudi-in-reset",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi is being reset.",
        reference=_GAUDI,
        next_step=WAIT_FOR_RESET,
    ),
    *DRM_CAUSES,
    *PCI_CAUSES,
)
# The hang of a program ("GPU HANG: ecode", "Resetting rcs0 for", "Timedout job") is not a cause. The driver
# resets the engine, and other programs continue. cdigen does not read i915's error state, because it is
# large, slow to read, and has no further information.
LINES = (
    # xe_device_declare_wedged, Linux 6.10. The record has further lines.
    Line(drivers=("xe",), begins="CRITICAL: Xe has declared device", cause="xe-wedged"),
    # intel_gt_reset and intel_wedge_me
    Line(
        drivers=("i915",),
        begins="Failed to reset chip|Failed to initialise HW following reset|GPU reset not supported"
        r"|\w+ timed out, cancelling all in-flight rendering",
        cause="i915-wedged",
    ),
    # Until Linux 6.8, the line contains VPU instead of NPU.
    Line(drivers=("intel_vpu",), begins="Recovering the [NV]PU", cause="ivpu-recovering"),
    # ivpu_resume, ivpu_rpm_get, ivpu_pm_runtime_resume_cb. A line with "Retrying cold boot.." is not a
    # failure.
    Line(
        drivers=("intel_vpu",),
        begins=r"Failed to (?:resume (?:[NV]PU|the FW)|set RESUME state|power up HW)(?!.*\. Retrying)",
        cause="ivpu-failed",
    ),
)
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


def probe(context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> HealthSample:
    """Return the health of each GPU in INVENTORY that reports its health and is not suspended."""
    host = context.host
    addresses = [device.address for device in inventory.accelerators]
    paths = {address: f"{PCI_DEVICES}/{address}/gpu_health" for address in addresses}
    requests = {
        address: FilesToRead(files=(path,))
        for address, path in paths.items()
        if host.exists(path) and not pci_health.is_suspended(host, address)
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
        unread=problems(results),
    )


HEALTH = VendorHealth(
    causes=CAUSES,
    # A load of the NPU's driver intel_vpu would be treated as a load of the GPUs' driver.
    modules=("i915", "xe", "habanalabs"),
    check=check,
    parse_log=partial(drm_health.parse_log, lines=LINES),
    parse_uevents=parse_uevents,
    probe=probe,
)
