"""What containers request by the variables of other makers than NVIDIA. Pure.

Each vendor has its own table of them (``vendors.base.VisibleDevices``); here they are read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from cdigen.nri.decision.refusal import Refusal, quote
from cdigen.nri.decision.request import (
    MAX_DEVICES,
    MAX_TEXT,
    DeviceRequest,
    comma_list,
    decisive_word,
    is_qualified,
    qualified_request,
    words_of,
)
from cdigen.value import frozen
from cdigen.vendors.registry import visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cdigen.nri.decision.select import DeviceNames
    from cdigen.vendors.base import VisibleDevices

ALL = "all"
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)
# Of a list, repetitions included: whoever names each of 256 devices four times means something else.
_MAX_LISTED = 4 * MAX_DEVICES
_TELLING = 32


@frozen
class Asked:
    """What the VARIABLE holds, which asks for devices as ROW says."""

    row: VisibleDevices
    variable: str
    text: str


class Makers:
    """The tables of all makers, ROWS; ``kinds`` are those that their variables name.

    ``usual`` are those of them that are nobody's in particular, as other pods' claims are.
    """

    def __init__(self, rows: tuple[VisibleDevices, ...]) -> None:
        self._rows = rows
        variables = [name for row in rows for name in row.variables]
        self._exact = frozenset(name for name in variables if not name.endswith("*"))
        self._begins = tuple(name[:-1] for name in variables if name.endswith("*"))
        self.begins = (*self._exact, *self._begins)
        self.kinds = tuple(dict.fromkeys(kind for row in rows if row.variables for kind in row.kinds))
        claimed = {kind for row in rows for kind in row.claimed}
        self.usual = tuple(kind for kind in self.kinds if kind not in claimed)
        # A container that asks for 64 GPUs asks 64 times for the same kind.
        self.of_kind = lru_cache(maxsize=64)(self._of_kind)

    def reads(self, name: str) -> bool:
        """Return whether NAME is a variable that may ask for devices."""
        return name in self._exact or (bool(self._begins) and name.startswith(self._begins))

    def asked(self, values: dict[str, str]) -> tuple[Asked, ...]:
        """Return what counts of VALUES, the variables that are set, in the order in which they were."""
        return tuple(found for row in self._rows if (found := _asked(row, values))) if values else ()

    def _of_kind(self, kind: str) -> VisibleDevices | None:
        """Return the table of the devices of KIND, also where a profile has given the class another name."""
        vendor = kind.partition("/")[0]
        for row in self._rows:
            vendors = {own.partition("/")[0] for own in row.kinds}
            if kind in row.kinds or (vendor in vendors and re.fullmatch(row.given_as, kind)):
                return row
        return None

    def requests(
        self,
        asked: Iterable[Asked],
        names: DeviceNames,
        permits: Callable[[str], bool],
        note: Callable[[str, str], None],
    ) -> Iterator[DeviceRequest]:
        """Yield what ASKED requests, by the kinds and names that the host's specs have; raises Refusal.

        Of several kinds the first that the policy PERMITS; where it permits none, the first that is there.
        Variables stand in images for every host: of makers that no spec is of, NOTE is told, and only what
        names its kind is meant for this one.
        """
        for one in asked:
            there = [kind for kind in one.row.kinds if names.has_kind(kind)]
            if there:
                yield from _requested(one, next(filter(permits, there), there[0]), names)
                continue
            words = comma_list(one.text[:MAX_TEXT])
            if decisive_word(words) in {"", ALL}:
                named = [word for word in words if is_qualified(word)]
                yield from (qualified_request(word, one.variable) for word in named[: MAX_DEVICES + 1])
                if len(named) < len(words):
                    text = f"{one.variable} does not count: no spec of {' or '.join(one.row.kinds)}"
                    note("no_spec", text)


@lru_cache(maxsize=4)
def makers_of(vendors: tuple[str, ...] = ()) -> Makers:
    """Return the tables of the makers known here, and of those VENDORS that other packages add."""
    return Makers(visible_devices(vendors))


def _requested(asked: Asked, kind: str, names: DeviceNames) -> Iterator[DeviceRequest]:
    words = words_of(asked.text, asked.variable)
    if decisive := decisive_word(words):
        words = [ALL] if decisive == ALL else []
    listed = 0
    for word in words:
        if is_qualified(word):
            yield qualified_request(word, asked.variable)
            continue
        tokens = _range(word, asked.variable) if asked.row.has_ranges else (word,)
        listed += len(tokens)
        if listed > _MAX_LISTED:
            raise Refusal("too_much", f"{asked.variable} lists more than {MAX_DEVICES} devices")
        for token in tokens:
            name = _name(asked.row, kind, token, names)
            yield DeviceRequest(token=name, kind=kind, origin=asked.variable)


def _asked(row: VisibleDevices, values: dict[str, str]) -> Asked | None:
    for name in row.variables:
        if name.endswith("*"):
            # Of several the last, as for AMD's runtime.
            for variable, text in islice(reversed(values.items()), MAX_DEVICES):
                if variable.startswith(name[:-1]) and text and _are_words(text, row.words):
                    return Asked(row=row, variable=variable, text=text)
        elif text := values.get(name, ""):
            return Asked(row=row, variable=name, text=text)
    return None


def _are_words(text: str, pattern: str) -> bool:
    # The first tell; what is wrong with a list is said where it is read.
    words = [word.strip() for word in text.split(",", _TELLING)[:_TELLING]]
    return any(words) and all(re.fullmatch(pattern, word, re.IGNORECASE) for word in words if word)


def _name(row: VisibleDevices, kind: str, token: str, names: DeviceNames) -> str:
    if token == ALL:
        return token
    possible = row.names(token)
    return next((name for name in possible if names.find(kind, name)), possible[0])


def _range(word: str, variable: str) -> tuple[str, ...]:
    ends = _RANGE.fullmatch(word)
    if not ends:
        return (word,)
    first, last = int(ends[1]), int(ends[2])
    if not 0 <= last - first < MAX_DEVICES:
        raise Refusal("malformed", f"{variable} holds {quote(word)}, not a range of up to {MAX_DEVICES}")
    return tuple(map(str, range(first, last + 1)))
