"""Query NVML and open device nodes to find GPUs that cannot be used (``probe``).

cdigen queries only GPUs whose driver state another program keeps (``is_kept``). A query of any other GPU
would start the GPU. The start takes seconds and costs power. The query has no useful result, because the
driver discards the state after each use (NVIDIA's "Driver Persistence"). If nvidia-persistenced runs, cdigen
also finds the health of idle GPUs.

A cause is cleared when the driver requires no recovery action: "the GPU can be immediately used again"
(NVIDIA's GPU Memory Error Management, "Error Recovery and Response Flags"). A response of the GPU does not
clear a cause. The GPU stores the required action itself, and only a reset removes the action
(gpuMarkDeviceForReset in NVIDIA's open modules). Pascal and newer GPUs store the action
(gpuGetResetScratchBit_GP100). Drivers before about 555 report two flags instead of the recovery action. For
drivers before 530 and virtual GPUs, NVML reports no action and no flags. In these two cases, only a reload of
the driver, a reboot or an administrator clears causes.
"""

from __future__ import annotations

from cdigen.host.procfs import read_line
from cdigen.model.health import CauseRule, HealthSample, Measurement, Recovery, Symptom
from cdigen.value import replace
from cdigen.vendors.kernel.opening import unopenable
from cdigen.vendors.nvidia.health.xids import CLEARS_WHEN
from cdigen.vendors.nvidia.nvml.readiness import is_suspended, kernel_word, library_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.nvidia.nvml.document import NvmlError, NvmlGpu, NvmlHealth

_API = "https://docs.nvidia.com/deploy/nvml-api/"
_GONE = "NVML no longer reports the problem"
PROBE_CAUSES = (
    CauseRule(
        cause="recovery-action",
        cleared_by=("gone", "reset", "reload"),
        clears_when=f"{_GONE}; a reset, a driver reload",
        meaning="The driver requires a recovery action for the GPU, as NVML reports.",
        reference=f"{_API} (nvmlDeviceGpuRecoveryAction_t)",
    ),
    CauseRule(
        cause="nvml-gpu-lost",
        cleared_by=("gone", "reset", "reload"),
        clears_when=f"{_GONE}; a reset, a driver reload",
        meaning="NVML reports that the GPU is lost or must be reset before use, or returns no handle of it.",
        reference=f"{_API} (NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED, NVML_ERROR_UNKNOWN)",
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
        next_step="replace the GPU",
    ),
    CauseRule(
        cause="fabric-not-ready",
        cleared_by=("gone",),
        clears_when=f"nvidia-fabricmanager has made the fabric ready: {_GONE}",
        meaning="The GPU has not joined the NVLink fabric, and programs cannot use it without the fabric.",
        reference="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
        next_step="restart the fabric manager: 'systemctl restart nvidia-fabricmanager'",
    ),
    CauseRule(
        cause="node-unusable",
        cleared_by=("gone", "reload"),
        clears_when="the GPU's node can be opened again; a driver reload",
        meaning="The driver refuses to open the GPU's node.",
        reference="https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv.c",
    ),
)

# Value of nvmlDeviceGpuRecoveryAction_t -> text in the line of an Xid 154.
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
# Without a handle, no program can use the GPU: nvidia-smi prints "Unable to determine the device handle for
# GPU: Unknown Error", and NVIDIA's legacy hook fails for all GPUs (volcano-vgpu-device-plugin issue 123).
_HANDLE, _UNKNOWN = "nvmlDeviceGetHandle", 999
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3  # nvmlGpuFabricState_t
# A single GPU may cause these failures of the whole query. cdigen then queries each GPU separately, with the
# time limit _ALONE_S in seconds.
_OF_ONE_GPU = frozenset({"nvml-timeout", "nvml-crashed", "nvml-invalid-output"})
_ALONE_S = 5.0
# In seconds. After the boot, the NVLink fabric may need this time to start.
_FABRIC_GRACE_S = 600


def probe(
    context: DiscoveryContext, inventory: Inventory, *, deadline_s: float | None = None
) -> HealthSample:
    """Return the health of the GPUs in INVENTORY whose driver state is kept; raise no exception.

    DEADLINE_S is the time limit for NVML in seconds. ``unread`` of the result contains the failed queries. A
    GPU that does not answer keeps its causes. It delays the queries of other GPUs, but does not prevent them.
    """
    kept = {
        gpu.address: _nodes(context, gpu)
        for gpu in inventory.accelerators
        if is_kept(context.host, gpu.address)
    }
    refused, hung = unopenable(path for paths in kept.values() for path in paths)
    addresses_to_query = tuple(address for address, paths in kept.items() if not set(paths) & set(hung))
    library, unavailable_reason = library_of(context, inventory)
    is_possible = bool(library)
    replies: dict[str | None, NvmlGpu] = {}
    if library and addresses_to_query:
        replies, unavailable_reason, is_possible = _query(library, addresses_to_query, deadline_s)
    is_early = _uptime_s(context.host) < _FABRIC_GRACE_S
    samples = [
        _of_gpu(replies[address], is_early=is_early) for address in addresses_to_query if address in replies
    ]
    samples += [
        _of_node(address, refused[path])
        for address, paths in kept.items()
        for path in paths
        if path in refused
    ]
    unread = [sample.unread for sample in samples]
    unread += [f"{path} could not be opened before the deadline" for path in hung]
    unread += [unavailable_reason] if is_possible and len(replies) < len(addresses_to_query) else []
    joined = _joined(samples)
    if not is_possible:
        # The probe opened only the nodes. Causes from NVML remain. If the configuration switches NVML off,
        # these causes are cleared.
        joined = replace(
            joined, covered=addresses_to_query, only=() if context.nvml == "off" else ("node-unusable",)
        )
    return replace(joined, unread="; ".join(dict.fromkeys(filter(None, unread))))


