"""Check and sort the names of the CDI specification (vendor, class, kind, device), and read PCI addresses.

Source of the character rules: CDI's parser (container-device-interface, pkg/parser). Source of the lengths:
container-device-interface SPEC.md, "Kind". All letters and digits are ASCII.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

# Runtimes load only files with exactly these endings, including dot files. They do not load .yml or .JSON
# (docs/reference/cdi-loaders.md, "Directories").
SPEC_SUFFIXES = (".json", ".yaml")
MAX_VENDOR = 253
MAX_CLASS = 63
# The name of the device that adds only the driver's files of a kind, and no GPU. The device ``all`` does not
# include ``none``.
NONE = "none"

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_ALNUM = _LETTERS | _DIGITS
_KIND_INNER = _ALNUM | frozenset("_-.")
_DEVICE_INNER = _ALNUM | frozenset("_-.:")
_DIGIT_RUNS = re.compile("([0-9]+)")
# A PCI address as in sysfs (0000:65:00.0), as in NVML (a domain with eight digits), or as in lspci (without a
# domain).
_PCI = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.ASCII)


class NameSet:
    """A set of names (for example, of devices) with natural order and case-insensitive search.

    NAMES must not change. Results that are slow for thousands of names are computed at their first use.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    @cached_property
    def sorted(self) -> tuple[str, ...]:
        """The names, sorted by ``natural_key``."""
        return tuple(sorted(self._names, key=natural_key))

    @cached_property
    def _folded(self) -> dict[str, str]:
        folded: dict[str, str] = {}
        for one in self._names:
            other = folded.setdefault(one.lower(), one)
            if other is not one and natural_key(one) < natural_key(other):
                folded[one.lower()] = one
        return folded

    def find(self, name: str) -> str:
        """Return NAME if it is in the set, else the first name in another letter case, else an empty text."""
        return name if name in self._names else self._folded.get(name.lower(), "")


def is_vendor_or_class(name: str) -> bool:
    """Return whether NAME is valid as a vendor or a class, before or after the slash of a kind.

    One-letter names are invalid, although the specification permits them. Every released CDI library up to
    1.1.0 panics on one-letter names (container-device-interface issue 320).
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
    """Return whether NAME is valid as the name of a device: ``0``, ``GPU-...`` or ``0:1``."""
    return (
        bool(name)
        and name[0] in _ALNUM
        and name[-1] in _ALNUM
        and all(character in _DEVICE_INNER for character in name)
    )


def is_yaml(path: str) -> bool:
    """Return whether the spec file PATH is YAML; a file name that ends in .json means JSON."""
    return not path.lower().endswith(".json")


def spec_file_name(kind: str) -> str:
    """Return the file name for the spec of KIND: ``nvidia.com-gpu.json``."""
    return kind.replace("/", "-", 1) + ".json"


# Cached, because sorting needs the same few names many times.
@lru_cache(maxsize=4096)
def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts ``2`` before ``10`` and numbers before words.

    Runs of ASCII digits compare as numbers, and all other text compares as text. Equal numbers with different
    spelling (``1`` and ``01``) compare as text, so the order is total.
    """
    # After splitting at a group, the runs of digits are at the odd indices.
    return tuple(
        [_part(run, digits=bool(place % 2)) for place, run in enumerate(_DIGIT_RUNS.split(text)) if run]
    )


def _part(run: str, *, digits: bool) -> tuple[int, int, str]:
    # int() refuses more than 4,300 digits, so runs of more than 4,000 digits compare as text.
    if digits and len(run) <= 4000:
        return (0, int(run), run)
    return (1, 0, run)


def full_pci_address(text: str) -> str:
    """Return the PCI address TEXT with its domain, as in sysfs, or "" if TEXT is not a PCI address."""
    match = _PCI.fullmatch(text.lower())
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"
