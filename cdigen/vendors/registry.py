"""The vendors that cdigen knows, by the name that ``--vendor`` takes.

Those in the tree are listed here. Another package adds one as an entry point of the group ``cdigen.vendors``
whose name is the vendor's; it is looked up only where somebody names it
(docs/decisions/0011-out-of-tree-vendors.md).
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from cdigen.model.errors import ConfigError
from cdigen.model.profile import NAMINGS, is_naming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint

    from cdigen.vendors.base import ResourceNames, Vendor, VisibleDevices
    from cdigen.vendors.health import VendorHealth

# name -> (the vendor part of its kinds, the module whose VENDOR serves it)
VENDORS = {
    "nvidia": ("nvidia.com", "cdigen.vendors.nvidia.vendor"),
    "amd": ("amd.com", "cdigen.vendors.amd.vendor"),
    "intel": ("intel.com", "cdigen.vendors.intel.vendor"),
}
# Further vendor parts of a vendor's kinds, where software asks for a name that has another.
FURTHER = {"nvidia": ("management.nvidia.com",)}
ENTRY_POINTS = "cdigen.vendors"
# NVIDIA's variables have a reader of their own (nri.decision.environment), and its images set others.
_NVIDIAS = ("NVIDIA_*", "CUDA_*")
# Modules with the VISIBLE_DEVICES of the vendors in the tree that have any, and of makers that are none of
# them.
_VISIBLE = ("cdigen.vendors.amd.visible", "cdigen.vendors.intel.visible", "cdigen.vendors.others")

# Modules with the RESOURCES of the vendors in the tree.
_RESOURCES: dict[str, str] = {
    "nvidia": "cdigen.vendors.nvidia.resources",
    "amd": "cdigen.vendors.amd.resources",
    "intel": "cdigen.vendors.intel.resources",
}
# Modules with the HEALTH of the vendors in the tree.
_HEALTH: dict[str, str] = {
    "nvidia": "cdigen.vendors.nvidia.health",
    "amd": "cdigen.vendors.amd.health",
    "intel": "cdigen.vendors.intel.health",
}


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
    """Import and return the vendor NAME; raises ConfigError where no package has it.

    One that another package adds and that cannot be used is a vendor whose ``discover`` says so.
    """
    if name in VENDORS:
        own: Vendor = import_module(VENDORS[name][1]).VENDOR
        return own
    entry = _entry_point(name)
    if entry is None:
        raise ConfigError(
            f"the vendor {name!r} is unknown; known are {', '.join(VENDORS)}",
            hint=f"another package adds one as an entry point of the group {ENTRY_POINTS}",
        )
    from cdigen.vendors import plugin  # noqa: PLC0415 - hardly anybody has one

    taken = tuple(part for known in VENDORS for part in cdi_vendors(known))
    variables = [variable for row in visible_devices() for variable in row.variables]
    added: Vendor = plugin.load(name, entry, taken, (*_NVIDIAS, *variables))
    return added


def health(name: str) -> VendorHealth | None:
    """Return how the vendor NAME tells its devices' health, None where nobody can: another package's."""
    return import_module(_HEALTH[name]).HEALTH if name in _HEALTH else None


def resource_names(name: str) -> tuple[ResourceNames, ...]:
    """Return what pods ask for to get devices of the vendor NAME; none of one that another package adds."""
    return import_module(_RESOURCES[name]).RESOURCES if name in _RESOURCES else ()


def cdi_vendor(name: str) -> str:
    """Return the vendor part of the kinds of the vendor NAME; raises as ``load`` does."""
    return VENDORS[name][0] if name in VENDORS else load(name).CDI_VENDOR


def cdi_vendors(name: str) -> tuple[str, ...]:
    """Return every vendor part of the kinds of the vendor NAME, its own first; raises as ``load`` does."""
    return (cdi_vendor(name), *FURTHER.get(name, ()))


@lru_cache(maxsize=4)
def visible_devices(names: tuple[str, ...] = ()) -> tuple[VisibleDevices, ...]:
    """Return how containers ask for devices by variables: of all makers known here, whatever NAMES says.

    Of vendors that another package adds, those among NAMES; raises as ``load`` does.
    """
    own = [row for module in _VISIBLE for row in import_module(module).VISIBLE_DEVICES]
    packaged = [load(name) for name in names if name not in VENDORS]
    added = [row for vendor in packaged for row in getattr(vendor, "VISIBLE_DEVICES", ())]
    return (*own, *added)


def has_naming(naming: str, names: Iterable[str]) -> bool:
    """Return whether devices of any of the vendors NAMES may be named so.

    What one of another package that cannot be used would have is not known.
    """
    others = (load(name) for name in names if name not in VENDORS)
    return naming in NAMINGS or any(
        naming in vendor.NAMINGS or not vendor.NAMINGS for vendor in others if is_naming(naming)
    )


def require_distinct_kinds(names: Iterable[str]) -> None:
    """Raise ConfigError where two of NAMES would have the same kinds: nobody could tell whose is whose."""
    owners: dict[str, str] = {}
    for name in names:
        other = owners.setdefault(cdi_vendor(name), name)
        if other != name:
            raise ConfigError(
                f"the vendors {other} and {name} both have the kinds of {cdi_vendor(name)}",
                hint="name one of them",
            )


def prefixes(names: Iterable[str] = VENDORS) -> tuple[str, ...]:
    """Return what the kinds of the vendors NAMES begin with."""
    return tuple(f"{part}/" for name in names for part in cdi_vendors(name))


def vendor_of(kind: str, names: Iterable[str]) -> str:
    """Return which of the vendors NAMES offers KIND, or an empty string."""
    return next((name for name in names if kind.startswith(prefixes((name,)))), "")


@lru_cache(maxsize=64)
def _entry_point(name: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, and hardly anybody needs it

    return next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)
