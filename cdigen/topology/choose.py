"""``AvailableDevices`` chooses devices for containers.

For up to eight free devices, the search compares all divisions into sets of the requested size. For more
devices, the search grows sets from single devices, and improves the sets by exchanges (``bestset``). Parts of
devices, and replicas, come from as few devices as possible. docs/explanation/topology.md has the rules and
their reasons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque

from cdigen.topology.bestset import FreeAccelerators, best_set
from cdigen.topology.levels import relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, Partition

    # The sort key of an accelerator, which also identifies the accelerator.
    Device = tuple[int, str, str, str]
    # The sort key of a unit, which also identifies the unit. The last element is the name of a part.
    Key = tuple[Device, int, int, str]
    # Number of an accelerator -> numbers of its free units.
    Pools = dict[int, list[int]]


@frozen
class AcceleratorPart:
    """A named part of an accelerator: a ``partition``, or a replica of a partition or device."""

    name: str
    accelerator: Accelerator
    partition: Partition | None = None


class AvailableDevices:
    """All accelerators or parts of a host (EVERY), including the ones in use, for any number of choices.

    ``units`` has each unit in EVERY once, in order. The methods identify a unit by its position in ``units``.
    """

    def __init__(self, every: Iterable[Accelerator | AcceleratorPart]) -> None:
        whole = {_key(unit): unit for unit in every}
        keys = sorted(whole)
        self.units: tuple[Accelerator | AcceleratorPart, ...] = tuple(whole[key] for key in keys)
        devices: dict[Device, int] = {}
        # For each unit, the position of its accelerator in the order of all accelerators.
        self._device = [devices.setdefault(key[0], len(devices)) for key in keys]
        accelerators = {key[0]: _accelerator(unit) for key, unit in whole.items()}
        self._sizes = Counter(self._device)
        self._near, self._islands = _related([accelerators[device] for device in devices])
        # If the NUMA node of an accelerator is unknown, the accelerator gets a separate negative number.
        self._numa = [
            -place if node is None else node
            for place, node in enumerate((accelerators[device].numa_node for device in devices), 1)
        ]

    def choose(
        self, available: Iterable[int], must_include: Iterable[int], count: int, *, spread: bool = False
    ) -> tuple[int, ...]:
        """Return COUNT of the AVAILABLE units in order, including MUST_INCLUDE; raise no exception.

        If SPREAD is true, parts come from the accelerators with the fewest parts in use. If SPREAD is false,
        parts come from as few accelerators as possible. The result has fewer than COUNT units if fewer are
        available. A unit in MUST_INCLUDE that is not available is not in the result. An unknown distance is
        treated as the farthest distance.
        """
        free = sorted(set(available))
        required = sorted(set(must_include).intersection(free))
        if count <= len(required):
            return tuple(required[: max(count, 0)])
        if count >= len(free):
            return tuple(free)
        pools = self._pools(free)
        accelerators = self._free_accelerators(pools)
        if spread and max(self._sizes.values()) > 1:
            kept = self._spread(pools, required, count, accelerators)
        else:
            kept = self._packed(pools, required, count, accelerators)
        return tuple(sorted(kept))

    def _pools(self, free: list[int]) -> Pools:
        """Return the units in FREE by accelerator. FREE is sorted, so an accelerator's units are adjacent."""
        pools: Pools = {}
        begin = last = 0
        for device, size in sorted(self._sizes.items()):
            last += size
            end = bisect_left(free, last, begin)
            if end > begin:
                pools[device] = free[begin:end]
            begin = end
        return pools

    def _free_accelerators(self, pools: Pools) -> FreeAccelerators:
        """Return the accelerators of POOLS with the values that the choice depends on."""
        islands = self._islands
        return FreeAccelerators(
            near=tuple(tuple(self._near[one][other] for other in pools) for one in pools),
            free=tuple(len(numbers) for numbers in pools.values()),
            island=tuple(islands[device] for device in pools),
            broken=frozenset(
                islands[device] for device, size in self._sizes.items() if len(pools.get(device, ())) < size
            ),
            numa=tuple(self._numa[device] for device in pools),
        )

    def _packed(
        self, pools: Pools, required: list[int], count: int, accelerators: FreeAccelerators
    ) -> list[int]:
        """Return COUNT units, including REQUIRED, from few devices. Each device gives as many as possible."""
        devices = list(pools)
        must = frozenset(devices.index(self._device[number]) for number in required)
        chosen = best_set(accelerators, must, count)
        kept, included = list(required), set(required)
        # The devices of required units come first, because they are used in any case.
        for place in sorted(chosen, key=lambda place: (place not in must, -accelerators.free[place], place)):
            rest = [number for number in pools[devices[place]] if number not in included]
            kept += rest[: count - len(kept)]
        return kept

    def _spread(
        self, pools: Pools, required: list[int], count: int, accelerators: FreeAccelerators
    ) -> list[int]:
        """Return COUNT units, including REQUIRED, each from the device with the fewest used units."""
        kept, included = list(required), set(required)
        rest = [deque(number for number in numbers if number not in included) for numbers in pools.values()]
        used = [self._sizes[device] - len(left) for device, left in zip(pools, rest, strict=True)]
        chosen = [len(numbers) > len(left) for numbers, left in zip(pools.values(), rest, strict=True)]
        near = [
            sum(row[place] for place, is_chosen in enumerate(chosen) if is_chosen)
            for row in accelerators.near
        ]
        while len(kept) < count:
            place = min(
                (place for place, left in enumerate(rest) if left),
                key=lambda place: (used[place], -near[place], place),
            )
            kept.append(rest[place].popleft())
            used[place] += 1
            if not chosen[place]:
                chosen[place] = True
                near = [old + row[place] for old, row in zip(near, accelerators.near, strict=True)]
        return kept


def _accelerator(unit: Accelerator | AcceleratorPart) -> Accelerator:
    return unit.accelerator if isinstance(unit, AcceleratorPart) else unit


def _key(unit: Accelerator | AcceleratorPart) -> Key:
    accelerator = _accelerator(unit)
    device = accelerator.index, accelerator.device_class, accelerator.address, accelerator.uuid or ""
    if not isinstance(unit, AcceleratorPart):
        return device, 0, 0, ""
    partition = -1 if unit.partition is None or unit.partition.index is None else unit.partition.index
    # The name of a replica ends with its number. Shorter names come first, so replica 2 is before replica 10.
    return device, partition, len(unit.name), unit.name


def _related(accelerators: list[Accelerator]) -> tuple[list[list[int]], list[int]]:
    """Return the nearness of each pair of ACCELERATORS, and the number of the island of each accelerator."""
    places = range(len(accelerators))
    near = [[0] * len(accelerators) for _ in places]
    islands = list(places)
    for one in places:
        for other in range(one):
            between = relation(accelerators[one], accelerators[other])
            near[one][other] = near[other][one] = between.nearness
            if between.technology and islands[one] != islands[other]:
                old = islands[other]
                islands = [islands[one] if number == old else number for number in islands]
    return near, islands
