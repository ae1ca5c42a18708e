"""NVIDIA's side of the vendor protocol.

What a host without NVIDIA's GPUs does not need is imported where it is used.
"""

from __future__ import annotations

from cdigen.model.profile import narrowed
from cdigen.vendors.nvidia.kernel_module import VERSION_FILE, read_driver
from cdigen.vendors.nvidia.options import MANAGEMENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.base import DiscoveryContext, Watches

# What a host of each kind has, as far as one look tells: the module's own file, WSL2's node, and what tells a
# Tegra board (``wsl``, ``csv``).
_SIGNS = (VERSION_FILE, "/etc/nv_tegra_release", "/sys/devices/soc0/family")
_WSL_NODE = "/dev/dxg"


class Nvidia:
    """The vendor ``nvidia`` (``vendors.base.Vendor``)."""

    NAME = "nvidia"
    CDI_VENDOR = "nvidia.com"
    NAMINGS = ("index", "uuid")
    OPTIONS = (MANAGEMENT,)
    MODULES = ("nvidia",)
    PCI_VENDORS = (0x10DE,)

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Read the host; the kinds of what it raises are those of ``discovery.discover``."""
        if context.mode in {"auto", "gpu", "management"} and not _is_any_sign(context):
            read_driver(context.host)  # says that there is none
        from cdigen.vendors.nvidia.discovery import discover  # noqa: PLC0415 - see above

        return discover(context)

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return one draft per profile and narrowed part of one, and one per family of other devices."""
        from cdigen.vendors.nvidia import edits  # noqa: PLC0415 - see above

        profiles = (*profiles, *narrowed(profiles))
        if inventory.mode == "gpu":
            return (*edits.drafts(inventory, profiles), *edits.group_drafts(inventory, profiles))
        if inventory.mode in {"wsl", "csv"}:
            return edits.platform_drafts(inventory, profiles)
        return edits.group_drafts(inventory, profiles)

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return the driver's files, nodes and sockets, and what its module shows of itself."""
        from cdigen.vendors.nvidia.watches import watches  # noqa: PLC0415 - see above

        return watches(context)

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes of GPUs, MIG instances and the driver nobody has made yet; NVML is not asked."""
        return _odd_nodes(context, "missing")

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes have other numbers than the kernel gives them, or are none, as they should be."""
        return _odd_nodes(context, "wrong")

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:  # noqa: ARG002
        """Return nothing: what there is to say of this vendor the general checks say."""
        return ()


VENDOR = Nvidia()


def _is_any_sign(context: DiscoveryContext) -> bool:
    return context.dev.exists(_WSL_NODE) or any(context.host.exists(path) for path in _SIGNS)


def _odd_nodes(context: DiscoveryContext, which: str) -> tuple[HostNode, ...]:
    if not context.host.exists(VERSION_FILE):
        return ()
    from cdigen.vendors.nvidia.discovery import read_nodes  # noqa: PLC0415 - see above

    return tuple(getattr(read_nodes(context), which))
