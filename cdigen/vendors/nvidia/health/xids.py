"""The Xids: what each harms, and with it what clears it (``XIDS``, ``RULES``); docs/health.md has the table.

Sources are NVIDIA's "Xid Errors": the catalog for Ampere and newer (its immediate actions RESTART_APP,
IGNORE, RESET_GPU, RESTART_BM), and the archived one for older GPUs. Of 63 and 94 the catalog lets
applications go on, and recommends a reset when it is convenient: it becomes so when nothing new is started.
For 64 it resets the GPU; NVIDIA's GPU Memory Error Management then has it replaced.
A number that is in neither takes the GPU out (``UNKNOWN``): so does NVIDIA's device plugin for Kubernetes,
and to hand out a broken GPU costs more than to leave a sound one idle until the driver is content.

An Xid that the driver tells of a MIG instance is that instance's, but for those of the ``whole`` GPU.
"""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.model.health import Clearance

    # application: only who ran there has to start anew. nothing: a note. gpu: nobody should start there until
    # the driver is content. reset, reboot, service: what the GPU needs, at least.
    Harm = Literal["application", "nothing", "gpu", "reset", "reboot", "service"]

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
ARCHIVE = "https://docs.nvidia.com/deploy/xid-errors/archive/index.html"
PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin, internal/rm/health.go"


@frozen
class Xid:
    """One number: its meaning in NVIDIA's words, shortened, what it harms, where that is from."""

    number: int
    meaning: str
    harm: Harm
    reference: str
    whole: bool

    @property
    def cause(self) -> str:
        """The name of its cause (``xid-79``)."""
        return f"xid-{self.number}"


