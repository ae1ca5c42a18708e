"""What any DRM driver tells of its devices' health: that one is wedged, and that a driver took one anew.

``heard`` is for the kernel's log, ``noticed`` for its uevents; a vendor's CAUSES has ``DRM_CAUSES``.
"""

from __future__ import annotations

import re

from cdigen.model.health import CauseRule, Recovery
from cdigen.vendors.kernel import driver_lines
from cdigen.vendors.kernel.driver_lines import ADDRESS, Line, concerns, has_device, meaning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.health import DeviceEvent, LogRecord, Symptom
    from cdigen.model.inventory import Inventory

DRM_CAUSES = (
    CauseRule(
        cause="drm-wedged",
        cleared_by=("reset", "reload"),
        clears_when="the device is reset, or its driver is bound to it anew",
        meaning="The driver cannot recover the device, and blocks it.",
        reference="https://docs.kernel.org/gpu/drm-uapi.html#device-wedging",
    ),
)
_DRIVERS = ("amdgpu", "amdxdna", "i915", "xe", "intel_vpu")
# drm_dev_wedged_event in drivers/gpu/drm/drm_drv.c, Linux 6.15. That it "recovered through reset" is said of
# one ring as well (amdgpu_job_timedout), so it clears nothing.
_LINES = (Line(drivers=_DRIVERS, begins="device wedged, needs recovery", cause="drm-wedged"),)
# drm_dev_register there; with a date until Linux 6.13, and before 6.11 without the device in front.
_INITIALIZED = re.compile(
    rf"(?:\S+ {ADDRESS}: )?\[drm\] Initialized \S+ [\d.]+ (?:\d+ )?for (?P<address>{ADDRESS}) on minor \d+$"
)


def heard(record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return what RECORD, if it is DRM's own, means for a device of INVENTORY; pure."""
    found = _INITIALIZED.match(record.text)
    if found is None:
        told = driver_lines.heard(record, _LINES)
        return tuple(one for one in told if has_device(inventory, one.address))
    # It may have been unbound before, so that discovery has not found it yet.
    return (Recovery(clearance="reload", address=found["address"], detail=record.text, at_s=record.at_s),)


def noticed(event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:
    """Return what EVENT means for a device of INVENTORY: it is wedged; pure.

    ``WEDGED=none`` says that the driver has helped itself, be it by the reset of one ring.
    """
    wedged = dict(event.properties).get("WEDGED")
    is_of_drm = (event.subsystem, event.action) == ("drm", "change")
    if wedged in {None, "", "none"} or not is_of_drm or not concerns(event, inventory):
        return ()
    return (meaning("drm-wedged", event.address, f"the kernel said WEDGED={wedged}", event.at_s),)
