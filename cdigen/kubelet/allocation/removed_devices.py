"""``RemovedDevices``: the devices that containers have, and that the host no longer has.

If the id of a container's device is not in the list of the resource, the kubelet reports the device as
healthy in the pod's status (kubernetes 1.36, pkg/kubelet/cm/devicemanager, manager.go:
UpdateAllocatedResourcesStatus). So the list has such an id as unhealthy until no container has the id. The
module does no I/O.
"""

from __future__ import annotations

from cdigen.kubelet.allocation.journal import device_of
from cdigen.kubelet.resources.memory import gpu_id
from cdigen.kubelet.resources.model import MAX_ID, MAX_MESSAGE, Unit
from cdigen.kubelet.resources.resource_set import PER_UNIT
from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.resources.naming import NamingCandidate

    # The container by id, for each resource.
    Missing = Mapping[str, Mapping[str, PodDevices]]

_REMOVED = Accelerator(
    index=-1, address="", model="", device_class="", health="unhealthy", problem="the host has no such device"
)


class RemovedDevices:
    """Adds the removed devices of containers to the lists of the resources."""

    def __init__(self) -> None:
        # The arguments of the last call of ``apply``, and the removed devices.
        self._resources: tuple[Resource, ...] = ()
        self._candidates: tuple[NamingCandidate, ...] = ()
        self._listed: tuple[PodDevices, ...] | None = None
        self._key: frozenset[tuple[str, str]] = frozenset()

    def apply(
        self,
        resources: tuple[Resource, ...],
        candidates: tuple[NamingCandidate, ...],
        listed: tuple[PodDevices, ...] | None,
    ) -> tuple[tuple[Resource, ...], tuple[Finding, ...]]:
        """Return RESOURCES with the removed devices, and a finding for each device that the host lacks.

        CANDIDATES are the devices of the host, advertised or not. LISTED are the devices of containers, or
        None before the kubelet's first list.
        """
        self._resources, self._candidates, self._listed = resources, candidates, listed
        missing = self._missing(listed)
        self._key = _key_of(missing)
        if not missing:
            return resources, ()
        known = {id_ for each in candidates for id_ in _ids(each)}
        found = tuple(
            finding
            for name, owners in missing.items()
            for finding in _findings(
                name, {id_: pod for id_, pod in owners.items() if device_of(id_) not in known}
            )
        )
        return tuple(_with(one, missing.get(one.name, {})) for one in resources), found

    def is_outdated(self, listed: tuple[PodDevices, ...] | None) -> bool:
        """Return whether ``apply`` has another result for the new list LISTED; False if LISTED is not new."""
        if listed is self._listed:
            return False
        self._listed = listed
        return _key_of(self._missing(listed)) != self._key

    def _missing(self, listed: tuple[PodDevices, ...] | None) -> Missing:
        """Return the ids in LISTED that no resource has, and whose device is not usable.

        If the configuration has changed the mode or the resource of a usable device, the device stays healthy
        for the containers that have it.
        """
        resources = {one.name: one for one in self._resources}
        ids: dict[str, frozenset[str]] = {}
        found: dict[str, dict[str, PodDevices]] = {}
        for pod in listed or ():
            if pod.resource not in resources:
                continue
            if pod.resource not in ids:
                ids[pod.resource] = frozenset(unit.id for unit in resources[pod.resource].units)
            for id_ in pod.ids:
                if id_ not in ids[pod.resource] and 0 < len(id_) <= MAX_ID:
                    found.setdefault(pod.resource, {}).setdefault(id_, pod)
        if not found:
            return {}
        usable = {id_ for each in self._candidates if each.unit().health != "unhealthy" for id_ in _ids(each)}
        kept = (
            (name, {id_: pod for id_, pod in owners.items() if device_of(id_) not in usable})
            for name, owners in found.items()
        )
        return {name: owners for name, owners in kept if owners}


def _ids(candidate: NamingCandidate) -> tuple[str, str]:
    """Return the ids of CANDIDATE as a device, and as a GPU that is shared by memory."""
    return candidate.id, gpu_id(candidate)


def _key_of(missing: Missing) -> frozenset[tuple[str, str]]:
    return frozenset((name, id_) for name, owners in missing.items() for id_ in owners)


def _with(resource: Resource, ids: Iterable[str]) -> Resource:
    """Return RESOURCE with the removed devices IDS, as many as the kubelet can read."""
    space = MAX_MESSAGE - sum(len(unit.id) + PER_UNIT for unit in resource.units)
    added = []
    for id_ in ids:
        space -= len(id_.encode()) + PER_UNIT
        if space > 0:
            added.append(Unit(id=id_, health="unhealthy", numa=None, accelerator=_REMOVED))
    return replace(resource, units=(*resource.units, *added)) if added else resource


def _findings(resource: str, owners: Mapping[str, PodDevices]) -> Iterator[Finding]:
    """Yield a finding for each device of RESOURCE in OWNERS."""
    devices: dict[str, PodDevices] = {}
    for id_, pod in owners.items():
        devices.setdefault(device_of(id_), pod)
    for device, pod in devices.items():
        yield Finding(
            severity="warning",
            rule="resource-removed",
            path=device,
            message=f"{device} is advertised as unhealthy in {resource}: the host has no such device, and "
            f"{pod.description} has it",
            hint=f"kubectl --namespace {pod.namespace} delete pod {pod.pod}",
        )
