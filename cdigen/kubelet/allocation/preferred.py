"""``Preferences`` chooses the units that a container should get, for GetPreferredAllocation.

The kubelet uses a preference only if all ids in the preference are available. Otherwise the kubelet chooses
the units. An error in this module would fail the pod (NVIDIA/k8s-device-plugin#231), so the module raises no
error. The module treats devices of unknown distance as distant devices. The module does no I/O.
"""

from __future__ import annotations

from cdigen.topology.choose import AcceleratorPart, AvailableDevices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.resources.model import Resource


class Preferences:
    """Chooses units of RESOURCE; the constructor computes the values that all calls of ``choose`` use.

    By default, replicas and partitions come from as few devices as possible. If SPREAD is set, the units come
    from the devices with the fewest units in use.
    """

    def __init__(self, resource: Resource, *, spread: bool = False) -> None:
        self._devices = AvailableDevices(unit.part for unit in resource.units)
        self._ids = [part.name for part in self._devices.units if isinstance(part, AcceleratorPart)]
        self._numbers = {id_: number for number, id_ in enumerate(self._ids)}
        self._spread = spread

    def choose(self, available: Iterable[str], must_include: Iterable[str], count: int) -> tuple[str, ...]:
        """Return the ids of COUNT units of AVAILABLE, with the ids of MUST_INCLUDE first.

        Ids of AVAILABLE that the resource does not have come last. If fewer than COUNT ids are available, the
        result is shorter.
        """
        numbers = self._numbers
        required = tuple(dict.fromkeys(must_include))[: max(count, 0)]
        offered = (*required, *available)
        found = {*map(numbers.get, offered)}
        chosen = self._devices.choose(
            (number for number in found if number is not None),
            (numbers[id_] for id_ in required if id_ in numbers),
            # A required id that the resource no longer has is still part of the result.
            count - sum(id_ not in numbers for id_ in required),
            spread=self._spread,
        )
        ids = dict.fromkeys((*required, *(self._ids[number] for number in chosen)))
        if len(ids) < count:
            ids |= dict.fromkeys(offered)
        return tuple(ids)[: max(count, 0)]
