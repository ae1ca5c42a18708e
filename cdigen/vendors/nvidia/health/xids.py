"""The harm of each Xid, and the rules that clear its cause (``XIDS``, ``RULES``).

docs/reference/health-causes.md has the table. The sources are the catalogs in NVIDIA's "Xid Errors". The
current catalog is for Ampere and newer GPUs, with the immediate actions RESTART_APP, IGNORE, RESET_GPU and
RESTART_BM. The archived catalog is for older GPUs.

For the Xids 63 and 94, the current catalog permits applications to continue, and recommends a reset at a
convenient time. Therefore, the harm is ``gpu``. For the Xid 64, the catalog recommends a reset of the GPU. If
this Xid occurs, NVIDIA's GPU Memory Error Management recommends a replacement.

A number that is in neither catalog makes the GPU unhealthy (``UNKNOWN``), as in NVIDIA's device plugin for
Kubernetes. The reason is that an idle healthy GPU costs less than the allocation of a broken GPU. The cause
is cleared when the driver requires no action.

If the driver reports an Xid for a MIG instance, the Xid applies to that instance only. An Xid with ``whole``
always applies to the whole GPU.
"""

from __future__ import annotations

from cdigen.model.health import CauseRule
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from cdigen.model.health import Clearance

    # With "application", only the program must restart. "nothing" means no harm. With "gpu", no program
    # should start on the GPU until the driver requires no action. With "reset", "reboot" and "service", the
    # GPU needs at least this action.
    Harm = Literal["application", "nothing", "gpu", "reset", "reboot", "service"]

CATALOG = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
ARCHIVE = "https://docs.nvidia.com/deploy/xid-errors/archive/index.html"
PLUGIN = "https://github.com/NVIDIA/k8s-device-plugin, internal/rm/health.go"


@frozen
class Xid:
    """An Xid.

    ``meaning`` is a short form of NVIDIA's text. ``reference`` is the source. ``whole`` is true if the Xid
    applies to the whole GPU.
    """

    number: int
    meaning: str
    harm: Harm
    reference: str
    whole: bool

    @property
    def cause(self) -> str:
        """The name of the Xid's cause (``xid-79``)."""
        return f"xid-{self.number}"


# An exception of an engine for decoding, encoding or copying ends only the application that used the engine.
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
    (154, "gpu", "The driver requires a recovery action for the GPU"),
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
    (171, "reset", "Uncorrectable error of DRAM, together with an Xid 48"),
    (172, "reset", "Uncorrectable error of SRAM, together with an Xid 48"),
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
# For Xid 109, NVIDIA's catalog recommends a reset of the GPU. NVIDIA's plugin ignores Xid 109 since 0.17.1,
# because slow applications cause it. If the GPU needs a reset, the driver reports an Xid 154.
_OF_PLUGIN: tuple[tuple[int, Harm, str], ...] = ((109, "application", "Context switch timeout"),)
# Xids that apply to the whole GPU, even if the log contains a MIG instance. All instances share the links,
# the firmware and the bus. Uncontained errors also affect all instances.
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

# These events clear every Xid cause, independent of the harm, because the driver reports the real state.
CLEARED_BY: tuple[Clearance, ...] = ("recovered", "reset", "reload")
_NO_ACTION = "the driver requires no recovery action and no error follows"
CLEARS_WHEN = {
    "gpu": f"{_NO_ACTION}; a reset, a driver reload",
    "reset": f"a reset, a driver reload; or {_NO_ACTION}",
    "reboot": f"a reboot, a reset, a driver reload; or {_NO_ACTION}",
    "service": f"repair or replacement; a reset, a driver reload; or {_NO_ACTION}",
}


def harms_gpu(xid: Xid) -> bool:
    """Return whether XID is a cause. An Xid that harms nothing, or only an application, is not a cause."""
    return xid.harm in CLEARS_WHEN


def _rule(cause: str, meaning: str, harm: Harm, reference: str) -> CauseRule:
    return CauseRule(
        cause=cause,
        cleared_by=CLEARED_BY,
        clears_when=CLEARS_WHEN[harm],
        meaning=meaning,
        reference=reference,
        next_step="repair or replace the GPU; a reset may help until then" if harm == "service" else "",
    )


RULES: tuple[CauseRule, ...] = (
    *(_rule(xid.cause, f"{xid.meaning}.", xid.harm, xid.reference) for xid in XIDS if harms_gpu(xid)),
    _rule(UNKNOWN, "An Xid that is in neither of NVIDIA's catalogs.", "gpu", PLUGIN),
    _rule(
        DRIVER_INIT,
        "The driver cannot initialise the GPU.",
        "reset",
        "https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv.c",
    ),
    _rule(
        UVM,
        "The driver's unified memory has a fatal error: no program on any GPU can continue.",
        "reboot",
        "https://github.com/NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/rmapi/nv_gpu_ops.c",
    ),
    # The event "recovered" does not clear this cause, because the state of a GPU does not show the state of
    # the switch.
    CauseRule(
        cause=NVSWITCH,
        cleared_by=("reset", "reload"),
        clears_when="a reset that an Xid 154 reports, a driver reload",
        meaning="An NVSwitch has a fatal error: the NVSwitch and its GPUs must be reset together.",
        reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    ),
)
