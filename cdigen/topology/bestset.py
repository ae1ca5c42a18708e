"""``best_set``: finds the best accelerators for one container.

In this module, the place of an accelerator is its position in the order of the indices.
"""

from __future__ import annotations

from itertools import combinations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    # The search compares the ranks of sets of the same size. The lowest rank is the best.
    Rank = tuple[int, ...]
    Places = tuple[int, ...]

# Up to this number of accelerators, the search compares all divisions into sets of one size (one set may be
# smaller). Eight accelerators have at most 280 divisions. Sixteen have two million divisions into pairs.
EXHAUSTIVE = 8
# Maximum number of accelerators from which the search starts. This number and _ROUNDS, the rounds of
# exchanges, limit the time.
_SEEDS = 16
# Maximum number of islands for a search of combinations of islands. With more islands, few devices have
# links.
_ISLANDS = 6
_ROUNDS = 8


@frozen
class FreeAccelerators:
    """The accelerators with free units, by place.

    ``near`` has the nearness of each pair (``Relation.nearness``). ``free`` has the number of free units.
    ``island`` has the number of the accelerator's island. Islands in ``broken`` are partly in use. ``numa``
    has the NUMA node. Each unknown node is a separate node.
    """

    near: tuple[Places, ...]
    free: Places
    island: Places
    broken: frozenset[int]
    numa: Places


def best_set(accelerators: FreeAccelerators, must: frozenset[int], count: int) -> tuple[int, ...]:
    """Return the best accelerators for COUNT units, including the accelerators in MUST.

    The result has as few accelerators as possible. Of all such sets, the result has the lowest rank
    (``_Ranking.rank``). With more than ``EXHAUSTIVE`` accelerators, the search extends start sets and
    exchanges single accelerators, and may miss the lowest rank. COUNT is at most the number of free units.
    """
    size = _fewest(accelerators, must, count)
    places = range(len(accelerators.free))
    others = [place for place in places if place not in must]
    ranking = _Ranking(accelerators, count, size)
    if len(places) <= EXHAUSTIVE:
        sets = (tuple(sorted((*must, *more))) for more in combinations(others, size - len(must)))
        return min((each for each in sets if ranking.has_enough(each)), key=ranking.rank)
    if size == len(must):
        return tuple(sorted(must))
    seeds = sorted(ranking.nearest((*must,)), key=lambda place: (ranking.attachment[place], place))[:_SEEDS]
    starts = [(*must, seed) for seed in seeds]
    if max(accelerators.free) == 1:
        starts += _island_starts(accelerators, must, size)
    grown = {ranking.grown(start) for start in starts}
    return ranking.improved(min(grown, key=ranking.rank), must)


def _island_starts(accelerators: FreeAccelerators, must: frozenset[int], size: int) -> Iterator[Places]:
    """Yield start sets in as few islands as possible.

    Each set has MUST, all accelerators of some islands, and at most one accelerator of a further island.
    """
    members: dict[int, list[int]] = {}
    for place, island in enumerate(accelerators.island):
        members.setdefault(island, []).append(place)
    if len(members) > _ISLANDS:
        return
    needed = {accelerators.island[place] for place in must}
    for number in range(1, len(members) + 1):
        joined = [
            several
            for several in combinations(members, number)
            if needed <= set(several) and sum(len(members[island]) for island in several) >= size
        ]
        for several in joined:
            for last in several:
                whole = must.union(*(members[island] for island in several if island != last))
                first = [place for place in members[last] if place not in must][: size > len(whole)]
                if len(whole) <= size:
                    yield (*sorted(whole), *first)
        if joined:
            return


def _fewest(accelerators: FreeAccelerators, must: frozenset[int], count: int) -> int:
    """Return the smallest number of accelerators that have COUNT free units and include MUST."""
    size, have = len(must), sum(accelerators.free[place] for place in must)
    for free in sorted(
        (free for place, free in enumerate(accelerators.free) if place not in must), reverse=True
    ):
        if have >= count:
            break
        size, have = size + 1, have + free
    return size


