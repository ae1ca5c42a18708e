"""The vendors that cdigen knows, by the name that ``--vendor`` takes.

Those in the tree are listed here. Another package adds one as an entry point of the group ``cdigen.vendors``
whose name is the vendor's; it is looked up only where somebody names it (docs/decisions/0011-vendors.md).
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint

    from cdigen.vendors.base import Vendor

# name -> (the vendor part of its kinds, the module whose VENDOR serves it)
VENDORS = {
    "nvidia": ("nvidia.com", "cdigen.vendors.nvidia.vendor"),
    "amd": ("amd.com", "cdigen.vendors.amd.vendor"),
    "intel": ("intel.com", "cdigen.vendors.intel.vendor"),
}
ENTRY_POINTS = "cdigen.vendors"
# What base.Vendor asks for.
_NEEDED = (
    "NAME",
    "CDI_VENDOR",
    "NAMINGS",
    "OPTIONS",
    "MODULES",
    "PCI_VENDORS",
    "discover",
    "edits",
    "watches",
    "missing_nodes",
    "wrong_nodes",
    "pitfalls",
)


class _Names:
    """The names that may be given: those in the tree, and any that a package adds."""

    def __iter__(self) -> Iterator[str]:
        return iter(VENDORS)

    def __len__(self) -> int:
        return len(VENDORS)

    def __contains__(self, name: object) -> bool:
        return name in VENDORS or (isinstance(name, str) and _entry_point(name) is not None)


NAMES = _Names()


@lru_cache(maxsize=64)
def load(name: str) -> Vendor:
    """Import and return the vendor NAME; raises ConfigError where no package has it, or one that is none."""
    if name in VENDORS:
        vendor: Vendor = import_module(VENDORS[name][1]).VENDOR
        return vendor
    entry = _entry_point(name)
    if entry is None:
        raise ConfigError(
            f"the vendor {name!r} is unknown; known are {', '.join(VENDORS)}",
            hint=f"another package adds one as an entry point of the group {ENTRY_POINTS}",
        )
    return _added(name, entry)


def cdi_vendor(name: str) -> str:
    """Return the vendor part of the kinds of the vendor NAME; raises as ``load`` does."""
    return VENDORS[name][0] if name in VENDORS else load(name).CDI_VENDOR


def prefixes(names: Iterable[str] = VENDORS) -> tuple[str, ...]:
    """Return what the kinds of the vendors NAMES begin with."""
    return tuple(f"{cdi_vendor(name)}/" for name in names)


def vendor_of(kind: str, names: Iterable[str]) -> str:
    """Return which of the vendors NAMES offers KIND, or an empty string."""
    return next((name for name in names if kind.startswith(f"{cdi_vendor(name)}/")), "")


@lru_cache(maxsize=64)
def _entry_point(name: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, and hardly anybody needs it

    return next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)


def _added(name: str, entry: EntryPoint) -> Vendor:
    hint = "mend or remove the package that adds it"
    try:
        vendor: Vendor = entry.load()
    except Exception as error:
        raise ConfigError(
            f"the vendor {name} cannot be loaded from {entry.value}: {type(error).__name__}: {error}",
            hint=hint,
            kind="vendor-defect",
        ) from error
    if lacking := [needed for needed in _NEEDED if not hasattr(vendor, needed)]:
        raise ConfigError(
            f"the vendor {name} ({entry.value}) lacks {', '.join(lacking)}", hint=hint, kind="vendor-defect"
        )
    if name != vendor.NAME or vendor.CDI_VENDOR in {row[0] for row in VENDORS.values()}:
        raise ConfigError(
            f"the vendor {name} ({entry.value}) calls itself {vendor.NAME!r} of {vendor.CDI_VENDOR!r}",
            hint=hint,
            kind="vendor-defect",
        )
    return vendor
