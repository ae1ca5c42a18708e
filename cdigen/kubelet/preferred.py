"""Which units a container should get, as far as the kubelet asks: ``Preferences``.

Pure. The kubelet takes a preference that consists of what it offered, and chooses by itself where there is
none. An error here would fail the pod (NVIDIA/k8s-device-plugin#231), so there is none: what is not known
counts as far.
"""

from __future__ import annotations

from cdigen.topology.choose import Share, Stock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.kubelet.resources.model import Resource


class Preferences:
    """Prefers units of RESOURCE; what all answers have in common is made once.

    SPREAD takes replicas and partitions of the devices of which the fewest are in use, instead of from as few
    devices as possible.
    """

    def __init__(self, resource: Resource, *, spread: bool = False) -> None:
        self._stock = Stock(unit.share for unit in resource.units)
        self._ids = [share.name for share in self._stock.units if isinstance(share, Share)]
        self._numbers = {id_: number for number, id_ in enumerate(self._ids)}
        self._spread = spread

    def prefer(self, available: Iterable[str], must_include: Iterable[str], count: int) -> tuple[str, ...]:
        """Return the ids of COUNT units out of AVAILABLE, those of MUST_INCLUDE first.

        Ids that the resource does not have are taken last, and only if the kubelet offered them. Fewer come
        back where fewer were offered.
        """
        numbers = self._numbers
        required = tuple(dict.fromkeys(must_include))[: max(count, 0)]
        offered = (*required, *available)
        found = {*map(numbers.get, offered)}
        chosen = self._stock.choose(
            (number for number in found if number is not None),
            (numbers[id_] for id_ in required if id_ in numbers),
            # A required unit that is gone takes its place all the same.
            count - sum(id_ not in numbers for id_ in required),
            spread=self._spread,
        )
        ids = dict.fromkeys((*required, *(self._ids[number] for number in chosen)))
        if len(ids) < count:
            ids |= dict.fromkeys(offered)
        return tuple(ids)[: max(count, 0)]
