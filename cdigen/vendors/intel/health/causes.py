"""The causes of unhealthy Intel GPUs, NPUs and Gaudis, and the drivers' log lines that report them."""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.drm.health import DRM_CAUSES, WAIT_FOR_RESET
from cdigen.vendors.kernel.pci.health import PCI_CAUSES

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