# Engines that decode, encode, copy: their exceptions end the application that used them.
_ENGINES = (
    ("Copy engine exception", (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    ("Video decoder exception", (68, 83, 84, 88, 89, 96, 97, 98)),
    ("Video encoder exception", (142,)),
    ("Video processor exception", (60,)),
    ("JPEG decoder exception", (82, *range(99, 106))),
    ("Optical flow engine exception", (86, 139)),
)
_OLD_ENGINES = (
    ("Video processor exception", (20, 21, 22, 27, 28, 29, 33, 34, 35, 36, 42)),
    ("Video encoder exception", (47, 65, 73)),
)
_OF_CATALOG: tuple[tuple[int, Harm, str], ...] = (
    (8, "application", "GPU stopped processing"),
    (11, "application", "Invalid or corrupted push buffer stream"),
    (13, "application", "Graphics engine exception"),
    (14, "nothing", "Injected error"),
    (25, "application", "Invalid or illegal push buffer stream"),
    (31, "application", "GPU memory page fault"),
    (32, "application", "Invalid or corrupted push buffer stream"),
    (37, "nothing", "Driver firmware error"),
    (38, "nothing", "Driver firmware error"),
    (43, "application", "GPU stopped processing, for an error of the application"),
    (44, "application", "Graphics engine fault during a context switch"),
    (45, "application", "Preemptive cleanup after an earlier error"),
    (46, "reset", "GPU stopped processing"),
    (48, "reset", "Double bit ECC error"),
    (54, "service", "Auxiliary power is not connected to the board"),
    (62, "reset", "Internal micro-controller halt"),
    (63, "gpu", "A memory row is marked for remapping, or a page for retirement"),
    (64, "service", "A memory row could not be remapped, or a page not be retired"),
    (66, "nothing", "Illegal access by the driver"),
    (67, "nothing", "Illegal access by the driver"),
    (69, "application", "Graphics engine class error"),
    (74, "reset", "NVLink error"),
    (78, "nothing", "vGPU start error"),
    (79, "reboot", "GPU has fallen off the bus"),
    (80, "application", "Corrupted data sent to the GPU"),
    (92, "nothing", "High rate of single bit ECC errors, which are corrected"),
    (93, "nothing", "InfoROM wear limit"),
    (94, "gpu", "Contained memory error"),
    (95, "reset", "Uncontained memory error"),
    (106, "nothing", "SMBPBI test message"),
    (107, "nothing", "SMBPBI test message"),
    (108, "nothing", "NVLink remote translation error"),
    (110, "reset", "Security fault"),
    (119, "reset", "GSP RPC timeout"),
    (120, "reset", "GSP error"),
    (121, "nothing", "C2C error, corrected"),
    (136, "reset", "NVLink training failed"),
    (137, "application", "NVLink privilege error"),
    (140, "reset", "ECC error that was not recovered"),
    (141, "nothing", "CUDA fast path error"),
    (143, "reset", "GPU initialization error"),
    (144, "gpu", "NVLink: SAW error"),
    (145, "gpu", "NVLink: RLW error"),
    (146, "gpu", "NVLink: TLW error"),
    (147, "gpu", "NVLink: TREX error"),
    (148, "gpu", "NVLink: NVLPW_CTRL error"),
    (149, "reset", "NVLink: NETIR error"),
    (150, "gpu", "NVLink: MSE error"),
    (151, "reboot", "Key rotation error"),
    (152, "nothing", "DLA SMMU error"),
    (153, "nothing", "DLA timeout"),
    (154, "gpu", "The driver wants something done for the GPU"),
    (155, "reset", "NVLink: error defined by software"),
    (156, "reset", "A resource is retired"),
    (157, "nothing", "A resource could not be retired"),
    (158, "reset", "Fatal timeout of the GPU"),
    (159, "gpu", "CHI error without data"),
    (160, "nothing", "A memory channel is retired"),
    (161, "nothing", "A memory channel could not be retired"),
    (162, "nothing", "Power smoothing engaged again"),
    (163, "nothing", "Power smoothing disengaged"),
    (164, "nothing", "Power smoothing: low lifetime"),
    (165, "nothing", "Power smoothing: lifetime is over"),
    (166, "gpu", "NVLink traffic before its encryption"),
    (167, "reset", "Fatal PCIe timeout"),
    (168, "gpu", "Less GPU memory: errors in protected memory"),
    (169, "reset", "Internal micro-controller halt (SEC2)"),
    (170, "gpu", "NVLink interrupt in confidential computing"),
    (171, "reset", "Uncorrectable error of DRAM, beside an Xid 48"),
    (172, "reset", "Uncorrectable error of SRAM, beside an Xid 48"),
    *((number, "application", meaning) for meaning, numbers in _ENGINES for number in numbers),
)
_OF_ARCHIVE: tuple[tuple[int, Harm, str], ...] = (
    (16, "nothing", "Display engine hung"),
    (18, "reset", "Bus mastering disabled in the PCI config space"),
    (19, "nothing", "Display engine error"),
    (24, "gpu", "GPU semaphore timeout"),
    (26, "reset", "Framebuffer timeout"),
    (30, "gpu", "GPU semaphore access error"),
    (56, "nothing", "Display engine error"),
    (57, "reset", "Error programming the video memory interface"),
    (58, "reset", "Unstable video memory interface"),
    (59, "reset", "Internal micro-controller error"),
    (61, "reset", "Internal micro-controller breakpoint"),
    (81, "nothing", "VGA subsystem error"),
    *((number, "application", meaning) for meaning, numbers in _OLD_ENGINES for number in numbers),
)
# NVIDIA's catalog would reset the GPU for it. Its plugin passes it over since 0.17.1: slow applications cause
# it, and where a reset is needed the driver says so by an Xid 154.
_OF_PLUGIN: tuple[tuple[int, Harm, str], ...] = ((109, "application", "Context switch timeout"),)
# Whatever instance of MIG they are told of: the link, the firmware, the bus and what was not contained are
# those of all.
_WHOLE = frozenset(
    {18, 46, 54, 57, 58, 59, 61, 62, 74, 79, 95, 110, 119, 120, 136, 140, 143, *range(144, 152)}
    | {154, 155, 158, 159, 166, 167, 168, 169, 170}
)

XIDS = tuple(
    Xid(number=number, meaning=meaning, harm=harm, reference=reference, whole=number in _WHOLE)
    for number, harm, meaning, reference in sorted(
        (*row, reference)
        for rows, reference in ((_OF_CATALOG, CATALOG), (_OF_ARCHIVE, ARCHIVE), (_OF_PLUGIN, PLUGIN))
        for row in rows
    )
)
BY_NUMBER = {xid.number: xid for xid in XIDS}

UNKNOWN = "xid-unknown"
DRIVER_INIT = "driver-init-failed"
NVSWITCH = "nvswitch-fatal"
UVM = "uvm-fatal"

# What clears the cause of an Xid, whatever its harm: the driver itself knows best what is left to be done.
CLEARED_BY: tuple[Clearance, ...] = ("recovered", "reset", "reload")
_CONTENT = "the driver wants nothing done and it stays quiet"
CLEARS_WHEN = {
    "gpu": f"{_CONTENT}; a reset, a driver reload",
    "reset": f"a reset, a driver reload; or {_CONTENT}",
    "reboot": f"a reboot, a reset, a driver reload; or {_CONTENT}",
    "service": f"repair or replacement; a reset, a driver reload; or {_CONTENT}",
}


def harms_gpu(xid: Xid) -> bool:
    """Return whether XID is a cause: what harms an application alone, or nothing, is none."""
    return xid.harm in CLEARS_WHEN


def _rule(cause: str, meaning: str, harm: Harm, reference: str) -> CauseRule:
    return CauseRule(
        cause=cause,
        cleared_by=CLEARED_BY,
        clears_when=CLEARS_WHEN[harm],
        meaning=meaning,
        reference=reference,
    )


RULES: tuple[CauseRule, ...] = (
    *(_rule(xid.cause, f"{xid.meaning}.", xid.harm, xid.reference) for xid in XIDS if harms_gpu(xid)),
    _rule(UNKNOWN, "An Xid that cdigen does not know.", "gpu", PLUGIN),
    _rule(
        DRIVER_INIT,
        "The driver cannot initialise the GPU.",
        "reset",
        "https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv.c",
    ),
    _rule(
        UVM,
        "The driver's unified memory has met a fatal error, which no program on any GPU survives.",
        "reboot",
        "https://github.com/NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/rmapi/nv_gpu_ops.c",
    ),
    # That a GPU is content says nothing of the switch.
    CauseRule(
        cause=NVSWITCH,
        cleared_by=("reset", "reload"),
        clears_when="a reset that an Xid 154 tells, a driver reload",
        meaning="An NVSwitch has a fatal error: the GPUs that it joins have to be reset with it.",
        reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    ),
)
