"""``share_memory`` divides the GPUs that are shared by memory into memory units. No I/O.

gpushare uses the size of the first GPU for all GPUs (gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go). In
cdigen, each GPU has its own size. A GPU is advertised whole or in memory units, never both. As in gpushare,
the id of a unit contains the GPU. So the kubelet's record of ids has the GPU of each container.
"""

from __future__ import annotations

import hashlib

from cdigen.kubelet.resources.model import MAX_ID, MAX_MESSAGE, MEMORY, Resource, Unit, numbered
from cdigen.kubelet.resources.naming import finding
from cdigen.kubelet.resources.selection import is_any_of
from cdigen.model.findings import Finding
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cdigen.config import SharedMemory
    from cdigen.kubelet.resources.naming import NamingCandidate

# The bytes of a device without its id: tags and lengths, "Unhealthy", and a NUMA node of up to five bytes.
_PER_UNIT = 26
_MIB = {"MiB": 1, "GiB": 1024}
_DIGITS = 7
_MAX_GPU = MAX_ID - len(MEMORY) - _DIGITS
_DIGEST = 12
_CLASS = "gpu"


@frozen
class MemoryGpu:
    """A GPU that is advertised in memory units.

    ``index`` is the GPU's index in the vendor's tools and in annotations. ``units`` is the number of units.
    The ids of the units begin with ``id``. ``uuid`` is the UUID, or the PCI address of a GPU without a UUID.
    """

    index: int
    id: str
    uuid: str
    units: int
    is_healthy: bool


@frozen
class AdvertisedMemory:
    """The GPUs that are advertised as ``resource``, in units of ``unit_mib`` MiB.

    ``candidate_ids`` are the ids of the corresponding ``NamingCandidate`` values.
    """

    resource: Resource
    unit_mib: int
    gpus: tuple[MemoryGpu, ...] = ()
    candidate_ids: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def gpu_of(self, id_: str) -> MemoryGpu | None:
        """Return the GPU whose unit has the id ID_, or None if there is no such unit."""
        owner, mark, number = id_.rpartition(MEMORY)
        if not mark or not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
            return None
        found = next((gpu for gpu in self.gpus if gpu.id == owner), None)
        return found if found and int(number) < found.units and unit_id(owner, int(number)) == id_ else None


def unit_mib(text: str) -> int:
    """Return the size of the unit TEXT in MiB.

    TEXT is ``GiB`` or ``MiB``, optionally with a number in front. Raise ValueError for any other text.
    """
    size = _MIB.get(text[-3:])
    number = text[:-3] or "1"
    if size is None or not (number.isascii() and number.isdecimal()) or not 0 < int(number) <= 1 << 20:
        raise ValueError(f"{text[:40]!r} is not a unit size")
    return int(number) * size


def unit_id(gpu: str, number: int) -> str:
    """Return the id of the memory unit NUMBER (counted from 0); GPU is the ``id`` of a ``MemoryGpu``."""
    return f"{gpu}{MEMORY}{number}"


def share_memory(candidates: Iterable[NamingCandidate], settings: SharedMemory) -> AdvertisedMemory:
    """Return the GPUs of CANDIDATES that SETTINGS select, in memory units; raise nothing.

    If the memory of a GPU is unknown or smaller than a unit, the GPU is in no resource and has a finding.
    """
    configured = unit_mib(settings.unit)
    found: list[Finding] = []
    chosen = _chosen(candidates, settings, found)
    sizes = [candidate.device.accelerator.memory_mib or 0 for candidate in chosen]
    size = _fitting([gpu_id(candidate) for candidate in chosen], sizes, configured)
    if size != configured:
        found.append(_raised(settings, configured, size))
    units: list[Unit] = []
    gpus: list[MemoryGpu] = []
    for candidate, mib in zip(chosen, sizes, strict=True):
        count = mib // size
        if not count:
            found.append(_without_unit(candidate, mib, size))
        made = numbered(replace(candidate.unit(), id=gpu_id(candidate)), MEMORY, count)
        units += made
        if made:
            gpus.append(_memory_gpu(candidate, made))
    return AdvertisedMemory(
        resource=Resource(name=settings.resource, units=tuple(units), by_mps=settings.mps, is_memory=True),
        unit_mib=size,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        candidate_ids=frozenset(candidate.id for candidate in chosen),
        findings=tuple(found),
    )


