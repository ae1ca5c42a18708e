"""Choose devices for one container: ``choose``; many times of the same devices: ``Stock``.

Up to eight free devices, every division of them into sets of the asked size is compared; of more, sets are
grown from single devices and improved by exchange (``bestset``). Parts of devices, and replicas, come from as
few devices as possible. docs/topology.md has the rules and their reasons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque

from cdigen.topology.bestset import Field, best_set
from cdigen.topology.levels import relation
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from cdigen.model.inventory import Accelerator, Partition

    # Where an accelerator is in the order of all, and what it is recognized by.
    Device = tuple[int, str, str, str]
    # Where a unit is in the order of all, and what it is recognized by: a share also by its name.
    Key = tuple[Device, int, int, str]
    # The free units of each accelerator, as their numbers; both by number.
    Pools = dict[int, list[int]]


@frozen
class Share:
    """A part of an accelerator under a ``name`` of its own: its ``partition``, or a replica of either."""

    name: str
    accelerator: Accelerator
    partition: Partition | None = None


if TYPE_CHECKING:
    Unit = TypeVar("Unit", Accelerator, Share)


def choose(
    available: Iterable[Unit],
    must_include: Iterable[Unit],
    count: int,
    *,
    every: Iterable[Unit] = (),
    spread: bool = False,
) -> tuple[Unit, ...]:
    """Return COUNT of the AVAILABLE accelerators or shares, those of MUST_INCLUDE among them, by index.

    EVERY are all that there are, free or not: they tell which islands are broken already; without them, the
    AVAILABLE are all. SPREAD takes shares from the accelerators of which the fewest are in use, instead of
    from as few accelerators as possible. Fewer come back where fewer are available, and what must be included
    but is not available does not. Nothing is raised: what is not known of a device counts as far.
    """
    free: dict[Key, Unit] = {_key(unit): unit for unit in available}
    stock = Stock((*every, *free.values()))
    numbers = {_key(unit): number for number, unit in enumerate(stock.units)}
    required = (numbers[key] for key in map(_key, must_include) if key in free)
    chosen = stock.choose((numbers[key] for key in free), required, count, spread=spread)
    return tuple(free[_key(stock.units[number])] for number in chosen)


class Stock:
    """All accelerators or shares that there are, EVERY once, for any number of choices among them.

    ``units`` has them in order; they are numbers here: their places in it.
    """

    def __init__(self, every: Iterable[Accelerator | Share]) -> None:
        whole = {_key(unit): unit for unit in every}
        keys = sorted(whole)
        self.units: tuple[Accelerator | Share, ...] = tuple(whole[key] for key in keys)
        devices: dict[Device, int] = {}
        # The accelerator of each unit, as its place in the order of all accelerators.
        self._device = [devices.setdefault(key[0], len(devices)) for key in keys]
        accelerators = {key[0]: _accelerator(unit) for key, unit in whole.items()}
        self._sizes = Counter(self._device)
        self._near, self._islands = _related([accelerators[device] for device in devices])
        # A node that is not known is one of its own.
        self._numa = [
            -place if node is None else node
            for place, node in enumerate((accelerators[device].numa_node for device in devices), 1)
        ]

    def choose(
        self, available: Iterable[int], must_include: Iterable[int], count: int, *, spread: bool = False
    ) -> tuple[int, ...]:
        """Return COUNT of the AVAILABLE units, those of MUST_INCLUDE among them, as ``choose`` does."""
        free = sorted(set(available))
        required = sorted(set(must_include).intersection(free))
        if count <= len(required):
            return tuple(required[: max(count, 0)])
        if count >= len(free):
            return tuple(free)
        pools = self._pools(free)
        field = self._field(pools)
        if spread and max(self._sizes.values()) > 1:
            kept = self._spread(pools, required, count, field)
        else:
            kept = self._packed(pools, required, count, field)
        return tuple(sorted(kept))

    def _pools(self, free: list[int]) -> Pools:
        """Return the units FREE, in order, by their accelerators: those of each follow each other."""
        pools: Pools = {}
        begin = last = 0
        for device, size in sorted(self._sizes.items()):
            last += size
            end = bisect_left(free, last, begin)
            if end > begin:
                pools[device] = free[begin:end]
            begin = end
        return pools

    def _field(self, pools: Pools) -> Field:
        """Return what the choice among POOLS depends on."""
        islands = self._islands
        return Field(
            near=tuple(tuple(self._near[one][other] for other in pools) for one in pools),
            free=tuple(len(numbers) for numbers in pools.values()),
            island=tuple(islands[device] for device in pools),
            broken=frozenset(
                islands[device] for device, size in self._sizes.items() if len(pools.get(device, ())) < size
            ),
            numa=tuple(self._numa[device] for device in pools),
        )

    def _packed(self, pools: Pools, required: list[int], count: int, field: Field) -> list[int]:
        """Return COUNT units with those REQUIRED, from as few devices and as many of one as possible."""
        devices = list(pools)
        must = frozenset(devices.index(self._device[number]) for number in required)
        chosen = best_set(field, must, count)
        kept, had = list(required), set(required)
        # Those of what is required come first: something of them is taken in any case.
        for place in sorted(chosen, key=lambda place: (place not in must, -field.free[place], place)):
            rest = [number for number in pools[devices[place]] if number not in had]
            kept += rest[: count - len(kept)]
        return kept

    def _spread(self, pools: Pools, required: list[int], count: int, field: Field) -> list[int]:
        """Return COUNT units with those REQUIRED, each from the device that has the fewest in use then."""
        kept, had = list(required), set(required)
        rest = [deque(number for number in numbers if number not in had) for numbers in pools.values()]
        used = [self._sizes[device] - len(left) for device, left in zip(pools, rest, strict=True)]
        taken = [len(numbers) > len(left) for numbers, left in zip(pools.values(), rest, strict=True)]
        near = [sum(row[place] for place, is_taken in enumerate(taken) if is_taken) for row in field.near]
        while len(kept) < count:
            place = min(
                (place for place, left in enumerate(rest) if left),
                key=lambda place: (used[place], -near[place], place),
            )
            kept.append(rest[place].popleft())
            used[place] += 1
            if not taken[place]:
                taken[place] = True
                near = [old + row[place] for old, row in zip(near, field.near, strict=True)]
        return kept


def _accelerator(unit: Accelerator | Share) -> Accelerator:
    return unit.accelerator if isinstance(unit, Share) else unit


def _key(unit: Accelerator | Share) -> Key:
    accelerator = _accelerator(unit)
    device = accelerator.index, accelerator.device_class, accelerator.address, accelerator.uuid or ""
    if not isinstance(unit, Share):
        return device, 0, 0, ""
    partition = -1 if unit.partition is None or unit.partition.index is None else unit.partition.index
    # Replicas are counted in their names: the second comes before the tenth.
    return device, partition, len(unit.name), unit.name


def _related(accelerators: list[Accelerator]) -> tuple[list[list[int]], list[int]]:
    """Return how near each of ACCELERATORS is to each other, and the number of the island that each is in."""
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
