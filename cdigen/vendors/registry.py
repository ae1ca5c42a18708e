"""The vendors that cdigen supports, by the name for ``--vendor``.

This module lists the vendors in the tree. Another package adds a vendor as an entry point of the group
``cdigen.vendors``. The entry point has the name of the vendor. cdigen searches for an entry point only if an
option or the configuration contains the name (docs/decisions/0011-out-of-tree-vendors.md).
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

    from cdigen.vendors.base import BootNodes, ResourceNames, Vendor, VisibleDevices
    from cdigen.vendors.health import VendorHealth

# name -> (vendor part of the CDI kinds, module that defines VENDOR)
VENDORS = {
    "nvidia": ("nvidia.com", "cdigen.vendors.nvidia.vendor"),
    "amd": ("amd.com", "cdigen.vendors.amd.vendor"),
    "intel": ("intel.com", "cdigen.vendors.intel.vendor"),
}
# Additional vendor parts of CDI kinds by which some software requests devices.
FURTHER = {"nvidia": ("management.nvidia.com",)}
ENTRY_POINTS = "cdigen.vendors"
# nri.decision.environment reads NVIDIA's variables for device requests. NVIDIA's images set further variables
# with these prefixes.
_NVIDIAS = ("NVIDIA_*", "CUDA_*")
# Modules with VISIBLE_DEVICES, of vendors in the tree and of vendors that cdigen does not discover.
_VISIBLE = ("cdigen.vendors.amd.visible", "cdigen.vendors.intel.visible", "cdigen.vendors.other_vendors")

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
# Modules with the BOOT_NODES of the vendors in the tree for which the kernel does not create device nodes.
_BOOT_NODES: dict[str, str] = {"nvidia": "cdigen.vendors.nvidia.boot_nodes"}


class _Names:
    """The permitted vendor names. Iteration yields only the vendors in the tree."""

    def __iter__(self) -> Iterator[str]:
        return iter(VENDORS)

    def __len__(self) -> int:
        return len(VENDORS)

    def __contains__(self, name: object) -> bool:
        return name in VENDORS or (isinstance(name, str) and _entry_point(name) is not None)


NAMES = _Names()


@lru_cache(maxsize=64)
def load(name: str) -> Vendor:
    """Return the vendor NAME; raise ConfigError if no package has a vendor with this name.

    The function imports the vendor's module. If the vendor of another package cannot be used, the function
    raises no error. The vendor's ``discover`` then raises the error.
    """
    if name in VENDORS:
        own: Vendor = import_module(VENDORS[name][1]).VENDOR
        return own
    entry = _entry_point(name)
    if entry is None:
        raise ConfigError(
            f"unknown vendor {name!r} (known: {', '.join(VENDORS)})",
            hint=f"install the package that adds the vendor as an entry point of the group {ENTRY_POINTS}",
        )
    from cdigen.vendors import plugin  # noqa: PLC0415 - rarely used

    used = tuple(part for known in VENDORS for part in cdi_vendors(known))
    variables = [variable for row in visible_devices() for variable in row.variables]
    added: Vendor = plugin.load(name, entry, used, (*_NVIDIAS, *variables))
    return added


def health(name: str) -> VendorHealth | None:
    """Return the health interface of the vendor NAME, or None for a vendor of another package."""
    return import_module(_HEALTH[name]).HEALTH if name in _HEALTH else None


def resource_names(name: str) -> tuple[ResourceNames, ...]:
    """Return the extended resources of the vendor NAME; empty for a vendor of another package."""
    return import_module(_RESOURCES[name]).RESOURCES if name in _RESOURCES else ()


def boot_nodes(name: str) -> BootNodes | None:
    """Return the BOOT_NODES of the vendor NAME, or None if the kernel creates the vendor's nodes."""
    return import_module(_BOOT_NODES[name]).BOOT_NODES if name in _BOOT_NODES else None


def cdi_vendor(name: str) -> str:
    """Return the vendor part of the kinds of the vendor NAME; raise the same errors as ``load``."""
    return VENDORS[name][0] if name in VENDORS else load(name).CDI_VENDOR


def cdi_vendors(name: str) -> tuple[str, ...]:
    """Return all vendor parts of the kinds of the vendor NAME; raise the same errors as ``load``.

    The first element is the result of ``cdi_vendor``.
    """
    return (cdi_vendor(name), *FURTHER.get(name, ()))


@lru_cache(maxsize=4)
def visible_devices(names: tuple[str, ...] = ()) -> tuple[VisibleDevices, ...]:
    """Return the VISIBLE_DEVICES of all vendors; raise the same errors as ``load``.

    The result always includes the vendors in ``_VISIBLE``. A vendor of another package is included if NAMES
    contains its name.
    """
    own = [row for module in _VISIBLE for row in import_module(module).VISIBLE_DEVICES]
    packaged = [load(name) for name in names if name not in VENDORS]
    added = [row for vendor in packaged for row in getattr(vendor, "VISIBLE_DEVICES", ())]
    return (*own, *added)


def has_naming(naming: str, names: Iterable[str]) -> bool:
    """Return whether any of the vendors NAMES has the device naming NAMING.

    If a vendor of another package cannot be used, every valid naming is permitted for the vendor.
    """
    others = (load(name) for name in names if name not in VENDORS)
    return naming in NAMINGS or any(
        naming in vendor.NAMINGS or not vendor.NAMINGS for vendor in others if is_naming(naming)
    )


def require_distinct_kinds(names: Iterable[str]) -> None:
    """Raise ConfigError if two of the vendors NAMES have the same CDI vendor.

    With equal CDI vendors, cdigen could not find the vendor of a spec by its kind.
    """
    owners: dict[str, str] = {}
    for name in names:
        other = owners.setdefault(cdi_vendor(name), name)
        if other != name:
            raise ConfigError(
                f"the vendors {other} and {name} both have the CDI vendor {cdi_vendor(name)}",
                hint="select only one of the two vendors",
            )


def prefixes(names: Iterable[str] = VENDORS) -> tuple[str, ...]:
    """Return the prefixes of the kinds of the vendors NAMES, such as ``amd.com/``."""
    return tuple(f"{part}/" for name in names for part in cdi_vendors(name))


def vendor_of(kind: str, names: Iterable[str]) -> str:
    """Return the vendor among NAMES that has KIND, or an empty string."""
    return next((name for name in names if kind.startswith(prefixes((name,)))), "")


@lru_cache(maxsize=64)
def _entry_point(name: str) -> EntryPoint | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, rarely used

    return next(iter(entry_points(group=ENTRY_POINTS, name=name)), None)
