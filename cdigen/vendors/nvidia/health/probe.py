"""Ask NVML and the device nodes whether GPUs can be used: ``probe``.

Only GPUs that somebody keeps awake are asked (``is_kept``). To ask any other starts it, which takes seconds,
costs power, and shows nothing: its state is given up and made anew each time (NVIDIA's "Driver Persistence").
Where that is so, nvidia-persistenced lets the health of idle GPUs be known.

That the driver wants nothing done for a GPU is what clears causes, and not that it answers: "the GPU can be
immediately used again" (NVIDIA's GPU Memory Error Management, "Error Recovery and Response Flags"). It is a
mark in the GPU itself, which only a reset removes (gpuMarkDeviceForReset in NVIDIA's open modules), and which
GPUs have since Pascal (gpuGetResetScratchBit_GP100). Drivers before 555 or so have two flags in the place of
the recovery action. Those before 530, and virtual GPUs, have neither: there only a new loading of the driver,
a reboot or a person clears causes.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.model.health import CauseRule, Look, Measurement, Recovery, Symptom
from cdigen.value import replace
from cdigen.vendors.kernel.opening import unopenable
from cdigen.vendors.nvidia.health.xids import CLEARS_WHEN
from cdigen.vendors.nvidia.nvml.library import library_of
from cdigen.vendors.nvidia.sleep import is_asleep, kernel_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.document import NvmlGpu
    from cdigen.vendors.nvidia.nvml.health import NvmlHealth

_API = "https://docs.nvidia.com/deploy/nvml-api/"
_GONE = "NVML no longer says so"
PROBE_CAUSES = (
    CauseRule(
        cause="recovery-action",
        cleared_by=("gone", "reset", "reload"),
        clears_when=f"{_GONE}; a reset, a driver reload",
        meaning="The driver wants something done for the GPU, which NVML tells.",
        reference=f"{_API} (nvmlDeviceGpuRecoveryAction_t)",
    ),
    CauseRule(
        cause="nvml-gpu-lost",
        cleared_by=("gone", "reset", "reload"),
        clears_when=f"{_GONE}; a reset, a driver reload",
        meaning="NVML says that the GPU is lost, or has to be reset before it can be used.",
        reference=f"{_API} (NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED)",
    ),
    CauseRule(
        cause="ecc-uncorrected",
        cleared_by=("recovered", "reset", "reload"),
        clears_when=CLEARS_WHEN["gpu"],
        meaning="The GPU has counted further ECC errors that it could not correct.",
        reference=f"{_API} (nvmlDeviceGetTotalEccErrors)",
    ),
    CauseRule(
        cause="memory-remap-failed",
        cleared_by=("gone",),
        clears_when=f"the GPU is replaced: {_GONE}",
        meaning="A faulty row of the GPU's memory could not be remapped.",
        reference="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    ),
    CauseRule(
        cause="fabric-not-ready",
        cleared_by=("gone",),
        clears_when=f"nvidia-fabricmanager has made the fabric ready: {_GONE}",
        meaning="The GPU has no part in the NVLink fabric, without which programs cannot use it.",
        reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    ),
    CauseRule(
        cause="node-unusable",
        cleared_by=("gone", "reload"),
        clears_when="the GPU's node can be opened again; a driver reload",
        meaning="The driver refuses to open the GPU's node.",
        reference="https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv.c",
    ),
)

# nvmlDeviceGpuRecoveryAction_t, in the words of Xid 154.
_ACTIONS = {
    1: "GPU reset",
    2: "node reboot",
    3: "drain P2P",
    4: "drain and reset",
    5: "recover the IMEX domain",
    6: "bus reset",
    7: "system reboot",
}
_LOST = (15, 16)  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3  # nvmlGpuFabricState_t
# What one GPU may do to NVML, and how long each is then waited for.
_OF_ONE_GPU = frozenset({"nvml-timeout", "nvml-crashed", "nvml-garbage"})
_ALONE_S = 5.0
# So long after the boot the fabric may still be on its way.
_FABRIC_PATIENCE_S = 600


def probe(context: DiscoveryContext, inventory: Inventory, *, deadline_s: float | None = None) -> Look:
    """Ask of those of INVENTORY's GPUs that are kept awake; DEADLINE_S is NVML's, if another than usual.

    Never raises; ``unread`` says what could not be asked. A GPU that does not answer costs the others nothing
    but time, and keeps its causes.
    """
    kept = {
        gpu.address: _nodes(context, gpu)
        for gpu in inventory.accelerators
        if is_kept(context.host, gpu.address)
    }
    refused, hung = unopenable(path for paths in kept.values() for path in paths)
    asked = tuple(address for address, paths in kept.items() if not set(paths) & set(hung))
    library, silence = library_of(context, inventory)
    is_possible = bool(library)
    told: dict[str | None, NvmlGpu] = {}
    if library and asked:
        told, silence, is_possible = _asked(library, asked, deadline_s)
    is_early = _uptime_s(context.host) < _FABRIC_PATIENCE_S
    looks = [_of_gpu(told[address], is_early=is_early) for address in asked if address in told]
    looks += [
        _of_node(address, refused[path])
        for address, paths in kept.items()
        for path in paths
        if path in refused
    ]
    unread = [look.unread for look in looks]
    unread += [f"{path} could not be opened in time" for path in hung]
    unread += [silence] if is_possible and len(told) < len(asked) else []
    joined = _joined(looks)
    if not is_possible:
        # The nodes are all that a probe tells. What NVML said once lasts, unless it is no longer to be asked.
        joined = replace(joined, covered=asked, only=() if context.nvml == "off" else ("node-unusable",))
    return replace(joined, unread="; ".join(dict.fromkeys(filter(None, unread))))


def _joined(looks: list[Look]) -> Look:
    """Return LOOKS, each at one GPU, in one; one with a symptom has not recovered."""
    unsound = {symptom.address for look in looks for symptom in look.symptoms}
    return Look(
        source="probe",
        covered=tuple(address for look in looks for address in look.covered),
        symptoms=tuple(symptom for look in looks for symptom in look.symptoms),
        recoveries=tuple(
            recovery for look in looks for recovery in look.recoveries if recovery.address not in unsound
        ),
        measurements=tuple(measurement for look in looks for measurement in look.measurements),
    )


def is_kept(host: Root, address: str) -> bool:
    """Return whether something keeps the driver's state of the GPU at ADDRESS, so that asking wakes nothing.

    In this order, as a file is read only where the one before it shows the GPU awake: runtime_status; the
    driver's file ``power`` (Video Memory: Off); its file ``information``, whose reading wakes a GPU, and
    whose Video BIOS has question marks while there is no state (nv-procfs.c; osapi.c: rm_get_vbios_version).
    """
    if is_asleep(host, address):
        return False
    bios = kernel_word(host, address, "information", "Video BIOS")
    return bool(bios) and "?" not in bios


def _uptime_s(host: Root) -> float:
    try:
        return float(read_line(host, "/proc/uptime").partition(" ")[0])
    except ValueError:
        return float("inf")


def _nodes(context: DiscoveryContext, gpu: Accelerator) -> tuple[str, ...]:
    return tuple(context.dev.outer_path(node.path) for node in gpu.nodes if node.role == "gpu")


def _asked(
    library: str, addresses: tuple[str, ...], deadline_s: float | None
) -> tuple[dict[str | None, NvmlGpu], str, bool]:
    """Return what NVML tells of the GPUs at ADDRESSES, why that is not all, and whether it can be asked.

    Where NVML hangs or crashes, each is asked alone: it may be but one of them.
    """
    from cdigen.vendors.nvidia.nvml.ask import DEADLINE_S, MODULE_MISSING, ask  # noqa: PLC0415 - seldom

    answer = ask(library, what=("health",), addresses=addresses, deadline_s=deadline_s or DEADLINE_S)
    if answer.report is not None:
        return {gpu.address: gpu for gpu in answer.report.gpus}, "NVML does not list a GPU", True
    rules = {finding.rule for finding in answer.findings}
    silence = next((finding.message for finding in answer.findings), "NVML is silent")
    if not rules & _OF_ONE_GPU or len(addresses) < 2:
        return {}, silence, MODULE_MISSING not in rules
    alone_s = min(deadline_s or _ALONE_S, _ALONE_S)
    told: dict[str | None, NvmlGpu] = {}
    for address in addresses:
        told |= _asked(library, (address,), alone_s)[0]
    return told, silence, True


def _of_node(address: str, why: str) -> Look:
    symptom = Symptom(
        cause="node-unusable", address=address, detail=f"the GPU's node cannot be opened: {why}"
    )
    return Look(source="probe", symptoms=(symptom,))


def _of_gpu(gpu: NvmlGpu, *, is_early: bool) -> Look:
    """Return what NVML says of GPU; where it fails, but not for a lost GPU, what was wrong before that."""
    address = gpu.address or ""
    health = gpu.health
    error = gpu.error or (health.error if health else None)
    if error is not None and error.code in _LOST:
        symptom = Symptom(cause="nvml-gpu-lost", address=address, detail=f"{error.call} gives {error.name}")
        return Look(source="probe", covered=(address,), symptoms=(symptom,))
    symptoms = tuple(
        Symptom(cause=cause, address=address, detail=detail)
        for cause, detail in (_wrong(health, is_early=is_early) if health else ())
    )
    if error is not None or health is None:
        said = f"{error.call} gives {error.name}" if error else "no health"
        unread = f"NVML does not tell all about {address}: {said}"
        return Look(source="probe", symptoms=symptoms, unread=unread)
    is_content = not symptoms and (health.recovery_action == 0 or health.reset is False)
    detail = "NVML: nothing has to be done for the GPU"
    return Look(
        source="probe",
        covered=(address,),
        symptoms=symptoms,
        recoveries=(Recovery(clearance="recovered", address=address, detail=detail),) if is_content else (),
        measurements=() if health.ecc_uncorrected is None else (_errors(address, health.ecc_uncorrected),),
    )


def _errors(address: str, count: int) -> Measurement:
    what = "uncorrected ECC errors"
    return Measurement(cause="ecc-uncorrected", address=address, what=what, value=count, worse="higher")


def _wrong(health: NvmlHealth, *, is_early: bool) -> Iterator[tuple[str, str]]:
    if action := health.recovery_action:
        yield "recovery-action", f"NVML: {_ACTIONS.get(action, f'recovery action {action}')}"
    if health.reset:
        yield "recovery-action", "NVML: a GPU reset is required"
    elif health.drain_and_reset:
        yield "recovery-action", "NVML: to drain and reset the GPU is recommended"
    if health.remap_failed:
        yield "memory-remap-failed", "NVML: a row of memory could not be remapped"
    if health.fabric_state == _COMPLETED and health.fabric_status:
        yield "fabric-not-ready", f"NVML: the fabric is completed with error {health.fabric_status}"
    elif health.fabric_state in {_NOT_STARTED, _IN_PROGRESS} and not is_early:
        state = "not started" if health.fabric_state == _NOT_STARTED else "in progress"
        yield "fabric-not-ready", f"NVML: the fabric is {state}"