class _Ranking:
    """Ranks sets of ``size`` accelerators that have ``count`` units."""

    def __init__(self, accelerators: FreeAccelerators, count: int, size: int) -> None:
        self.accelerators, self.count, self.size = accelerators, count, size
        self.attachment = [sum(row) for row in accelerators.near]
        self._members = {number: accelerators.island.count(number) for number in accelerators.island}
        self._is_whole = max(accelerators.free) == 1
        self._divisions: dict[Places, tuple[int, int]] = {}

    def rank(self, places: Places) -> Rank:
        """Return the rank of the set PLACES; a lower rank is better."""
        near = self._near(places)
        touched = {self.accelerators.island[place] for place in places}
        left = {number: self._members[number] for number in touched}
        for place in places:
            left[self.accelerators.island[place]] -= 1
        broken = sum(
            self._members[n] for n, rest in left.items() if rest and n not in self.accelerators.broken
        )
        nodes = len({self.accelerators.numa[place] for place in places})
        # The nearness between the set and the accelerators that stay free.
        cut = sum(self.attachment[place] for place in places) - 2 * near
        islands = len(touched), broken, sum(left.values())
        return (*self._first(places, near), *islands, -near, nodes, cut, *places)

    def _first(self, places: Places, near: int) -> Rank:
        if not self._is_whole:
            return -near, sum(self.accelerators.free[place] for place in places) - self.count
        if len(self.accelerators.free) > EXHAUSTIVE or self.size == 1:
            return ()
        rest = tuple(place for place in range(len(self.accelerators.free)) if place not in places)
        total, least = self._division(rest)
        return -total - near, -min(near, least)

    def _near(self, places: Places) -> int:
        return sum(self.accelerators.near[one][other] for one, other in combinations(places, 2))

    def _division(self, places: Places) -> tuple[int, int]:
        """Return the total nearness and the least nearness of the sets in the best division of PLACES.

        One set may be smaller than the other sets. The nearness of the smaller set is part of the total only.
        """
        if len(places) <= 1:
            return 0, _INFINITE
        if places not in self._divisions:
            self._divisions[places] = max(self._divided(places))
        return self._divisions[places]

    def _divided(self, places: Places) -> Iterator[tuple[int, int]]:
        first, *others = places
        for size in {min(self.size, len(places)), len(places) % self.size or self.size}:
            for more in combinations(others, size - 1):
                near = self._near((first, *more))
                total, least = self._division(tuple(place for place in others if place not in more))
                yield total + near, min(least, near) if size == self.size else least

    def has_enough(self, places: Places) -> bool:
        """Return whether PLACES have ``count`` free units."""
        return sum(self.accelerators.free[place] for place in places) >= self.count

    def grown(self, start: Places) -> Places:
        """Add the nearest accelerators to START until it has ``size`` members; return the sorted result."""
        grown = start
        while len(grown) < self.size:
            grown = (*grown, self.nearest(grown)[0])
        return tuple(sorted(grown))

    def nearest(self, places: Places) -> list[int]:
        """Return the accelerators that can extend PLACES to a set with ``count`` units, the nearest first."""
        free, near = self.accelerators.free, self.accelerators.near
        others = [place for place in range(len(free)) if place not in places]
        missing = self.size - len(places)
        most = sorted((free[place] for place in others), reverse=True)
        # The units that the next accelerator must have if the accelerators after it have the most free units.
        least = self.count - sum(free[place] for place in places) - sum(most[: missing - 1])
        others = [place for place in others if min(free[place], most[missing - 1]) >= least]
        return sorted(
            others, key=lambda each: (-sum(near[each][n] for n in places), self.attachment[each], each)
        )

    def improved(self, places: Places, must: frozenset[int]) -> Places:
        """Exchange single accelerators in PLACES, except MUST, while the rank improves; return the result."""
        best = self.rank(places), places
        for _ in range(_ROUNDS):
            found = min((best, *self._exchanged(best[1], must)))
            if found == best:
                break
            best = found
        return best[1]

    def _exchanged(self, places: Places, must: frozenset[int]) -> Iterator[tuple[Rank, Places]]:
        for out in places:
            for into in range(len(self.accelerators.free)):
                if out not in must and into not in places:
                    other = tuple(sorted((*(each for each in places if each != out), into)))
                    if self.has_enough(other):
                        yield self.rank(other), other


# Higher than the nearness of any set.
_INFINITE = 1 << 62
