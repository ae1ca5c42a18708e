"""The vendors that cdigen supports, by the name for ``--vendor``.

A vendor in the tree is one row of ``VENDORS``. Another package adds a vendor as an entry point of the group
``cdigen.vendors``. The entry point has the name of the vendor. cdigen searches for an entry point only if an
option or the configuration contains the name (docs/decisions/0024-one-vendor-protocol.md). The functions of
this module serve both.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module

from cdigen.model.errors import ConfigError, HostError, described
from cdigen.model.findings import finding_of
from cdigen.model.profile import NAMINGS, is_naming
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.vendors.base import (
        BootNodes,
        DriverApi,
        DriverRemedies,
        ReadLabels,
        ReadStats,
        ResourceNames,
        Vendor,
        VendorLinks,
        VisibleDevices,
    )
    from cdigen.vendors.health import VendorHealth


_USUAL = ("HEALTH", "LABELS", "RESOURCES", "STATS")


@frozen
class VendorRow:
    """A vendor in the tree, with the facts that programs read without an import of the vendor's code.

    ``cdi_vendors`` are the vendor parts of its CDI kinds. Some software requests devices by the kinds after
    the first. ``members`` are the vendor's optional members. ``management_kinds`` are the kinds for
    administrators, or beginnings of kinds and ``*``. ``version_file`` is the file with the version of the
    loaded driver, as in the inventory; the NRI plugin reads it before each answer.
    """

    cdi_vendors: tuple[str, ...]
    members: tuple[str, ...]
    management_kinds: tuple[str, ...] = ()
    version_file: str = ""


VENDORS = {
    "nvidia": VendorRow(
        cdi_vendors=("nvidia.com", "management.nvidia.com"),
        members=(*_USUAL, "BOOT_NODES", "DRIVER_API", "LINKS", "REMEDIES"),
        management_kinds=(
            *("nvidia.com/management", "nvidia.com/mig", "nvidia.com/nvswitch", "management.nvidia.com/*"),
        ),
        # WSL2 and most Tegra systems do not have this file.
        version_file="/sys/module/nvidia/version",
    ),
    "amd": VendorRow(cdi_vendors=("amd.com",), members=(*_USUAL, "LINKS", "VISIBLE_DEVICES")),
    "intel": VendorRow(
        cdi_vendors=("intel.com",),
        members=(*_USUAL, "VISIBLE_DEVICES"),
        management_kinds=("intel.com/gpu-mei",),
    ),
}
# The kinds for administrators, of all vendors in the tree.
MANAGEMENT_KINDS = tuple(kind for row in VENDORS.values() for kind in row.management_kinds)
ENTRY_POINTS = "cdigen.vendors"
# The kind of the error, and the rule of the finding, if the code of a vendor fails.
DEFECT = "vendor-defect"
# nri.decision.environment reads NVIDIA's variables for device requests. NVIDIA's images set further variables
# with these prefixes.
_NVIDIAS = ("NVIDIA_*", "CUDA_*")


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
        found: Vendor = import_module(f"cdigen.vendors.{name}.vendor").VENDOR
        return found
    entry = _entry_point(name)
    if entry is None:
        raise ConfigError(
            f"unknown vendor {name!r} (known: {', '.join(VENDORS)})",
            hint=f"install the package that adds the vendor as an entry point of the group {ENTRY_POINTS}",
        )
    from cdigen.vendors import plugin  # noqa: PLC0415 - rarely used

    resources = (row.name for known in VENDORS for row in resource_names(known))
    used = dict.fromkeys(text.partition("/")[0] for text in (*prefixes(), *resources))
    variables = (variable for row in visible_devices() for variable in row.variables)
    return plugin.load(name, entry, tuple(used), (*_NVIDIAS, *variables))


def _member(member: str, name: str) -> Any:
    """Return the optional MEMBER of the vendor NAME, or None if the vendor is unknown or lacks the member."""
    if name in VENDORS:
        if member not in VENDORS[name].members:
            return None
        return getattr(import_module(f"cdigen.vendors.{name}.{member.lower()}"), member)
    return getattr(load(name), member) if name in NAMES else None


# Each function takes a vendor's name, and returns the vendor's member or None.
boot_nodes: Callable[[str], BootNodes | None] = partial(_member, "BOOT_NODES")
driver_api: Callable[[str], DriverApi | None] = partial(_member, "DRIVER_API")
health: Callable[[str], VendorHealth | None] = partial(_member, "HEALTH")
labels: Callable[[str], ReadLabels | None] = partial(_member, "LABELS")
links: Callable[[str], VendorLinks | None] = partial(_member, "LINKS")
remedies: Callable[[str], DriverRemedies | None] = partial(_member, "REMEDIES")
stats: Callable[[str], ReadStats | None] = partial(_member, "STATS")


def resource_names(name: str) -> tuple[ResourceNames, ...]:
    """Return the RESOURCES of the vendor NAME, which may be empty."""
    found: tuple[ResourceNames, ...] = _member("RESOURCES", name) or ()
    return found


def problem_of(name: str) -> str:
    """Return the reason why the code of the vendor NAME cannot be used, or "" if it can be used."""
    return load(name).problem if name in NAMES else "no installed package supports the vendor"


def origin(name: str) -> str:
    """Return NAME; for a vendor of another package, add the module of the package."""
    entry = None if name in VENDORS else _entry_point(name)
    return f"{name} ({entry.value})" if entry is not None else name


def vendor_defect(name: str, error: Exception) -> HostError:
    """Return the failure of the vendor NAME whose code raised ERROR, or ERROR if it is a HostError."""
    if isinstance(error, HostError):
        return error
    return HostError(
        f"the code for {origin(name)} failed: {described(error)}",
        hint="report it with the output of 'cdigen doctor --bundle'",
        kind=DEFECT,
    )


@contextmanager
def reporting(name: str, findings: list[Finding]) -> Iterator[None]:
    """Add a finding to FINDINGS if the code of the vendor NAME raises an exception in the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a defect of one vendor's code must not affect others
        findings.append(finding_of(vendor_defect(name, error), name))


def cdi_vendor(name: str) -> str:
    """Return the vendor part of the kinds of the vendor NAME; raise the same errors as ``load``."""
    return cdi_vendors(name)[0]


def cdi_vendors(name: str) -> tuple[str, ...]:
    """Return all vendor parts of the kinds of the vendor NAME; raise the same errors as ``load``.

    The first element is the result of ``cdi_vendor``.
    """
    return VENDORS[name].cdi_vendors if name in VENDORS else (load(name).CDI_VENDOR,)


@lru_cache(maxsize=4)
def visible_devices(names: tuple[str, ...] = ()) -> tuple[VisibleDevices, ...]:
    """Return the VISIBLE_DEVICES of all vendors; raise the same errors as ``load``.

    The result always includes the vendors in the tree, and vendors that cdigen does not discover. A vendor of
    another package is included if NAMES contains its name.
    """
    from cdigen.vendors import other_vendors  # noqa: PLC0415 - few programs read variables

    own = [row for name in VENDORS for row in _member("VISIBLE_DEVICES", name) or ()]
    added = (row for name in names if name not in VENDORS for row in load(name).VISIBLE_DEVICES)
    return (*own, *other_vendors.VISIBLE_DEVICES, *added)


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
