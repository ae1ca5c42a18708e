"""What may be wrong with AMD's GPUs, and the lines of amdgpu that tell it."""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.drm_health import DRM_CAUSES
from cdigen.vendors.kernel.pci_health import PCI_CAUSES

_DEVICE = "the kernel's drivers/gpu/drm/amd/amdgpu/amdgpu_device.c"
_RAS = "https://docs.kernel.org/gpu/amdgpu/ras.html"
_WHEN_RESET = "the GPU is reset, or its driver is loaded anew"
KFD_LOST, UNCORRECTABLE = "amdgpu-kfd-lost", "amdgpu-uncorrectable-error"
CAUSES = (
    CauseRule(
        cause="amdgpu-resetting",
        cleared_by=("gone", "reload"),
        clears_when="amdgpu says that the reset succeeded, or the driver is loaded anew",
        meaning="The GPU is being reset after it hung.",
        reference=_DEVICE,
    ),
    CauseRule(
        cause="amdgpu-reset-failed",
        cleared_by=("gone", "reset", "reload"),
        clears_when="a later reset succeeds, or the driver is loaded anew",
        meaning="The GPU hung and could not be reset.",
        reference=_DEVICE,
    ),
    CauseRule(
        cause="amdgpu-lost",
        cleared_by=("reset", "reload"),
        clears_when=_WHEN_RESET,
        meaning="The GPU does not answer its driver any more.",
        reference=_DEVICE,
    ),
    CauseRule(
        cause=UNCORRECTABLE,
        cleared_by=("reset", "reload"),
        clears_when=_WHEN_RESET,
        meaning="An error in the GPU's memory or engines could not be corrected.",
        reference=_RAS,
    ),
    CauseRule(
        cause="amdgpu-poison",
        cleared_by=("reset", "reload"),
        clears_when=_WHEN_RESET,
        meaning="A program used data that the hardware had marked as damaged, and the GPU needs a reset.",
        reference="the kernel's drivers/gpu/drm/amd/amdkfd/kfd_int_process_v9.c",
    ),
    CauseRule(
        cause="amdgpu-bad-pages",
        cleared_by=("reload",),
        clears_when="the driver is loaded anew and does not say so again",
        meaning="More of the GPU's memory is damaged than the driver allows: the GPU has to be replaced.",
        reference="https://docs.kernel.org/gpu/amdgpu/module-parameters.html (bad_page_threshold)",
    ),
    CauseRule(
        cause=KFD_LOST,
        cleared_by=("gone",),
        clears_when="KFD lists the GPU again",
        meaning="KFD, the compute side of amdgpu, no longer lists the GPU.",
        reference="the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c",
    ),
    *DRM_CAUSES,
    *PCI_CAUSES,
)


def _line(begins: str, cause: str) -> Line:
    return Line(drivers=("amdgpu",), begins=begins, cause=cause)


# Corrected errors harm nobody and are no cause. A reset of one ring or queue, and a job that is killed,
# concern the program alone.
LINES = (
    # amdgpu_device.c, from Linux 4.16 on: the hardware was reset, and what follows has still to succeed.
    Line(drivers=("amdgpu",), begins="GPU reset succeeded, trying to resume", clears="reset"),
    # All is well again; it is said as well where the job ended after all and nothing was reset.
    Line(drivers=("amdgpu",), begins=r"GPU reset\(\d+\) succeeded", clears="gone"),
    # The source of the hang stands behind it since Linux 6.12.
    _line("GPU reset begin!", "amdgpu-resetting"),
    _line(r"GPU reset\(\d+\) failed|GPU reset end with ret = -\d", "amdgpu-reset-failed"),
    # amdgpu_device_health_check, Linux 5.19
    _line("device lost from bus!", "amdgpu-lost"),
    # amdgpu_ras.c: "socket: 0, die: 1, 2 new uncorrectable ..." of GPUs with several dies, since Linux 6.7
    _line(
        r"(?:socket: \d+, die: \d+, )?[1-9]\d* (?:new )?uncorrectable hardware errors detected"
        # amdgpu_ras_global_ras_isr: not told of which block; a reset follows
        r"|uncorrectable hardware error\(ERREVENT_ATHUB_INTERRUPT\) detected",
        UNCORRECTABLE,
    ),
    # kfd_int_process_v9.c; where the queue could be unmapped, only the program is killed.
    _line(
        # Until Linux 6.8; since then, also of kfd_int_process_v10.c to v12.c, by client or source.
        "RAS poison consumption, fall back to gpu reset"
        r"|poison is consumed by \w+ \d+, kick off gpu reset"
        "|GPU reset for .*RAS poison consumption",
        "amdgpu-poison",
    ),
    # amdgpu_ras_eeprom.c
    _line(
        r"RAS records:\d+ exceed threshold|Saved bad pages ?\(?\d+\)? reaches threshold"
        "|This GPU is in BAD status",
        "amdgpu-bad-pages",
    ),
)
