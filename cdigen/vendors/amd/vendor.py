"""AMD's implementation of the vendor protocol (``VENDOR``).

Modules that only hosts with AMD devices need are imported in functions, not at the top of this file.
"""

from __future__ import annotations

from functools import partial

from cdigen.host.sysfs import PCI_DRIVERS, bound
from cdigen.model.errors import HostError
from cdigen.vendors.base import Vendor, Watches, deferred
from cdigen.vendors.context import VendorOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.vendors.context import DiscoveryContext

# The INF files of AMD's drivers for Windows, such as u0393000.inf.
_WINDOWS_DRIVERS = r"[cu][0-9]{7}\.inf_"
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


def discover(context: DiscoveryContext) -> Inventory:
    """Return the inventory, or raise HostError.

    The kinds of the HostError are driver-not-loaded, no-gpu and the kinds in ``discovery.discover``.
    """
    if not _has_module(context):
        if unsupported := _in_windows(context):
            raise unsupported
        raise HostError(
            f"AMD's kernel module is not loaded: {MODULE} does not exist",
            hint="load it with 'modprobe amdgpu'; if that fails, install the driver for this kernel, and see "
            "'dmesg | grep amdgpu'",
            kind="driver-not-loaded",
        )
    from cdigen.vendors.amd import discovery  # noqa: PLC0415 - see above

    return discovery.discover(context, libraries=context.option("amd", ROCM_LIBRARIES) is True)


def _in_windows(context: DiscoveryContext) -> HostError | None:
    if not context.dev.exists("/dev/dxg"):
        return None
    from cdigen.vendors.kernel.wsl import windows_gpu  # noqa: PLC0415 - only in WSL2

    return windows_gpu(context, "AMD", _WINDOWS_DRIVERS, "/dev/kfd")


def watches(context: DiscoveryContext) -> Watches:
    """Return the nodes, and the files of amdgpu, KFD and amdxdna."""
    host = context.host
    gpus = bound(host, "amdgpu")
    polled = [f"{PCI_DRIVERS}/amdgpu/{name}/{file}" for name in gpus for file in PARTITION_FILES]
    return Watches(
        files=tuple(f"{context.dev.outer}{path}" for path in NODES),
        polled=tuple(f"{host.outer}{path}" for path in (*POLLED, *polled)),
        subsystems=SUBSYSTEMS,
    )


def _odd_nodes(context: DiscoveryContext, *, which: str) -> tuple[HostNode, ...]:
    """Return the ``missing`` or ``wrong`` nodes of GPUs, KFD and NPUs."""
    if not _has_module(context):
        return ()
    from cdigen.vendors.amd.discovery import read_nodes  # noqa: PLC0415 - see above
    from cdigen.vendors.kernel.drm.devices import with_groups  # noqa: PLC0415 - see above

    return with_groups(context.host, getattr(read_nodes(context), which))


def _has_module(context: DiscoveryContext) -> bool:
    return context.host.exists(MODULE) or context.host.exists(NPU_MODULE)


VENDOR = Vendor(
    NAME="amd",
    CDI_VENDOR="amd.com",
    NAMINGS=("index", "uuid", "pci"),
    OPTIONS=(ROCM_LIBRARIES,),
    MODULES=("amdgpu", "amdxdna"),
    PCI_VENDORS=(0x1002,),
    discover=discover,
    edits=deferred("cdigen.vendors.amd.edits:drafts"),
    watches=watches,
    missing_nodes=partial(_odd_nodes, which="missing"),
    wrong_nodes=partial(_odd_nodes, which="wrong"),
    diagnostics=deferred("cdigen.vendors.amd.diagnostics:diagnostics"),
)
