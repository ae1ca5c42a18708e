"""GPUs that are shared by memory: ``share_memory`` makes units of each GPU's own memory.

Pure. gpushare takes the first GPU's size for all (gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go); here
each GPU has its own. It is offered whole or in units, never both. Ids carry the GPU, as gpushare's do, so the
kubelet's books say for certain which GPU a container has.
"""

from __future__ import annotations

import hashlib

from cdigen.kubelet.resources.model import Resource, Unit
from cdigen.kubelet.resources.naming import MAX_ID, finding
from cdigen.kubelet.resources.selection import is_any_of
from cdigen.model.findings import Finding
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.config import SharedMemory
    from cdigen.kubelet.resources.naming import Candidate

# Between the GPU and the number of a unit, as gpushare has it (generateFakeDeviceID of that file).
MARK = "-_-"
# What gRPC takes in one message by default (``offer``), and a device in it besides its id: tags and lengths,
# "Unhealthy", and a NUMA node of up to five bytes.
_MAX_MESSAGE = 4 << 20
_PER_UNIT = 26
_MIB = {"MiB": 1, "GiB": 1024}
_DIGITS = 7
_MAX_GPU = MAX_ID - len(MARK) - _DIGITS
_DIGEST = 12
_CLASS = "gpu"
_NVIDIA = "nvidia"


@frozen
class MemoryGpu:
    """A GPU that is offered in units: ``index`` is that of its vendor's tools, and of annotations.

    ``id`` begins the ids of its ``units``; ``uuid`` is its lasting name.
    """

    index: int
    id: str
    uuid: str
    units: int
    is_healthy: bool


@frozen
class MemoryOffer:
    """GPUs in units of ``unit_mib`` each, as ``resource``; ``taken`` are the ids of their candidates."""

    resource: Resource
    unit_mib: int
    gpus: tuple[MemoryGpu, ...] = ()
    taken: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def gpu_of(self, id_: str) -> MemoryGpu | None:
        """Return the GPU whose unit has the id ID_; None: it is none of ours."""
        owner, mark, number = id_.rpartition(MARK)
        if not mark or not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
            return None
        found = next((gpu for gpu in self.gpus if gpu.id == owner), None)
        return found if found and int(number) < found.units and unit_id(owner, int(number)) == id_ else None


def unit_mib(text: str) -> int:
    """Return the MiB of a unit: ``GiB``, ``MiB``, or either with a number before it. ValueError: neither."""
    size = _MIB.get(text[-3:])
    number = text[:-3] or "1"
    if size is None or not (number.isascii() and number.isdecimal()) or not 0 < int(number) <= 1 << 20:
        raise ValueError(f"{text[:40]!r} is no size of a unit")
    return int(number) * size


def unit_id(gpu: str, number: int) -> str:
    """Return the id of unit NUMBER, from 0, of the GPU whose ids begin with GPU."""
    return f"{gpu}{MARK}{number}"


def share_memory(candidates: Iterable[Candidate], settings: SharedMemory) -> MemoryOffer:
    """Return those of CANDIDATES that SETTINGS mean in units; nothing is raised.

    A GPU without a unit's memory, or whose memory nobody knows, is in no resource, with a finding.
    """
    wanted = unit_mib(settings.unit)
    found: list[Finding] = []
    chosen = _chosen(candidates, settings, found)
    sizes = [candidate.device.accelerator.memory_mib or 0 for candidate in chosen]
    size = _fitting([_gpu_id(candidate) for candidate in chosen], sizes, wanted)
    if size != wanted:
        found.append(_raised(settings, wanted, size))
    units: list[Unit] = []
    gpus: list[MemoryGpu] = []
    for candidate, mib in zip(chosen, sizes, strict=True):
        count = mib // size
        if not count:
            found.append(_without_unit(candidate, mib, size))
        made = _units(candidate, count)
        units += made
        if made:
            gpus.append(_memory_gpu(candidate, made))
    return MemoryOffer(
        resource=Resource(name=settings.resource, units=tuple(units)),
        unit_mib=size,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        taken=frozenset(candidate.id for candidate in chosen),
        findings=tuple(found),
    )


