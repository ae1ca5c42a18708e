"""``UnitsInUse`` finds the units of a resource that containers have, under any name or by a claim."""

from __future__ import annotations

import time

from cdigen.kubelet.allocation.claims import claimed_units
from cdigen.kubelet.allocation.journal import device_names, device_of, used_units
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cdigen.kubelet.allocation.kubelet_view import KubeletView
    from cdigen.kubelet.pods import ClaimedDevice, PodDevices

# The limit in seconds for a new list of the kubelet, if a unit may be in use already.
QUERY_S = 0.5
# A preferred unit counts as used for this time in seconds. The kubelet allocates it within milliseconds.
_PREFERRED_S = 1.0


class UnitsInUse:
    """The units of RESOURCE that containers have, according to VIEW."""

    def __init__(self, resource: Resource, view: KubeletView) -> None:
        self._resource = resource
        self._view = view
        self._units = {unit.id: unit for unit in resource.units}
        self._names = device_names(resource.units)
        # The last known list, and the devices of this resource that the list has under other names or ids.
        self._last_list: tuple[PodDevices, ...] | None = None
        self._untracked: tuple[PodDevices, ...] = ()
        # The last preferred units, with the monotonic times of the responses.
        self._preferred: dict[str, float] = {}

    def unused(self, available: tuple[str, ...], required: tuple[str, ...], count: int) -> tuple[str, ...]:
        """Return the units of AVAILABLE that are in REQUIRED or that no container seems to have.

        If these are fewer than COUNT, return AVAILABLE. A unit in use is available to the kubelet if the
        container has the device under another name or by a claim, or if the kubelet has lost the allocation.
        The kubelet may also request preferred units for two containers at the same time: it allocates the
        devices of a pod again if the pod was deleted during its start (devicemanager/manager.go, 1.20.2,
        GetDeviceRunContainerOptions). So recently preferred and allocated units count as used.
        """
        used = self._used(available)
        free = tuple(id_ for id_ in available if id_ not in used or id_ in required)
        return free if len(free) >= count else available

    def note_preferred(self, ids: Iterable[str]) -> None:
        """Record IDS as the response to a request for a preferred allocation."""
        now = time.monotonic()
        recent = {id_: at_s for id_, at_s in self._preferred.items() if at_s > now - _PREFERRED_S}
        self._preferred = recent | dict.fromkeys(ids, now)

    async def in_use(self, ids: tuple[str, ...]) -> Mapping[str, str]:
        """Return the container by unit id, for the units of IDS that are in use under other names or ids.

        Such a container has the device under another resource name, by an id of another mode, or by a claim.
        The kubelet itself tracks the present ids of the resource. So the use of a present id is no reason for
        a refusal. The kubelet may allocate a present id again. For example, a container gets the id of an
        init container of its pod. Or the kubelet has lost the allocation of a container at a restart.

        A query of the kubelet would delay each response, and can make the kubelet lose the allocation (see
        ``PodListTimer``). So cdigen queries the kubelet only if a container seems to use the device. The
        result depends only on the new list. If the kubelet does not answer in time, the container gets its
        units.
        """
        if not self._suspected(ids):
            return {}
        try:
            pods = await self._view.list_pods(QUERY_S)
        except KubeletError:
            return {}
        return self._in_use(ids, self._others(pods.devices)) | self._claimed(ids, pods.claims)

    def _used(self, ids: tuple[str, ...]) -> frozenset[str]:
        """Return the units that containers seem to have elsewhere, of IDS, and all recently chosen units."""
        since_s = time.monotonic() - _PREFERRED_S
        preferred = (id_ for id_, at_s in self._preferred.items() if at_s > since_s)
        recent = (one for one in self._view.recent_allocations() if one.resource == self._resource.name)
        return frozenset(self._suspected(ids)).union(preferred, *(one.ids for one in recent))

    def _suspected(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return the container by unit id, for the units of IDS that a container seems to have elsewhere."""
        return self._in_use(ids, self._suspects()) | self._claimed(ids, self._view.last_known_claims)

    def _suspects(self) -> tuple[PodDevices, ...]:
        """Return the devices of this resource that containers seem to have under another name or id.

        The sources are the last list of the kubelet and the recent allocations.
        """
        last_known_pods = self._view.last_known_pods
        if last_known_pods is not self._last_list:
            self._last_list, self._untracked = last_known_pods, self._others(last_known_pods or ())
        return (*self._untracked, *self._others(self._view.recent_allocations()))

    def _others(self, pods: Iterable[PodDevices]) -> tuple[PodDevices, ...]:
        """Return the devices of this resource that PODS have under other names, or by ids of another mode."""
        found = []
        for pod in pods:
            ours = self._units if pod.resource == self._resource.name else ()
            ids = tuple(id_ for id_ in pod.ids if id_ not in ours and device_of(id_) in self._names)
            if ids:
                found.append(replace(pod, ids=ids))
        return tuple(found)

    def _claimed(self, ids: Iterable[str], claims: tuple[ClaimedDevice, ...]) -> dict[str, str]:
        return claimed_units((self._units[id_] for id_ in ids if id_ in self._units), claims)

    def _in_use(self, ids: Iterable[str], pods: Sequence[PodDevices]) -> dict[str, str]:
        if not pods:
            return {}
        units = tuple(self._units[id_] for id_ in ids if id_ in self._units)
        return used_units(Resource(name=self._resource.name, units=units), pods)
