"""The health of AMD's GPUs and NPUs (``HEALTH``), from amdgpu, KFD and the PCI bus.

``probe`` reads the error counters of RAS (reliability, availability, serviceability), which is the GPU's
detection of hardware errors. Each file ``ras/<block>_err_count`` of a GPU has the counters of one block, in
lines such as ``ue: 0`` and ``ce: 0``. When the file is read, amdgpu queries the GPU. During a reset of the
GPU, the file has another text instead (amdgpu_ras_sysfs_read in amdgpu_ras.c).
"""

from __future__ import annotations

from functools import partial

from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.health import CauseRule, HealthSample, Measurement
from cdigen.value import replace
from cdigen.vendors.health import VendorHealth
from cdigen.vendors.kernel.device_files import DEADLINE_S, DeviceFiles, FilesToRead, problems, read_devices
from cdigen.vendors.kernel.driver_lines import Line
from cdigen.vendors.kernel.drm import health as drm_health
from cdigen.vendors.kernel.drm.health import DRM_CAUSES, WAIT_FOR_RESET
from cdigen.vendors.kernel.nodes import all_nodes
from cdigen.vendors.kernel.pci import health as pci_health
from cdigen.vendors.kernel.pci.health import PCI_CAUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

_SUFFIX = "_err_count"
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


def check(context: DiscoveryContext, inventory: Inventory) -> HealthSample:
    """Return the health according to KFD, and according to sysfs files.

    amdgpu does not query the GPU for these files. KFD is not read again: a GPU in INVENTORY has the node
    /dev/kfd only if KFD lists the GPU.
    """
    sample = pci_health.check(context, inventory)
    computing = (
        Measurement(
            cause=KFD_LOST,
            address=device.address,
            what="KFD nodes",
            value=int(any(node.role == "control" for node in all_nodes(device))),
            worse="lower",
        )
        for device in inventory.accelerators
        if device.address in sample.covered
    )
    return replace(sample, measurements=(*sample.measurements, *computing))


def probe(context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S) -> HealthSample:
    """Return the number of errors of each GPU in INVENTORY that has counters and is not suspended."""
    host = context.host
    requests = {}
    for device in inventory.accelerators:
        folder = f"{PCI_DEVICES}/{device.address}/ras"
        files = tuple(f"{folder}/{name}" for name in host.names(folder) if name.endswith(_SUFFIX))
        if files and not pci_health.is_suspended(host, device.address):
            requests[device.address] = FilesToRead(files=files)
    results = read_devices(host, requests, deadline_s=deadline_s)
    return HealthSample(
        source="probe",
        covered=tuple(address for address, files in results.items() if not files.problem),
        measurements=tuple(each for address, files in results.items() for each in _counts(address, files)),
        unread=problems(results),
    )


def _counts(address: str, files: DeviceFiles) -> Iterator[Measurement]:
    for path, text in files.texts.items():
        block = path.rpartition("/")[2].removesuffix(_SUFFIX)
        values = [line.partition("ue: ")[2] for line in text.splitlines() if line.startswith("ue: ")]
        if len(values) == 1 and values[0].isascii() and values[0].isdigit() and len(values[0]) <= 20:
            yield Measurement(
                cause=UNCORRECTABLE,
                address=address,
                what=f"uncorrectable errors of {block}",
                value=int(values[0]),
                worse="higher",
            )


HEALTH = VendorHealth(
    causes=CAUSES,
    modules=("amdgpu",),
    check=check,
    parse_log=partial(drm_health.parse_log, lines=LINES),
    parse_uevents=drm_health.parse_uevents,
    probe=probe,
)
