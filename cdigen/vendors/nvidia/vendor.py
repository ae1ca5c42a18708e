"""NVIDIA's implementation of the vendor protocol (``VENDOR``).

Modules that only hosts with NVIDIA devices need are imported in functions, not at the top of this file.
"""

from __future__ import annotations

from functools import partial

from cdigen.host.procfs import is_wsl_release, kernel_release
from cdigen.model.profile import capability_profiles
from cdigen.vendors.base import Vendor, deferred
from cdigen.vendors.nvidia.kernel_module import VERSION_FILE, read_driver
from cdigen.vendors.nvidia.options import MANAGEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.context import DiscoveryContext

# Paths for a quick check of the host: the kernel module's file, the files of a Tegra board, and the device
# node of WSL2. The kernel's release is a sign of WSL without GPUs.
_SIGNS = (VERSION_FILE, "/etc/nv_tegra_release", "/sys/devices/soc0/family")
_WSL_NODE = "/dev/dxg"


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory; raise the same errors as ``discovery.discover``."""
    if context.mode in {"auto", "gpu", "management"} and not _is_any_sign(context):
        read_driver(context.host)  # raises HostError, because the driver is not loaded
    from cdigen.vendors.nvidia import discovery  # noqa: PLC0415 - see above

    return discovery.discover(context)


def edits(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return the drafts of the profiles, the capability kinds, and the families of other devices."""
    from cdigen.vendors.nvidia import edits  # noqa: PLC0415 - see above

    profiles = (*profiles, *capability_profiles(profiles))
    if inventory.mode == "gpu":
        return (*edits.drafts(inventory, profiles), *edits.group_drafts(inventory, profiles))
    if inventory.is_undivided:
        return edits.platform_drafts(inventory, profiles)
    return edits.group_drafts(inventory, profiles)


def diagnostics(context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return the findings on NVML, settings, NVSwitches and virtual GPUs, except those of INVENTORY."""
    if inventory is None or inventory.mode not in {"gpu", "management"}:
        return ()
    from cdigen.vendors.nvidia import settings  # noqa: PLC0415 - see above
    from cdigen.vendors.nvidia.devices import fabric_manager, virtual  # noqa: PLC0415 - see above
    from cdigen.vendors.nvidia.nvml import query  # noqa: PLC0415 - see above
    from cdigen.vendors.nvidia.nvml.numbers import query_differing  # noqa: PLC0415 - see above
    from cdigen.vendors.nvidia.nvml.readiness import LIBRARY, library_of  # noqa: PLC0415 - see above

    of_host = (*settings.findings(context.host), *fabric_manager.findings(context))
    found = (*of_host, *virtual.findings(inventory))
    if any(finding.rule == query.MODULE_MISSING for finding in inventory.findings):
        return found
    library, why = library_of(context, inventory)
    if not library:
        return (query.not_queried_finding(LIBRARY, why), *found)
    if problem := query.module_problem():
        return (problem, *found)
    return (*query_differing(library, context.host, inventory), *found)


def _is_any_sign(context: DiscoveryContext) -> bool:
    if context.dev.exists(_WSL_NODE) or any(context.host.exists(path) for path in _SIGNS):
        return True
    return is_wsl_release(kernel_release(context.host))


def _odd_nodes(context: DiscoveryContext, *, which: str) -> tuple[HostNode, ...]:
    """Return the ``missing`` or ``wrong`` nodes of GPUs, MIG instances and the driver; do not query NVML."""
    if not context.host.exists(VERSION_FILE):
        return ()
    from cdigen.vendors.nvidia.discovery import read_nodes  # noqa: PLC0415 - see above

    return tuple(getattr(read_nodes(context), which))


VENDOR = Vendor(
    NAME="nvidia",
    CDI_VENDOR="nvidia.com",
    NAMINGS=("index", "uuid"),
    OPTIONS=(MANAGEMENT,),
    MODULES=("nvidia",),
    PCI_VENDORS=(0x10DE,),
    discover=discover,
    edits=edits,
    watches=deferred("cdigen.vendors.nvidia.watches:watches"),
    missing_nodes=partial(_odd_nodes, which="missing"),
    wrong_nodes=partial(_odd_nodes, which="wrong"),
    diagnostics=diagnostics,
)
