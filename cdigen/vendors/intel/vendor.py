"""The implementation of the vendor protocol for Intel.

Modules that only hosts with Intel devices need are imported in functions, not at the top of this file.
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DRIVERS, bound
from cdigen.vendors.base import VendorOption, Watches
from cdigen.vendors.intel import presence
from cdigen.vendors.intel.presence import CDI_VENDOR, DRIVERS, GPU, HABANA, INTEL, NAMINGS, VFIO_DRIVERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.base import DiscoveryContext

VFIO = VendorOption(
    name="vfio", default=False, help="offer GPUs that are bound to vfio-pci or xe-vfio-pci, by PCI address"
)

# The subsystems of devices and driver changes (pci), of kernel modules, and of the nodes of each driver.
SUBSYSTEMS = ("pci", "module", "drm", "accel", "mei", "habanalabs", "infiniband_verbs")
VFIO_SUBSYSTEMS = ("vfio", "vfio-dev")
NODES = ("/dev/dri/*", "/dev/dri/by-path/*", "/dev/accel/*", "/dev/mei*", "/dev/infiniband/uverbs*")
VFIO_NODES = ("/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu")


class Intel:
    """The vendor ``intel`` (``vendors.base.Vendor``)."""

    NAME = "intel"
    CDI_VENDOR = CDI_VENDOR
    NAMINGS = NAMINGS
    OPTIONS = (VFIO,)
    MODULES = tuple(DRIVERS)
    PCI_VENDORS = (INTEL, HABANA)

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Return the inventory, or raise HostError.

        The kinds of the HostError are the kinds in ``discovery.discover``.
        """
        vfio = self._vfio(context)
        if not presence.has_devices(context.host, vfio=vfio):
            raise presence.no_device(context.host)
        from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above

        return discovery.discover(context, vfio=vfio)

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return a draft with the GPUs for each profile, and a draft for each other device class."""
        from cdigen.vendors.intel.edits import drafts  # noqa: PLC0415 - see above

        return drafts(inventory, profiles)

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return the nodes, and the files of the drivers."""
        host, dev, vfio = context.host, context.dev, self._vfio(context)
        drivers = (*DRIVERS, *(VFIO_DRIVERS if vfio else ()))
        polled = [f"{PCI_DRIVERS}/{driver}" for driver in drivers]
        polled += _numbers_of_virtual_functions(host)
        return Watches(
            files=tuple(f"{dev.outer}{path}" for path in (*NODES, *(VFIO_NODES if vfio else ()))),
            polled=tuple(f"{host.outer}{path}" for path in polled),
            subsystems=(*SUBSYSTEMS, *(VFIO_SUBSYSTEMS if vfio else ())),
        )

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the missing nodes of GPUs, NPUs and Gaudis."""
        return self._odd_nodes(context, "missing")

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the correct node for each node with wrong numbers or of a wrong type."""
        return self._odd_nodes(context, "wrong")

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
        """Return findings for nodes that only root can open, missing firmware, and missing drivers."""
        from cdigen.vendors.intel.diagnostics import diagnostics  # noqa: PLC0415 - see above

        return diagnostics(context, inventory)

    def _odd_nodes(self, context: DiscoveryContext, which: str) -> tuple[HostNode, ...]:
        from cdigen.vendors.intel import discovery  # noqa: PLC0415 - see above
        from cdigen.vendors.kernel.drm import with_groups  # noqa: PLC0415 - see above

        reader = discovery.read_nodes(context, vfio=self._vfio(context))
        return with_groups(context.host, getattr(reader, which))

    def _vfio(self, context: DiscoveryContext) -> bool:
        return context.option(self.NAME, VFIO) is True


def _numbers_of_virtual_functions(host: Root) -> list[str]:
    """Return the files with the number of virtual functions of each GPU.

    The kernel sends no events for these files.
    """
    drivers = (driver for driver, device_class in DRIVERS.items() if device_class == GPU)
    gpus = (f"{PCI_DRIVERS}/{driver}/{name}" for driver in drivers for name in bound(host, driver))
    return [f"{folder}/sriov_numvfs" for folder in gpus if host.exists(f"{folder}/sriov_numvfs")]


VENDOR = Intel()
