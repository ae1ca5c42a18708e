"""``AllocationModes``: the allocation mode of each GPU, before and after a change of the configuration.

A GPU is allocated as a whole, as replicas, or in memory units of one size. The configuration may change while
containers use a GPU. The kubelet tracks each resource separately, by the ids of the resource's devices. So
the kubelet would allocate the GPU a second time, under another resource name or in units of another size. To
prevent this, cdigen advertises the GPU as unhealthy in its new mode until these containers end. Likewise, a
device that a container has by a ResourceClaim is unhealthy until the container ends. The module does no I/O.
"""

from __future__ import annotations

from cdigen.kubelet.allocation.claims import claim_key, claimed_units
from cdigen.kubelet.allocation.journal import device_names, device_of, mode_of, used_units
from cdigen.kubelet.allocation.removed_devices import RemovedDevices
from cdigen.kubelet.resources.model import MEMORY
from cdigen.kubelet.resources.resource_set import ResourceSet
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.kubelet.pods import ClaimedDevice, PodDevices, PodList
    from cdigen.kubelet.resources.memory import AdvertisedMemory
    from cdigen.kubelet.resources.model import Resource

    # Pairs of resource and device id, for devices of containers. A memory unit has the id of its GPU here.
    Key = frozenset[tuple[str, str]]


