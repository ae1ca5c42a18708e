"""Check and sort the names of the CDI specification: vendor, class, kind, device.

The character rules are those of CDI's own parser (container-device-interface, pkg/parser), the
lengths those of its SPEC.md, "Kind"; letters and digits are ASCII throughout.
"""

from __future__ import annotations

import re
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Runtimes load files whose names end in exactly these, dot files included, but not .yml or .JSON
# (docs/cdi.md, "Directories").
SPEC_SUFFIXES = (".json", ".yaml")
MAX_VENDOR = 253
MAX_CLASS = 63
# The device of a kind that gives the driver's files without a GPU, and is no part of the device ``all``.
NONE = "none"

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ALNUM = _LETTERS | _DIGITS
_KIND_INNER = _ALNUM | frozenset("_-.")
_DEVICE_INNER = _ALNUM | frozenset("_-.:")
_DIGIT_RUNS = re.compile("([0-9]+)")


class NameSet:
    """Different names, such as those of a kind's devices: in the order people expect, and in any letter case.

    NAMES must not change. What takes long with thousands of them is computed when it is first asked for.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._sorted: tuple[str, ...] | None = None
        self._folded: dict[str, str] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @property
    def sorted(self) -> tuple[str, ...]:
        """The names, sorted by ``natural_key``."""
        if self._sorted is None:
            self._sorted = tuple(sorted(self._names, key=natural_key))
        return self._sorted

    def find(self, name: str) -> str:
        """Return NAME, else the first that differs from it in the case of letters; empty: there is none."""
        if name in self._names:
            return name
        if self._folded is None:
            folded: dict[str, str] = {}
            for one in self._names:
                other = folded.setdefault(one.lower(), one)
                if other is not one and natural_key(one) < natural_key(other):
                    folded[one.lower()] = one
            self._folded = folded
        return self._folded.get(name.lower(), "")


def is_vendor_or_class(name: str) -> bool:
    """Return whether NAME may be a vendor or a class, before or after the slash of a kind.

    One-letter names are refused although the rule allows them: every released CDI library up to
    1.1.0 panics on them (container-device-interface issue 320).
    """
    return (
        len(name) >= 2
        and name[0] in _LETTERS
        and name[-1] in _ALNUM
        and all(character in _KIND_INNER for character in name)
    )


def is_kind(kind: str) -> bool:
    """Return whether KIND is ``vendor/class`` with lengths that the specification allows."""
    vendor, slash, class_ = kind.partition("/")
    return (
        bool(slash)
        and len(vendor) <= MAX_VENDOR
        and len(class_) <= MAX_CLASS
        and is_vendor_or_class(vendor)
        and is_vendor_or_class(class_)
    )


def is_device_name(name: str) -> bool:
    """Return whether NAME may name a device within a kind, such as ``0`` or ``GPU-...`` or ``0:1``."""
    return (
        bool(name)
        and name[0] in _ALNUM
        and name[-1] in _ALNUM
        and all(character in _DEVICE_INNER for character in name)
    )


def is_yaml(path: str) -> bool:
    """Return whether the spec file PATH is YAML by its name; any other is JSON."""
    return not path.lower().endswith(".json")


def spec_file_name(kind: str) -> str:
    """Return the file name for the spec of KIND: ``nvidia.com-gpu.json``."""
    return kind.replace("/", "-", 1) + ".json"


# Cached: sorting needs the same few names again and again.
@lru_cache(maxsize=4096)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts ``2`` before ``10`` and numbers before words.

    Runs of ASCII digits compare as numbers, everything between them as text; equal numbers of
    different spelling (``1`` and ``01``) fall back to their text, so the order is total.
    """
    # After splitting at a group, the runs of digits are at the odd indices.
    return tuple(
        [_part(run, digits=bool(place % 2)) for place, run in enumerate(_DIGIT_RUNS.split(text)) if run]
    )


def _part(run: str, *, digits: bool) -> tuple[int, int, str]:
    # A run of digits of any length is a number; int() refuses more than 4,300 digits.
    if digits and len(run) <= 4000:
        return (0, int(run), run)
    return (1, 0, run)
