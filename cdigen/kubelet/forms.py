"""A GPU in one form at a time: whole, in replicas, or in units of its memory of one size (``Forms``).

The configuration may change while containers have a GPU. The kubelet counts each resource by itself, and by
ids alone: it would give what they have once more, by its other name or in smaller units. So a GPU takes
nothing new in its new form until those containers are over. Pure.
"""

from __future__ import annotations

from cdigen.kubelet.journal import MEMORY, device_names, device_of, form_of, holders
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.memory import MemoryOffer
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.resources.offer import Offer

    # What of a container's devices may be in another form now: resource, and id or device.
    Key = frozenset[tuple[str, str]]


class Forms:
    """Knows of which size the units of GPUs are that containers have: ``sizes``, in MiB by the GPU's id."""

    def __init__(self, sizes: Mapping[str, int] | None = None) -> None:
        self.sizes = dict(sizes or {})

    def settled(self, offer: Offer, told: tuple[PodDevices, ...] | None) -> Offer:
        """Return OFFER with all unhealthy that a container has in another form, with findings.

        TOLD is what containers have, None: nobody knows yet.
        """
        pods, shares = told or (), offer.memory
        if shares is not None:
            self._learn(shares, told)
        found: list[Finding] = []
        resources = []
        for resource in offer.resources:
            held = self._held(resource, shares, pods)
            if told is None and shares is not None and resource.name == shares.resource.name:
                held |= self._doubtful(shares)
            resources.append(_without(resource, held) if held else resource)
            found += _findings(resource, held)
        if not found:
            return offer
        return replace(
            offer,
            resources=tuple(resources),
            memory=_shown(shares, resources) if shares is not None else None,
            findings=(*offer.findings, *found),
        )

    def _learn(self, shares: MemoryOffer, told: tuple[PodDevices, ...] | None) -> None:
        """Take the size of now for GPUs of which nobody has units."""
        used = {device_of(id_) for pod in told or () for id_ in pod.ids if form_of(id_) == MEMORY}
        for gpu in shares.gpus:
            if told is not None and gpu.id not in used:
                self.sizes[gpu.id] = shares.unit_mib
            else:
                self.sizes.setdefault(gpu.id, shares.unit_mib)

    def _held(
        self, resource: Resource, shares: MemoryOffer | None, pods: tuple[PodDevices, ...]
    ) -> dict[str, str]:
        """Return which units of RESOURCE are not to be given, by id, and who has them."""
        is_memory = shares is not None and resource.name == shares.resource.name
        others = tuple(_others(resource, pods, is_memory=is_memory))
        found = holders(resource, others) if others else {}
        held = {id_: f"{who}, has it" for id_, who in found.items()}
        if shares is None or not is_memory:
            return held
        old = self._old(shares)
        for pod in pods if old else ():
            for device in {device_of(id_) for id_ in pod.ids if form_of(id_) == MEMORY} & old.keys():
                who = f"{pod.holder}, has it in units of {old[device]} MiB"
                held |= {unit.id: who for unit in resource.units if device_of(unit.id) == device}
        return held

    def _old(self, shares: MemoryOffer) -> dict[str, int]:
        """Return the GPUs of SHARES whose units were of another size, and of which."""
        return {gpu.id: size for gpu in shares.gpus if (size := self.sizes[gpu.id]) != shares.unit_mib}

    def _doubtful(self, shares: MemoryOffer) -> dict[str, str]:
        """Return the units of SHARES that somebody may have in another size, as long as nobody knows."""
        old = self._old(shares)
        text = "the kubelet has not told yet whether a container has units of {} MiB"
        return {
            unit.id: text.format(old[device])
            for unit in shares.resource.units
            if (device := device_of(unit.id)) in old
        }


def key_of(offer: Offer, pods: Iterable[PodDevices]) -> Key:
    """Return what ``settled`` depends on: two lists of containers with one key give one offer."""
    shares = offer.memory
    ours = shares.resource.name if shares is not None else ""
    gpus = {gpu.id for gpu in shares.gpus} if shares is not None else set()
    return frozenset(
        (pod.resource, device_of(id_) if pod.resource == ours else id_)
        for pod in pods
        for id_ in pod.ids
        if form_of(id_) == MEMORY or device_of(id_) in gpus
    )


def _others(resource: Resource, pods: Iterable[PodDevices], *, is_memory: bool) -> Iterator[PodDevices]:
    """Yield what PODS have of RESOURCE's devices in another form, or by another resource's name.

    Replicas and whole devices exclude each other by refusals alone (``taken``), as NVIDIA's users know it.
    """
    pods = [pod for pod in pods if is_memory or any(form_of(id_) == MEMORY for id_ in pod.ids)]
    if not pods:
        return
    names = device_names(resource.units)
    own = {unit.id for unit in resource.units} if is_memory else frozenset()
    for pod in pods:
        ids = tuple(
            id_
            for id_ in pod.ids
            if device_of(id_) in names
            and (form_of(id_) == MEMORY if not is_memory else pod.resource != resource.name or id_ not in own)
        )
        if ids:
            yield replace(pod, ids=ids)


def _without(resource: Resource, held: Mapping[str, str]) -> Resource:
    units = (replace(one, health="unhealthy") if one.id in held else one for one in resource.units)
    return replace(resource, units=tuple(units))


def _shown(shares: MemoryOffer, resources: Iterable[Resource]) -> MemoryOffer:
    """Return SHARES as they are in RESOURCES: a GPU without a healthy unit is unhealthy."""
    resource = next((one for one in resources if one.name == shares.resource.name), shares.resource)
    well = {device_of(unit.id) for unit in resource.units if unit.health != "unhealthy"}
    gpus = (replace(gpu, is_healthy=gpu.is_healthy and gpu.id in well) for gpu in shares.gpus)
    return replace(shares, resource=resource, gpus=tuple(gpus))


def _findings(resource: Resource, held: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what HELD is, for each device of RESOURCE."""
    devices: dict[str, list[str]] = {}
    for id_ in held:
        devices.setdefault(device_of(id_), []).append(id_)
    for device, ids in devices.items():
        what = device if ids == [device] else f"{len(ids)} of {device}"
        yield Finding(
            severity="warning",
            rule="shared-memory-held",
            path=device,
            message=f"{what} cannot be given as {resource.name}: {held[ids[0]]}",
            hint="it can be once that pod is over",
        )