def _chosen(
    candidates: Iterable[Candidate], settings: SharedMemory, found: list[Finding]
) -> tuple[Candidate, ...]:
    """Return the whole GPUs of one vendor that SETTINGS mean: of two, annotations could not tell indices."""
    meant = [
        each
        for each in candidates
        if each.device.accelerator.device_class == _CLASS
        and each.device.partition is None
        and (not settings.devices or is_any_of(settings.devices, each))
    ]
    whole = [each for each in meant if not each.is_split]
    # That of GPUs with memory of their own: beside them a processor's own GPU has none.
    sized = [each for each in whole if each.device.accelerator.memory_mib]
    vendor = next((each.device.vendor for each in (*sized, *whole)), "")
    chosen = []
    for each in meant:
        if each.is_split:
            if settings.devices:
                found.append(_left_out(each, "it is split into partitions, which are not shared by memory"))
        elif each.device.vendor != vendor:
            text = f"annotations know GPUs by their index, which one of {vendor} has as well"
            found.append(_left_out(each, text))
        elif settings.mps and vendor != _NVIDIA:
            found.append(_left_out(each, "MPS is NVIDIA's alone"))
        else:
            chosen.append(each)
    return tuple(chosen)


def _fitting(gpus: Sequence[str], sizes: Sequence[int], wanted: int) -> int:
    """Return WANTED MiB, doubled until a list of all units is one that the kubelet reads."""
    size = wanted
    while True:
        total = 0
        for gpu, mib in zip(gpus, sizes, strict=True):
            count = mib // size
            total += count * (len(gpu) + len(MARK) + len(str(count)) + _PER_UNIT)
        if total <= _MAX_MESSAGE:
            return size
        size *= 2


def _gpu_id(candidate: Candidate) -> str:
    """Return what ids of CANDIDATE's units begin with; one that is too long has a digest."""
    if len(candidate.id) <= _MAX_GPU:
        return candidate.id
    digest = hashlib.sha256(candidate.id.encode()).hexdigest()[:_DIGEST]
    return f"{candidate.id[: _MAX_GPU - _DIGEST - 1]}-{digest}"


def _units(candidate: Candidate, count: int) -> list[Unit]:
    device, gpu = candidate.device, _gpu_id(candidate)
    names = candidate.cdi_names[:1]
    health = device.health if names and device.usable else "unhealthy"
    return [
        Unit(
            id=unit_id(gpu, number),
            health=health,
            numa=device.accelerator.numa_node,
            accelerator=device.accelerator,
            replica=number,
            cdi_names=names,
        )
        for number in range(count)
    ]


def _memory_gpu(candidate: Candidate, units: Sequence[Unit]) -> MemoryGpu:
    gpu = candidate.device.accelerator
    return MemoryGpu(
        index=gpu.index,
        id=_gpu_id(candidate),
        uuid=gpu.uuid or gpu.address,
        units=len(units),
        is_healthy=units[0].health != "unhealthy",
    )


def _raised(settings: SharedMemory, wanted: int, size: int) -> Finding:
    text = (
        f"{settings.resource} is in units of {size} MiB, not {wanted}: the kubelet reads "
        f"{_MAX_MESSAGE} bytes of a list, and pods ask for so many of these units"
    )
    hint = f"set 'kubelet: {{shared_memory: {{unit: {size}MiB}}}}', or a larger one"
    return Finding(
        severity="warning", rule="shared-memory-unit", path=settings.resource, message=text, hint=hint
    )


def _without_unit(candidate: Candidate, mib: int, size: int) -> Finding:
    if mib:
        text = f"is not offered: it has {mib} MiB, and a unit is {size} MiB"
        return finding("warning", "shared-memory-unit", candidate.device, text)
    text = "is not offered: it is to be shared by memory, and nobody tells how much it has"
    hint = "name other GPUs in 'kubelet: {shared_memory: {devices}}'"
    if candidate.device.vendor == _NVIDIA:
        hint = f"let the daemon ask the driver's library ('nvml', with the Python module pynvml), or {hint}"
    return finding("error", "shared-memory-unknown", candidate.device, text, hint)


def _left_out(candidate: Candidate, reason: str) -> Finding:
    return finding(
        "warning", "shared-memory-left-out", candidate.device, f"is not shared by memory: {reason}"
    )