class AllocationModes:
    """Marks a unit as unhealthy if a container has the device of the unit in another mode or by a claim.

    ``sizes`` maps the id of a GPU to the size in MiB of the GPU's memory units. This size does not change
    while containers have units of the GPU. ``removed`` adds the removed devices of containers.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.removed = RemovedDevices()
        # The arguments of the last call of ``apply``, and the part of the list that affected the result.
        self._advertised = ResourceSet()
        self._last_list: PodList | None = None
        self._key: Key = frozenset()
        self._claims: Key = frozenset()

    def apply(self, advertised: ResourceSet, last_list: PodList | None) -> ResourceSet:
        """Return ADVERTISED, where each unit that a container has in another mode or by a claim is unhealthy.

        Each device with such a unit has a finding. LAST_LIST is the kubelet's last list, or None before the
        first list.
        """
        listed = last_list.devices if last_list is not None else None
        claims = last_list.claims if last_list is not None else ()
        pods, memory = listed or (), advertised.memory
        self._advertised, self._last_list = advertised, last_list
        self._key, self._claims = _key_of(advertised, pods), _claims_of(advertised, claims)
        if memory is not None:
            self._update_sizes(memory, listed)
        found: list[Finding] = []
        resources = []
        for resource in advertised.resources:
            held = self._used_units(resource, memory, pods)
            if listed is None and memory is not None and resource.is_memory:
                held |= self._unverified_units(memory)
            claimed = _claimed_units(resource, claims, pods)
            resources.append(_without(resource, held | claimed) if held or claimed else resource)
            found += (*_findings(resource, held), *_findings(resource, claimed, "resource-claimed"))
        if not found:
            return advertised
        return replace(
            advertised,
            resources=tuple(resources),
            memory=_with_health(memory, resources) if memory is not None else None,
            findings=(*advertised.findings, *found),
        )

    def is_outdated(self, last_list: PodList | None) -> bool:
        """Return whether the new list LAST_LIST changes the resources; False if LAST_LIST is not new."""
        if last_list is self._last_list or last_list is None:
            return False
        is_first = self._last_list is None and self._advertised.memory is not None
        self._last_list = last_list
        return (
            is_first
            or self.removed.is_outdated(last_list.devices)
            or _key_of(self._advertised, last_list.devices) != self._key
            or _claims_of(self._advertised, last_list.claims) != self._claims
        )

    def _update_sizes(self, memory: AdvertisedMemory, listed: tuple[PodDevices, ...] | None) -> None:
        """Store the present unit size for each GPU whose units no container has."""
        used = {device_of(id_) for pod in listed or () for id_ in pod.ids if mode_of(id_) == MEMORY}
        for gpu in memory.gpus:
            if listed is not None and gpu.id not in used:
                self.sizes[gpu.id] = memory.unit_mib
            else:
                self.sizes.setdefault(gpu.id, memory.unit_mib)

    def _used_units(
        self, resource: Resource, memory: AdvertisedMemory | None, pods: tuple[PodDevices, ...]
    ) -> dict[str, str]:
        """Return a message by unit id, for the units of RESOURCE that a container has in another mode."""
        others = tuple(_others(resource, pods))
        found = used_units(resource, others) if others else {}
        held = {id_: f"the device is in use by {user}" for id_, user in found.items()}
        if memory is None or not resource.is_memory:
            return held
        old = self._outdated_sizes(memory)
        for pod in pods if old else ():
            for device in {device_of(id_) for id_ in pod.ids if mode_of(id_) == MEMORY} & old.keys():
                user = f"the device is in use by {pod.description}, in units of {old[device]} MiB"
                held |= {unit.id: user for unit in resource.units if device_of(unit.id) == device}
        return held

    def _outdated_sizes(self, memory: AdvertisedMemory) -> dict[str, int]:
        """Return the former unit size in MiB, by GPU id, for each GPU of MEMORY with another size now."""
        return {gpu.id: size for gpu in memory.gpus if (size := self.sizes[gpu.id]) != memory.unit_mib}

    def _unverified_units(self, memory: AdvertisedMemory) -> dict[str, str]:
        """Return a message by unit id, for GPUs whose unit size has changed; no list of pods is known yet."""
        old = self._outdated_sizes(memory)
        text = "the kubelet has not listed its pods yet, and a container may have units of {} MiB"
        return {
            unit.id: text.format(old[device])
            for unit in memory.resource.units
            if (device := device_of(unit.id)) in old
        }


def _key_of(advertised: ResourceSet, pods: Iterable[PodDevices]) -> Key:
    """Return the part of PODS that affects the result of ``apply``; equal parts lead to equal results."""
    memory = advertised.memory
    memory_name = memory.resource.name if memory is not None else ""
    gpus = {gpu.id for gpu in memory.gpus} if memory is not None else set()
    return frozenset(
        (pod.resource, device_of(id_) if pod.resource == memory_name else id_)
        for pod in pods
        for id_ in pod.ids
        if mode_of(id_) == MEMORY or device_of(id_) in gpus
    )


def _claims_of(advertised: ResourceSet, claims: tuple[ClaimedDevice, ...]) -> Key:
    """Return the part of CLAIMS that affects the result of ``apply``."""
    return claim_key((unit for resource in advertised.resources for unit in resource.units), claims)


def _claimed_units(
    resource: Resource, claims: tuple[ClaimedDevice, ...], pods: Iterable[PodDevices]
) -> dict[str, str]:
    """Return a message by unit id, for the units of RESOURCE whose device is claimed.

    A device that a container has by this resource stays healthy in the status of the container's pod. All
    memory units of a GPU are unhealthy, because only then the API server gets no free units of the GPU.
    """
    claimed = claimed_units(resource.units, claims)
    own = {id_ for pod in pods if pod.resource == resource.name for id_ in pod.ids}
    return {
        id_: f"the device is in use by {user}"
        for id_, user in claimed.items()
        if resource.is_memory or id_ not in own
    }


def _others(resource: Resource, pods: Iterable[PodDevices]) -> Iterator[PodDevices]:
    """Yield the devices of RESOURCE that PODS have in another mode, or under another resource name.

    As in NVIDIA's plugin, a replica in use does not make the whole device unhealthy. A whole device in use
    does not make its replicas unhealthy. In both cases, only refusals with the cause ``in_use`` prevent
    double use.
    """
    is_memory = resource.is_memory
    pods = [pod for pod in pods if is_memory or any(mode_of(id_) == MEMORY for id_ in pod.ids)]
    if not pods:
        return
    names = device_names(resource.units)
    own = {unit.id for unit in resource.units} if is_memory else frozenset()
    for pod in pods:
        ids = tuple(
            id_
            for id_ in pod.ids
            if device_of(id_) in names
            and (mode_of(id_) == MEMORY if not is_memory else pod.resource != resource.name or id_ not in own)
        )
        if ids:
            yield replace(pod, ids=ids)


def _without(resource: Resource, held: Mapping[str, str]) -> Resource:
    units = (replace(one, health="unhealthy") if one.id in held else one for one in resource.units)
    return replace(resource, units=tuple(units))


def _with_health(memory: AdvertisedMemory, resources: Iterable[Resource]) -> AdvertisedMemory:
    """Return MEMORY with the health of RESOURCES; a GPU without a healthy unit is unhealthy."""
    resource = next((one for one in resources if one.is_memory), memory.resource)
    healthy = {device_of(unit.id) for unit in resource.units if unit.health != "unhealthy"}
    gpus = (replace(gpu, is_healthy=gpu.is_healthy and gpu.id in healthy) for gpu in memory.gpus)
    return replace(memory, resource=resource, gpus=tuple(gpus))


def _findings(
    resource: Resource, held: Mapping[str, str], rule: str = "shared-memory-held"
) -> Iterator[Finding]:
    """Yield a finding of RULE for each device of RESOURCE that has units in HELD."""
    devices: dict[str, list[str]] = {}
    for id_ in held:
        devices.setdefault(device_of(id_), []).append(id_)
    for device, ids in devices.items():
        units = device if ids == [device] else f"{len(ids)} units of {device}"
        yield Finding(
            severity="warning",
            rule=rule,
            path=device,
            message=f"{units} cannot be allocated as {resource.name}: {held[ids[0]]}",
            hint="the device becomes available when the pod ends",
        )
