"""Pure functions that read the requests in the variables of vendors other than NVIDIA.

Each vendor's package contains tables (``vendors.base.VisibleDevices``) of the vendor's variables.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice

from cdigen.nri.decision.request.device_request import (
    MAX_DEVICES,
    MAX_TEXT,
    DeviceRequest,
    comma_list,
    decisive_word,
    is_qualified,
    qualified_request,
    words_of,
)
from cdigen.nri.decision.request.refusal import InjectionRefusal, quote
from cdigen.value import frozen
from cdigen.vendors.registry import visible_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cdigen.nri.decision.request.select import DeviceNames
    from cdigen.vendors.base import VisibleDevices

ALL = "all"
_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})", re.ASCII)
# The maximum number of entries in a list with repetitions. A list can contain each of 256 devices four times.
_MAX_LISTED = 4 * MAX_DEVICES
# The number of words at the start of a list that cdigen checks to detect a device list.
_SAMPLED = 32


@frozen
class VariableRequest:
    """The ``text`` of ``variable``, which requests devices according to the table ``row``."""

    row: VisibleDevices
    variable: str
    text: str


class VendorVariables:
    """The tables of all vendors.

    ``kinds`` are the kinds that the variables in ROWS request. ``default_kinds`` are the same kinds, except
    the kinds for DRA claims. The devices of a DRA claim belong to one pod.
    """

    def __init__(self, rows: tuple[VisibleDevices, ...]) -> None:
        self._rows = rows
        variables = [name for row in rows for name in row.variables]
        self._exact = frozenset(name for name in variables if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in variables if name.endswith("*"))
        self.prefixes = (*self._exact, *self._prefixes)
        self.kinds = tuple(dict.fromkeys(kind for row in rows if row.variables for kind in row.kinds))
        claimed = {kind for row in rows for kind in row.claimed}
        self.default_kinds = tuple(kind for kind in self.kinds if kind not in claimed)
        # For a container that requests 64 GPUs, the function is called 64 times with the same kind.
        self.of_kind = lru_cache(maxsize=64)(self._of_kind)

    def is_read(self, name: str) -> bool:
        """Return whether the variable NAME can request devices."""
        return name in self._exact or (bool(self._prefixes) and name.startswith(self._prefixes))

    def read(self, values: dict[str, str]) -> tuple[VariableRequest, ...]:
        """Return the requests in VALUES, which are the variables of a container in their order."""
        return tuple(found for row in self._rows if (found := _read_variable(row, values))) if values else ()

    def _of_kind(self, kind: str) -> VisibleDevices | None:
        """Return the table for devices of KIND, or None.

        A table also matches if a profile has changed the name of the device class.
        """
        vendor = kind.partition("/")[0]
        for row in self._rows:
            vendors = {own.partition("/")[0] for own in row.kinds}
            if kind in row.kinds or (vendor in vendors and re.fullmatch(row.allocated_kinds, kind)):
                return row
        return None

    def requests(
        self,
        read: Iterable[VariableRequest],
        names: DeviceNames,
        permits: Callable[[str], bool],
        on_ignored: Callable[[str, str], None],
    ) -> Iterator[DeviceRequest]:
        """Yield the device requests in READ, with the kinds and names of the host's specs.

        If several kinds have specs, the first kind that the policy permits is used (PERMITS). If the policy
        permits no kind, the first kind is used. If the vendor has no spec, a request without a kind is
        ignored and reported with ON_IGNORED. The variable can come from an image for all hosts. A request
        with a kind is for this host, and is not ignored. Raise InjectionRefusal for an invalid list.
        """
        for one in read:
            kinds = [kind for kind in one.row.kinds if names.has_kind(kind)]
            if kinds:
                yield from _expand(one, next(filter(permits, kinds), kinds[0]), names)
                continue
            words = comma_list(one.text[:MAX_TEXT])
            if decisive_word(words) in {"", ALL}:
                named = [word for word in words if is_qualified(word)]
                yield from (qualified_request(word, one.variable) for word in named[: MAX_DEVICES + 1])
                if len(named) < len(words):
                    text = f"{one.variable} ignored: no spec of {' or '.join(one.row.kinds)}"
                    on_ignored("no_spec", text)


@lru_cache(maxsize=4)
def vendor_variables_of(vendors: tuple[str, ...] = ()) -> VendorVariables:
    """Return the tables of the built-in vendors, and the tables of VENDORS from other Python packages."""
    return VendorVariables(visible_devices(vendors))


def _expand(read: VariableRequest, kind: str, names: DeviceNames) -> Iterator[DeviceRequest]:
    words = words_of(read.text, read.variable)
    if decisive := decisive_word(words):
        words = [ALL] if decisive == ALL else []
    listed = 0
    for word in words:
        if is_qualified(word):
            yield qualified_request(word, read.variable)
            continue
        tokens = _range(word, read.variable) if read.row.has_ranges else (word,)
        listed += len(tokens)
        if listed > _MAX_LISTED:
            raise InjectionRefusal("too_much", f"{read.variable} lists more than {MAX_DEVICES} devices")
        for token in tokens:
            name = _name(read.row, kind, token, names)
            yield DeviceRequest(token=name, kind=kind, origin=read.variable)


def _read_variable(row: VisibleDevices, values: dict[str, str]) -> VariableRequest | None:
    for name in row.variables:
        if name.endswith("*"):
            # If several variables match the prefix, the last variable applies, as in AMD's runtime.
            for variable, text in islice(reversed(values.items()), MAX_DEVICES):
                if variable.startswith(name[:-1]) and text and _are_words(text, row.words):
                    return VariableRequest(row=row, variable=variable, text=text)
        elif text := values.get(name, ""):
            return VariableRequest(row=row, variable=name, text=text)
    return None


def _are_words(text: str, pattern: str) -> bool:
    # Only the first words are checked. Errors in the list are reported when the list is parsed.
    words = [word.strip() for word in text.split(",", _SAMPLED)[:_SAMPLED]]
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
        raise InjectionRefusal(
            "malformed", f"{variable} contains {quote(word)}, which is not a range of up to {MAX_DEVICES}"
        )
    return tuple(map(str, range(first, last + 1)))