def _joined(samples: list[HealthSample]) -> HealthSample:
    """Return one sample with the content of SAMPLES, except recoveries of GPUs with symptoms."""
    unsound = {symptom.address for sample in samples for symptom in sample.symptoms}
    return HealthSample(
        source="probe",
        covered=tuple(address for sample in samples for address in sample.covered),
        symptoms=tuple(symptom for sample in samples for symptom in sample.symptoms),
        recoveries=tuple(
            recovery
            for sample in samples
            for recovery in sample.recoveries
            if recovery.address not in unsound
        ),
        measurements=tuple(measurement for sample in samples for measurement in sample.measurements),
    )


def is_kept(host: Root, address: str) -> bool:
    """Return whether another program keeps the driver state of the GPU at ADDRESS.

    If the state is kept, a query does not resume the GPU. The function reads runtime_status, then the
    driver's file ``power`` (Video Memory: Off), then the driver's file ``information``. It stops at the first
    file that shows a suspended GPU, because a read of ``information`` resumes the GPU. Without a driver
    state, the Video BIOS in ``information`` has question marks (nv-procfs.c; osapi.c: rm_get_vbios_version).
    """
    if is_suspended(host, address):
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


def _query(
    library: str, addresses: tuple[str, ...], deadline_s: float | None
) -> tuple[dict[str | None, NvmlGpu], str, bool]:
    """Return NVML's entries for the GPUs at ADDRESSES, a problem, and whether NVML can be queried.

    The problem is the reason why entries are missing. If NVML hangs or crashes, the function queries each GPU
    separately, because a single GPU may be the cause.
    """
    from cdigen.vendors.nvidia.nvml.query import DEADLINE_S, MODULE_MISSING, query  # noqa: PLC0415 - rarely used

    answer = query(library, what=("health",), addresses=addresses, deadline_s=deadline_s or DEADLINE_S)
    if answer.report is not None:
        return {gpu.address: gpu for gpu in answer.report.gpus}, "NVML does not list a GPU", True
    rules = {finding.rule for finding in answer.findings}
    unavailable_reason = next((finding.message for finding in answer.findings), "NVML does not answer")
    if not rules & _OF_ONE_GPU or len(addresses) < 2:
        return {}, unavailable_reason, MODULE_MISSING not in rules
    alone_s = min(deadline_s or _ALONE_S, _ALONE_S)
    replies: dict[str | None, NvmlGpu] = {}
    for address in addresses:
        replies |= _query(library, (address,), alone_s)[0]
    return replies, unavailable_reason, True


def _of_node(address: str, why: str) -> HealthSample:
    symptom = Symptom(
        cause="node-unusable", address=address, detail=f"the GPU's node cannot be opened: {why}"
    )
    return HealthSample(source="probe", symptoms=(symptom,))


def _of_gpu(gpu: NvmlGpu, *, is_early: bool) -> HealthSample:
    """Return the health of a GPU. The argument GPU is NVML's entry of this GPU.

    If NVML reports a lost GPU, the result has the cause ``nvml-gpu-lost``. After any other failure, the
    result has only the symptoms that NVML reported before the failure.
    """
    address = gpu.address or ""
    health = gpu.health
    error = gpu.error or (health.error if health else None)
    if error is not None and _is_lost(error):
        symptom = Symptom(
            cause="nvml-gpu-lost", address=address, detail=f"{error.call} returned {error.name}"
        )
        return HealthSample(source="probe", covered=(address,), symptoms=(symptom,))
    symptoms = tuple(
        Symptom(cause=cause, address=address, detail=detail)
        for cause, detail in (_wrong(health, is_early=is_early) if health else ())
    )
    if error is not None or health is None:
        unread = (
            f"NVML call failed for {address}: {error.call} returned {error.name}"
            if error
            else f"NVML reports no health of {address}"
        )
        return HealthSample(source="probe", symptoms=symptoms, unread=unread)
    has_recovered = not symptoms and (health.recovery_action == 0 or health.reset is False)
    detail = "NVML: the GPU requires no recovery action"
    recovery = Recovery(clearance="recovered", address=address, detail=detail)
    count, what = health.ecc_uncorrected, "uncorrected ECC errors"
    return HealthSample(
        source="probe",
        covered=(address,),
        symptoms=symptoms,
        recoveries=(recovery,) if has_recovered else (),
        measurements=()
        if count is None
        else (Measurement(cause="ecc-uncorrected", address=address, what=what, value=count, worse="higher"),),
    )


def _is_lost(error: NvmlError) -> bool:
    return error.code in _LOST or (error.code == _UNKNOWN and error.call.startswith(_HANDLE))


def _wrong(health: NvmlHealth, *, is_early: bool) -> Iterator[tuple[str, str]]:
    if action := health.recovery_action:
        yield "recovery-action", f"NVML: {_ACTIONS.get(action, f'recovery action {action}')}"
    if health.reset:
        yield "recovery-action", "NVML: a GPU reset is required"
    elif health.drain_and_reset:
        yield "recovery-action", "NVML: a drain and reset of the GPU is recommended"
    if health.remap_failed:
        yield "memory-remap-failed", "NVML: a row of memory could not be remapped"
    if health.fabric_state == _COMPLETED and health.fabric_status:
        yield "fabric-not-ready", f"NVML: the fabric registration ended with error {health.fabric_status}"
    elif health.fabric_state in {_NOT_STARTED, _IN_PROGRESS} and not is_early:
        state = "not started" if health.fabric_state == _NOT_STARTED else "in progress"
        yield "fabric-not-ready", f"NVML: the fabric registration is {state}"
