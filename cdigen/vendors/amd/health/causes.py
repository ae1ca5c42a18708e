"""The causes of unhealthy AMD GPUs, and the log lines of amdgpu that report them."""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.drm.health import DRM_CAUSES, WAIT_FOR_RESET
from cdigen.vendors.kernel.pci.health import PCI_CAUSES

_DEVICE = "the kernel's drivers/gpu/drm/amd/amdgpu/amdgpu_device.c"
_RAS = "https://docs.kernel.org/gpu/amdgpu/ras.html"
_WHEN_RESET = "the GPU is reset, or its driver is loaded again"
KFD_LOST, UNCORRECTABLE = "amdgpu-kfd-lost", "amdgpu-uncorrectable-error"
CAUSES = (
    CauseRule(
        cause="amdgpu-resetting",
        cleared_by=("gone", "reload"),
        clears_when="amdgpu logs that the reset succeeded, or the driver is loaded again",
        meaning="The GPU is being reset after it hung.",
        reference=_DEVICE,
        next_step=WAIT_FOR_RESET,
    ),
    CauseRule(
        cause="amdgpu-reset-failed",
        cleared_by=("gone", "reset", "reload"),
        clears_when="a later reset succeeds, or the driver is loaded again",
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
        clears_when="the driver is loaded again and does not log the error again",
        meaning="More of the GPU's memory is damaged than the driver allows: the GPU has to be replaced.",
        reference="https://docs.kernel.org/gpu/amdgpu/module-parameters.html (bad_page_threshold)",
        next_step="replace the GPU",
    ),
    CauseRule(
        cause=KFD_LOST,
        cleared_by=("gone",),
        clears_when="KFD lists the GPU again",
        meaning="KFD, the compute side of amdgpu, no longer lists the GPU.",
        reference="the kernel's drivers/gpu/drm/amd/amdkfd/kfd_topology.c",
        next_step="see 'dmesg | grep -e kfd -e amdgpu'; load amdgpu again, or reboot the host",
    ),
    *DRM_CAUSES,
    *PCI_CAUSES,
)


def _line(begins: str, cause: str) -> Line:
    return Line(drivers=("amdgpu",), begins=begins, cause=cause)


# Corrected errors are not a cause, because they have no effect. The reset of a ring or queue and the end of a
# job are not a cause, because they affect only one program.
LINES = (
    # amdgpu_device.c, from Linux 4.16 on. The hardware was reset. The following steps must still succeed.
    Line(drivers=("amdgpu",), begins="GPU reset succeeded, trying to resume", clears="reset"),
    # The GPU is healthy again. amdgpu also logs this line if the job ended and no reset was needed.
    Line(drivers=("amdgpu",), begins=r"GPU reset\(\d+\) succeeded", clears="gone"),
    # Since Linux 6.12, the line continues with the source of the hang.
    _line("GPU reset begin!", "amdgpu-resetting"),
    _line(r"GPU reset\(\d+\) failed|GPU reset end with ret = -\d", "amdgpu-reset-failed"),
    # amdgpu_device_health_check, Linux 5.19
    _line("device lost from bus!", "amdgpu-lost"),
    # amdgpu_ras.c. Since Linux 6.7, the line for GPUs with several dies is "socket: 0, die: 1, 2 new
    # uncorrectable ...".
    _line(
        r"(?:socket: \d+, die: \d+, )?[1-9]\d* (?:new )?uncorrectable hardware errors detected"
        # amdgpu_ras_global_ras_isr. The line does not contain a block. A reset follows.
        r"|uncorrectable hardware error\(ERREVENT_ATHUB_INTERRUPT\) detected",
        UNCORRECTABLE,
    ),
    # kfd_int_process_v9.c. If the queue can be unmapped, the driver only kills the program.
    _line(
        # The first pattern is for Linux until 6.8. The other patterns are for later kernels. Their lines
        # contain the client or the source. kfd_int_process_v10.c to v12.c also log these lines.
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