def _chosen(
    candidates: Iterable[NamingCandidate], settings: SharedMemory, found: list[Finding]
) -> tuple[NamingCandidate, ...]:
    """Return the whole GPUs of one vendor that SETTINGS select, and add findings on unsuitable GPUs to FOUND.

    All GPUs must be of one vendor, because annotations have GPU indices without vendors.
    """
    selected = [
        each
        for each in candidates
        if each.device.accelerator.device_class == _CLASS
        and each.device.partition is None
        and (not settings.devices or is_any_of(settings.devices, each))
    ]
    whole = [each for each in selected if not each.is_split]
    # The vendor of GPUs with their own memory has precedence over the vendor of an integrated GPU.
    sized = [each for each in whole if each.device.accelerator.memory_mib]
    vendor = next((each.device.vendor for each in (*sized, *whole)), "")
    chosen = []
    for each in selected:
        if each.is_split:
            if settings.devices:
                found.append(_left_out(each, "partitions are not shared by memory"))
        elif each.device.vendor != vendor:
            text = f"annotations name a GPU only by its index, and a GPU of {vendor} may have the same index"
            found.append(_left_out(each, text))
        elif settings.mps and not each.names.supports_mps:
            found.append(_left_out(each, "MPS supports NVIDIA's devices only"))
        else:
            chosen.append(each)
    return tuple(chosen)


def _fitting(gpus: Sequence[str], sizes: Sequence[int], configured: int) -> int:
    """Return the unit size in MiB: CONFIGURED, doubled until the kubelet can read the list of all units."""
    size = configured
    while True:
        total = 0
        for gpu, mib in zip(gpus, sizes, strict=True):
            count = mib // size
            total += count * (len(gpu) + len(MEMORY) + len(str(count)) + _PER_UNIT)
        if total <= MAX_MESSAGE:
            return size
        size *= 2


def gpu_id(candidate: NamingCandidate) -> str:
    """Return the start of the ids of CANDIDATE's units; a long start is cut and ends in a digest."""
    if len(candidate.id) <= _MAX_GPU:
        return candidate.id
    digest = hashlib.sha256(candidate.id.encode()).hexdigest()[:_DIGEST]
    return f"{candidate.id[: _MAX_GPU - _DIGEST - 1]}-{digest}"


def _memory_gpu(candidate: NamingCandidate, units: Sequence[Unit]) -> MemoryGpu:
    gpu = candidate.device.accelerator
    return MemoryGpu(
        index=gpu.index,
        id=gpu_id(candidate),
        uuid=gpu.uuid or gpu.address,
        units=len(units),
        is_healthy=units[0].health != "unhealthy",
    )


def _raised(settings: SharedMemory, configured: int, size: int) -> Finding:
    text = (
        f"{settings.resource}: a unit is {size} MiB, not {configured} MiB, because the kubelet reads at most "
        f"{MAX_MESSAGE} bytes of a list; pods request units of {size} MiB"
    )
    hint = f"set 'kubelet: {{shared_memory: {{unit: {size}MiB}}}}', or a larger unit"
    return Finding(
        severity="warning", rule="shared-memory-unit", path=settings.resource, message=text, hint=hint
    )


def _without_unit(candidate: NamingCandidate, mib: int, size: int) -> Finding:
    if mib:
        text = f"is not advertised: it has {mib} MiB, and a unit is {size} MiB"
        return finding("warning", "shared-memory-unit", candidate.device, text)
    text = "is not advertised: it is shared by memory, and the size of its memory is unknown"
    hint = "select other GPUs in 'kubelet: {shared_memory: {devices}}'"
    if candidate.names.memory_hint:
        hint = f"{candidate.names.memory_hint}, or {hint}"
    return finding("error", "shared-memory-unknown", candidate.device, text, hint)


def _left_out(candidate: NamingCandidate, reason: str) -> Finding:
    return finding(
        "warning", "shared-memory-left-out", candidate.device, f"is not shared by memory: {reason}"
    )
