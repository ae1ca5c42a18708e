"""Intel's side of the vendor protocol.

What a host without Intel's devices does not need is imported where it is used.
"""

from __future__ import annotations

from cdigen.vendors.base import Option
from cdigen.vendors.intel import presence
from cdigen.vendors.intel.tables import CDI_VENDOR, DRIVERS, HABANA, INTEL, NAMINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.base import DiscoveryContext, Watches

VFIO = Option(
    name="vfio", default=False, help="offer GPUs that vfio-pci or xe-vfio-pci has, by their PCI addresses"
)


class Intel:
    """The vendor ``intel`` (``vendors.base.Vendor``)."""

    NAME = "intel"
    CDI_VENDOR = CDI_VENDOR
    NAMINGS = NAMINGS
    OPTIONS = (VFIO,)
    MODULES = tuple(DRIVERS)
    PCI_VENDORS = (INTEL, HABANA)

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Read the host; raises HostError: driver-not-loaded, no-gpu, no-nodes."""
        vfio = self._vfio(context)
        if not presence.has_devices(context.host, vfio=vfio):
            raise presence.no_device()
        from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above

        return discovery.discover(context, vfio=vfio)

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return one draft per profile, of the GPUs, and one per other class."""
        from cdigen.vendors.intel.edits import drafts  # noqa: PLC0415 - see above

        return drafts(inventory, profiles)

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return the nodes, and what the drivers show of themselves."""
        from cdigen.vendors.intel.watches import watches  # noqa: PLC0415 - only the daemon asks

        return watches(context, vfio=self._vfio(context))

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes nobody has made yet."""
        return self._odd_nodes(context, "missing")

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Read which nodes have other numbers than the kernel gives them, or are none, as they should be."""
        return self._odd_nodes(context, "wrong")

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
        """Read which nodes only root can open, and which firmware is missing."""
        from cdigen.vendors.intel.diagnostics import diagnostics  # noqa: PLC0415 - see above

        return diagnostics(context, inventory)

    def _odd_nodes(self, context: DiscoveryContext, which: str) -> tuple[HostNode, ...]:
        from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above
        from cdigen.vendors.kernel.drm import with_groups  # noqa: PLC0415 - see above

        reader = discovery.read_nodes(context, vfio=self._vfio(context))
        return with_groups(context.host, getattr(reader, which))

    def _vfio(self, context: DiscoveryContext) -> bool:
        return context.option(self.NAME, VFIO) is True


VENDOR = Intel()
