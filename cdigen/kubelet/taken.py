"""What containers have of a resource's devices where the kubelet cannot know it: ``Taken``."""

from __future__ import annotations

from cdigen.kubelet.journal import device_names, device_of, holders
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Protocol

    from cdigen.kubelet.pods import PodDevices

    class Host(Protocol):
        """What is known of containers."""

        @property
        def told(self) -> tuple[PodDevices, ...] | None:
            """What the kubelet said last that containers have, None: nothing so far."""

        @property
        def is_known(self) -> bool:
            """Whether the kubelet knows its pods, and has said what they have."""

        def given(self) -> Iterator[PodDevices]:
            """Yield what was given so lately that ``told`` may not have it, to whomever."""

        async def ask(self, timeout_s: float) -> tuple[PodDevices, ...]:
            """Return what containers have now. ``KubeletError``: not told in TIMEOUT_S."""


# A container whose units seem to be in use under another name waits so long for the kubelet's word.
ASK_S = 0.5


class Taken:
    """Knows by HOST which units of RESOURCE containers have under other names, or by other ids."""

    def __init__(self, resource: Resource, host: Host) -> None:
        self._resource = resource
        self._host = host
        self._units = {unit.id: unit for unit in resource.units}
        self._names = device_names(resource.units)
        # What containers have, as it was last told, and of that what the kubelet cannot know to be ours.
        self._told: tuple[PodDevices, ...] | None = None
        self._unseen: tuple[PodDevices, ...] = ()

    def suspected(self, ids: Iterable[str]) -> Mapping[str, str]:
        """Return which of IDS a container seems to have by what is known already, and which, by id."""
        return self._used(ids, self._suspects())

    async def held(self, ids: tuple[str, ...]) -> Mapping[str, str]:
        """Return which of IDS a container has where the kubelet cannot know it, and which container, by id.

        It has their devices under another resource's name, or by ids that they had before they were shared or
        no longer shared. What has the ids of now the kubelet counts itself, and may give again: to the
        containers of a pod after its init containers, to a container that it forgot at its restart. So that
        is never refused. For the rest, only who seems to have a unit by what is known already is asked about,
        since a question takes longer than an answer may; what the kubelet then says counts alone, and if it
        says nothing in time, the container gets its units. As long as nothing is known, it is asked.
        """
        if self._host.is_known and not self.suspected(ids):
            return {}
        try:
            pods = await self._host.ask(ASK_S)
        except KubeletError:
            return {}
        return self._used(ids, self._others(pods))

    def _suspects(self) -> tuple[PodDevices, ...]:
        """Return what containers seem to have where the kubelet cannot know it."""
        told = self._host.told
        if told is not self._told:
            self._told, self._unseen = told, self._others(told or ())
        return (*self._unseen, *self._others(self._host.given()))

    def _others(self, pods: Iterable[PodDevices]) -> tuple[PodDevices, ...]:
        """Return what PODS have of our devices under other names, or by ids that are none of ours now."""
        found = []
        for pod in pods:
            ours = self._units if pod.resource == self._resource.name else ()
            ids = tuple(id_ for id_ in pod.ids if id_ not in ours and device_of(id_) in self._names)
            if ids:
                found.append(replace(pod, ids=ids))
        return tuple(found)

    def _used(self, ids: Iterable[str], pods: Sequence[PodDevices]) -> Mapping[str, str]:
        if not pods:
            return {}
        units = tuple(self._units[id_] for id_ in ids if id_ in self._units)
        return holders(Resource(name=self._resource.name, units=units), pods)
