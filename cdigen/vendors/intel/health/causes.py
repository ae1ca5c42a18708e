"""What may be wrong with Intel's GPUs, NPUs and Gaudis, and the drivers' lines that tell it."""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.drm_health import DRM_CAUSES
from cdigen.vendors.kernel.pci_health import PCI_CAUSES

_I915 = "the kernel's drivers/gpu/drm/i915/gt/intel_reset.c"
_XE = "https://docs.kernel.org/gpu/xe/xe_device.html"
_IVPU = "the kernel's drivers/accel/ivpu/ivpu_pm.c"
_GAUDI = "the kernel's Documentation/ABI/testing/sysfs-driver-habanalabs"
_REBOUND = "the driver is bound to the device anew"
_STATUS = "the driver's status of the device is another"
SURVIVABILITY, HEALTH_CRITICAL = "xe-survivability", "xe-health-critical"
# status of habanalabs -> the cause; "operational" is none, nor is what it does by itself after each program.
# Up to Linux 5.14 the words were "Malfunction" and "In reset".
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
        meaning="xe has given the GPU up, and blocks it.",
        reference=_XE,
    ),
    CauseRule(
        cause=SURVIVABILITY,
        cleared_by=("gone",),
        clears_when="the GPU has its firmware again, and leaves survivability mode",
        meaning="The GPU's firmware has failed, and has to be written anew.",
        reference=_XE,
    ),
    CauseRule(
        cause=HEALTH_CRITICAL,
        cleared_by=("gone",),
        clears_when="the GPU's own health state (gpu_health) is another",
        meaning="The GPU says of itself that it is in a critical state.",
        reference=_XE,
    ),
    CauseRule(
        cause="i915-resetting",
        cleared_by=("reset", "reload", "quiet"),
        clears_when="the reset succeeds, or it has been quiet for a while",
        meaning="The whole GPU is being reset after it hung.",
        reference=_I915,
    ),
    CauseRule(
        cause="i915-wedged",
        cleared_by=("reset", "reload"),
        clears_when=f"a later reset succeeds, or {_REBOUND}",
        meaning="The GPU hung and could not be reset: i915 has given it up.",
        reference=_I915,
    ),
    CauseRule(
        cause="ivpu-recovering",
        cleared_by=("reset", "reload", "quiet"),
        clears_when="the driver has reset the NPU, or it has been quiet for a while",
        meaning="The NPU hung and is being reset.",
        reference=_IVPU,
    ),
    CauseRule(
        cause="ivpu-failed",
        cleared_by=("reload", "quiet"),
        clears_when=f"{_REBOUND}, or it has been quiet for a while",
        meaning="The NPU could not be started: each program that uses it makes the driver try again.",
        reference=_IVPU,
    ),
    CauseRule(
        cause="gaudi-disabled",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi could not be reset, and cannot be used.",
        reference=_GAUDI,
    ),
    CauseRule(
        cause="gaudi-needs-reset",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi cannot be used until somebody resets it.",
        reference=_GAUDI,
    ),
    CauseRule(
        cause="gaudi-in-reset",
        cleared_by=("gone",),
        clears_when=_STATUS,
        meaning="The Gaudi is being reset.",
        reference=_GAUDI,
    ),
    *DRM_CAUSES,
    *PCI_CAUSES,
)
# A hang of one program ("GPU HANG: ecode", "Resetting rcs0 for", "Timedout job") is the program's: the engine
# is reset, and others go on. The error state that i915 keeps of it is large, slow to read, and says no more.
LINES = (
    # xe_device_declare_wedged, Linux 6.10; more lines follow in the record.
    Line(drivers=("xe",), begins="CRITICAL: Xe has declared device", cause="xe-wedged"),
    # intel_gt_reset and intel_wedge_me
    Line(
        drivers=("i915",),
        begins="Failed to reset chip|Failed to initialise HW following reset|GPU reset not supported"
        r"|\w+ timed out, cancelling all in-flight rendering",
        cause="i915-wedged",
    ),
    # VPU until Linux 6.8
    Line(drivers=("intel_vpu",), begins="Recovering the [NV]PU", cause="ivpu-recovering"),
    # ivpu_resume, ivpu_rpm_get, ivpu_pm_runtime_resume_cb; "Retrying cold boot.." is no failure yet.
    Line(
        drivers=("intel_vpu",),
        begins=r"Failed to (?:resume (?:[NV]PU|the FW)|set RESUME state|power up HW)(?!.*\. Retrying)",
        cause="ivpu-failed",
    ),
)
