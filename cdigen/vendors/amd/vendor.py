"""The implementation of the vendor protocol for AMD.

Modules that only hosts with AMD devices need are imported in functions, not at the top of this file.
"""

from __future__ import annotations

from cdigen.host.sysfs import PCI_DRIVERS, bound
from cdigen.model.errors import HostError
from cdigen.vendors.base import VendorOption, Watches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.profile import Profile
    from cdigen.vendors.base import DiscoveryContext

MODULE, NPU_MODULE = "/sys/module/amdgpu", "/sys/module/amdxdna"
ROCM_LIBRARIES = VendorOption(
    name="rocm_libraries",
    default=False,
    help="mount the host's ROCm libraries into containers, for images without ROCm",
)
# The subsystems of hotplug (pci), modules, DRM nodes, accelerator nodes, /dev/kfd and partitions (platform).
SUBSYSTEMS = ("pci", "module", "drm", "accel", "kfd", "platform")
NODES = ("/dev/kfd", "/dev/dri/*", "/dev/accel/*")
# The kernel sends no events for these files. The first file is a counter that KFD increases with each change
# of its topology.
POLLED = (
    "/sys/class/kfd/kfd/topology/generation_id",
    "/sys/class/kfd",
    f"{PCI_DRIVERS}/amdgpu",
    f"{PCI_DRIVERS}/amdxdna",
)
PARTITION_FILES = ("current_compute_partition", "current_memory_partition")


class Amd:
    """The vendor ``amd`` (``vendors.base.Vendor``)."""

    NAME = "amd"
    CDI_VENDOR = "amd.com"
    NAMINGS = ("index", "uuid", "pci")
    OPTIONS = (ROCM_LIBRARIES,)
    MODULES = ("amdgpu", "amdxdna")
    PCI_VENDORS = (0x1002,)

    def discover(self, context: DiscoveryContext) -> Inventory:
        """Return the inventory, or raise HostError.

        The kinds of the HostError are driver-not-loaded and the kinds in ``discovery.discover``.
        """
        if not _has_module(context):
            raise HostError(
                f"AMD's kernel module is not loaded: {MODULE} does not exist",
                hint="load it with 'modprobe amdgpu'; see 'dmesg | grep amdgpu' if that fails",
                kind="driver-not-loaded",
            )
        from cdigen.vendors.amd.discovery import discover  # noqa: PLC0415 - see above

        return discover(context, libraries=context.option(self.NAME, ROCM_LIBRARIES) is True)

    def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
        """Return a draft with the GPUs for each profile, and a draft with the NPUs."""
        from cdigen.vendors.amd.edits import drafts  # noqa: PLC0415 - see above

        return drafts(inventory, profiles)

    def watches(self, context: DiscoveryContext) -> Watches:
        """Return the nodes, and the files of amdgpu, KFD and amdxdna."""
        host = context.host
        gpus = bound(host, "amdgpu")
        polled = [f"{PCI_DRIVERS}/amdgpu/{name}/{file}" for name in gpus for file in PARTITION_FILES]
        return Watches(
            files=tuple(f"{context.dev.outer}{path}" for path in NODES),
            polled=tuple(f"{host.outer}{path}" for path in (*POLLED, *polled)),
            subsystems=SUBSYSTEMS,
        )

    def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the missing nodes of GPUs, KFD and NPUs."""
        return self._odd_nodes(context, "missing")

    def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
        """Return the correct node for each node with wrong numbers or of a wrong type."""
        return self._odd_nodes(context, "wrong")

    def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
        """Return findings for wrong groups and modes of nodes, and for GPUs that amdgpu does not drive."""
        from cdigen.vendors.amd.diagnostics import diagnostics  # noqa: PLC0415 - see above

        return diagnostics(context, inventory)

    def _odd_nodes(self, context: DiscoveryContext, which: str) -> tuple[HostNode, ...]:
        if not _has_module(context):
            return ()
        from cdigen.vendors.amd.discovery import read_nodes  # noqa: PLC0415 - see above
        from cdigen.vendors.kernel.drm import with_groups  # noqa: PLC0415 - see above

        return with_groups(context.host, getattr(read_nodes(context), which))


def _has_module(context: DiscoveryContext) -> bool:
    return context.host.exists(MODULE) or context.host.exists(NPU_MODULE)


VENDOR = Amd()
