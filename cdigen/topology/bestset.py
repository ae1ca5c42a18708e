"""Find the best accelerators for one container: ``best_set``.

Accelerators are numbers here: their places in the order of their indices.
"""

from __future__ import annotations

from itertools import combinations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    # Ranks of sets of one size are compared; the least is the best.
    Rank = tuple[int, ...]
    Places = tuple[int, ...]

# So many accelerators have at most 280 divisions into sets of one size; sixteen have two million into pairs.
EXHAUSTIVE = 8
# From how many accelerators a set is grown at most, and how often it is improved: what bounds the time.
_SEEDS = 16
# Of so many islands at most, those that fit together are looked for: with more, hardly any device is linked.
_ISLANDS = 6
_ROUNDS = 8


@frozen
class Field:
    """The accelerators of which something is free, by their places.

    ``near`` is how near each is to each other (``Relation.nearness``), ``free`` how many of its units are
    free, ``island`` the number of the island that links join it to; of islands in ``broken``, something is in
    use. ``numa`` are NUMA nodes; one that is not known is a node of its own.
    """

    near: tuple[Places, ...]
    free: Places
    island: Places
    broken: frozenset[int]
    numa: Places


def best_set(field: Field, must: frozenset[int], count: int) -> tuple[int, ...]:
    """Return the accelerators, those of MUST among them, that are best to take COUNT units from.

    They are as few as possible, and of all such sets the one of the least rank (``_Ranking.rank``); of more
    than ``EXHAUSTIVE`` accelerators, the least of those that growing and exchanging finds. COUNT is at most
    what is free.
    """
    size = _fewest(field, must, count)
    places = range(len(field.free))
    others = [place for place in places if place not in must]
    ranking = _Ranking(field, count, size)
    if len(places) <= EXHAUSTIVE:
        sets = (tuple(sorted((*must, *more))) for more in combinations(others, size - len(must)))
        return min((each for each in sets if ranking.has_enough(each)), key=ranking.rank)
    if size == len(must):
        return tuple(sorted(must))
    seeds = sorted(ranking.nearest((*must,)), key=lambda place: (ranking.attachment[place], place))[:_SEEDS]
    starts = [(*must, seed) for seed in seeds]
    if max(field.free) == 1:
        starts += _island_starts(field, must, size)
    grown = {ranking.grown(start) for start in starts}
    return ranking.improved(min(grown, key=ranking.rank), must)


def _island_starts(field: Field, must: frozenset[int], size: int) -> Iterator[Places]:
    """Yield starts of sets in as few islands as possible: all of them but one, and the first of that."""
    members: dict[int, list[int]] = {}
    for place, island in enumerate(field.island):
        members.setdefault(island, []).append(place)
    if len(members) > _ISLANDS:
        return
    needed = {field.island[place] for place in must}
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


def _fewest(field: Field, must: frozenset[int], count: int) -> int:
    """Return how few accelerators have COUNT units free, those of MUST among them."""
    size, have = len(must), sum(field.free[place] for place in must)
    for free in sorted((free for place, free in enumerate(field.free) if place not in must), reverse=True):
        if have >= count:
            break
        size, have = size + 1, have + free
    return size


class _Ranking:
    """Ranks sets of SIZE accelerators from which COUNT units are taken."""

    def __init__(self, field: Field, count: int, size: int) -> None:
        self.field, self.count, self.size = field, count, size
        self.attachment = [sum(row) for row in field.near]
        self._members = {number: field.island.count(number) for number in field.island}
        self._is_whole = max(field.free) == 1
        self._divisions: dict[Places, tuple[int, int]] = {}
        self._most_free = sorted(field.free, reverse=True)

    def rank(self, places: Places) -> Rank:
        """Return the rank of the set PLACES; of two sets, that of the lower rank is better."""
        near = self._near(places)
        touched = {self.field.island[place] for place in places}
        left = {number: self._members[number] for number in touched}
        for place in places:
            left[self.field.island[place]] -= 1
        broken = sum(self._members[n] for n, rest in left.items() if rest and n not in self.field.broken)
        nodes = len({self.field.numa[place] for place in places})
        # How near the set is to what it leaves behind.
        torn = sum(self.attachment[place] for place in places) - 2 * near
        islands = len(touched), broken, sum(left.values())
        return (*self._first(places, near), *islands, -near, nodes, torn, *places)

    def _first(self, places: Places, near: int) -> Rank:
        if not self._is_whole:
            return -near, sum(self.field.free[place] for place in places) - self.count
        if len(self.field.free) > EXHAUSTIVE or self.size == 1:
            return ()
        rest = tuple(place for place in range(len(self.field.free)) if place not in places)
        total, least = self._division(rest)
        return -total - near, -min(near, least)

    def _near(self, places: Places) -> int:
        return sum(self.field.near[one][other] for one, other in combinations(places, 2))

    def _division(self, places: Places) -> tuple[int, int]:
        """Return how near the sets are, in all and at least, into which PLACES are divided best.

        One of them may be smaller than the others; it counts in the sum alone.
        """
        if len(places) <= 1:
            return 0, _ENDLESS
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
        """Tell whether COUNT units are free of PLACES."""
        return sum(self.field.free[place] for place in places) >= self.count

    def grown(self, start: Places) -> Places:
        """Return START with the nearest other added, again and again, in order."""
        grown = start
        while len(grown) < self.size:
            grown = (*grown, self.nearest(grown)[0])
        return tuple(sorted(grown))

    def nearest(self, places: Places) -> list[int]:
        """Return what may be added to PLACES if the set is to have enough in the end, the nearest first."""
        free, near = self.field.free, self.field.near
        others = [place for place in range(len(free)) if place not in places]
        wanted = self.size - len(places)
        most = sorted((free[place] for place in others), reverse=True)
        # What has to come from the next, if those after it bring the most.
        least = self.count - sum(free[place] for place in places) - sum(most[: wanted - 1])
        others = [place for place in others if min(free[place], most[wanted - 1]) >= least]
        return sorted(
            others, key=lambda each: (-sum(near[each][n] for n in places), self.attachment[each], each)
        )

    def improved(self, places: Places, must: frozenset[int]) -> Places:
        """Return PLACES after exchanges of one for another, while they improve it; those of MUST stay."""
        best = self.rank(places), places
        for _ in range(_ROUNDS):
            found = min((best, *self._exchanged(best[1], must)))
            if found == best:
                break
            best = found
        return best[1]

    def _exchanged(self, places: Places, must: frozenset[int]) -> Iterator[tuple[Rank, Places]]:
        for out in places:
            for into in range(len(self.field.free)):
                if out not in must and into not in places:
                    other = tuple(sorted((*(each for each in places if each != out), into)))
                    if self.has_enough(other):
                        yield self.rank(other), other


# More than any set of accelerators is near.
_ENDLESS = 1 << 62
