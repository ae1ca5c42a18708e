"""Detect wedged DRM devices, and devices that a driver initialized again, in the kernel's log and uevents.

A device is wedged if its driver cannot recover the device and blocks it. ``parse_log`` reads the log,
``parse_uevents`` reads uevents. A vendor's causes include ``DRM_CAUSES`` and ``pci_health.PCI_CAUSES``.
"""

from __future__ import annotations

import re

from cdigen.model.health import CauseRule, Recovery
from cdigen.vendors.kernel import driver_lines
from cdigen.vendors.kernel.driver_lines import ADDRESS, Line, concerns, has_device, meaning
from cdigen.vendors.kernel.pci import health as pci_health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.health import DeviceEvent, LogRecord, Symptom
    from cdigen.model.inventory import Inventory

# The next step for causes that the driver clears by a reset.
WAIT_FOR_RESET = "wait for the end of the reset; if it does not end, reboot the host"
DRM_CAUSES = (
    CauseRule(
        cause="drm-wedged",
        cleared_by=("reset", "reload"),
        clears_when="the device is reset, or its driver is bound to it again",
        meaning="The driver cannot recover the device, and blocks it.",
        reference="https://docs.kernel.org/gpu/drm-uapi.html#device-wedging",
    ),
)
_DRIVERS = ("amdgpu", "amdxdna", "i915", "xe", "intel_vpu")
# drm_wedged_event in drivers/gpu/drm/drm_drv.c, Linux 6.15, logs this line. The line "recovered through
# reset" is not a recovery, because amdgpu (amdgpu_job_timedout) also logs it after the reset of one ring.
_LINES = (Line(drivers=_DRIVERS, begins="device wedged, needs recovery", cause="drm-wedged"),)
# drm_dev_register in the same file logs this line. Until Linux 6.13, the line contains a date. Before 6.11,
# the line does not begin with the device.
_INITIALIZED = re.compile(
    rf"(?:\S+ {ADDRESS}: )?\[drm\] Initialized \S+ [\d.]+ (?:\d+ )?for (?P<address>{ADDRESS}) on minor \d+$"
)


def parse_log(
    record: LogRecord, inventory: Inventory, *, lines: Iterable[Line]
) -> tuple[Symptom | Recovery, ...]:
    """Return the symptoms and recoveries in RECORD, which a driver with LINES, DRM or PCIe logged."""
    return (
        driver_lines.parse_log(record, lines)
        or _parse_drm(record, inventory)
        or pci_health.parse_log(record, inventory)
    )


def _parse_drm(record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    found = _INITIALIZED.match(record.text)
    if found is None:
        found_by_line = driver_lines.parse_log(record, _LINES)
        return tuple(one for one in found_by_line if has_device(inventory, one.address))
    # If the driver was bound again, the device may not be in the inventory yet.
    return (Recovery(clearance="reload", address=found["address"], detail=record.text, at_s=record.at_s),)


def parse_uevents(event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return a symptom if EVENT reports that a device of INVENTORY is wedged, or the recovery of the PCI bus.

    ``WEDGED=none`` is not a symptom, because the driver has already recovered the device. For example, the
    driver has reset one ring.
    """
    wedged = dict(event.properties).get("WEDGED")
    is_of_drm = (event.subsystem, event.action) == ("drm", "change")
    if wedged in {None, "", "none"} or not is_of_drm or not concerns(event, inventory):
        return pci_health.parse_uevents(event, inventory)
    return (meaning("drm-wedged", event.address, f"the kernel reported WEDGED={wedged}", event.at_s),)
