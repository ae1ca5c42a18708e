"""Read the GPUs that VFIO has, for virtual machines in containers; offered only by choice.

They are devices of the same kind under the names that Intel's tools give them (0000-03-00-1-0x56c0), as in
Intel's own generator and its DRA driver, so that what names one by address need not know which driver has
it. They have no index and no part in ``all``: whoever asks for any GPU, or for each, wants one that
programs can use, and the right to drive hardware through the IOMMU is not to be had by accident. (Intel's
DRA driver sets them apart, too, as the class gpu-vfio.intel.com.)

Nodes: a device's IOMMU group and /dev/vfio/vfio, or its own node of newer kernels and /dev/iommu
(Documentation/driver-api/vfio.rst); those that there are.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.gpu import model_of
from cdigen.vendors.intel.pci import link_name
from cdigen.vendors.intel.presence import GPU, VFIO_DRIVERS, VFIO_ROLE
from cdigen.vendors.kernel.drm import device_numbers, node_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction, VirtualFunction
    from cdigen.vendors.kernel.scan import NodeScan

SHARED_ROLE = "vfio-control"
CONTAINER, IOMMU = "/dev/vfio/vfio", "/dev/iommu"


def read_vfio_gpus(
    scan: NodeScan, functions: Iterable[PciFunction], virtual: Mapping[str, VirtualFunction], first_index: int
) -> tuple[Accelerator, ...]:
    """Read the GPUs that a driver of VFIO has, counted from FIRST_INDEX on."""
    given = [each for each in functions if each.device_class == GPU and each.driver in VFIO_DRIVERS]
    return tuple(
        _read(scan, function, first_index + count, virtual.get(function.address))
        for count, function in enumerate(given)
    )


def _read(scan: NodeScan, function: PciFunction, index: int, virtual: VirtualFunction | None) -> Accelerator:
    group, why_not = _group_nodes(scan, function)
    own = _own_nodes(scan, function)
    # Its own node is of use with /dev/iommu alone.
    nodes = (*group, *own) if group or len(own) == 2 else ()
    if not nodes:
        scan.collector.add(
            "error",
            "vfio-node-missing",
            function.address,
            f"GPU {function.address} of {function.driver} gets no device: {why_not}",
            "see 'ls -l /dev/vfio' and 'dmesg | grep -i -e vfio -e iommu': is the IOMMU on?",
        )
    return Accelerator(
        index=index,
        address=function.address,
        model=model_of(function, virtual),
        uuid=None,
        minor=None,
        nodes=nodes,
        usable=bool(nodes),
        problem="" if nodes else why_not,
        device_class=GPU,
        device_id=function.device_id,
        kernel_driver=function.driver,
    )


def _group_nodes(scan: NodeScan, function: PciFunction) -> tuple[tuple[HostNode, ...], str]:
    """Return the nodes of the device's IOMMU group, or none and why."""
    if "iommu_group" not in function.entries:
        return (), "it is in no IOMMU group"
    number = link_name(scan.host, f"{function.folder}/iommu_group")
    if number_behind("", number) is None:
        return (), f"{function.folder}/iommu_group leads to no group"
    group, problem = scan.nodes.read(f"/dev/vfio/{number}", role=VFIO_ROLE)
    control, control_problem = scan.nodes.read(CONTAINER, role=SHARED_ROLE)
    if group is None or control is None:
        return (), problem or control_problem
    return (group, control), ""


def _own_nodes(scan: NodeScan, function: PciFunction) -> tuple[HostNode, ...]:
    """Return the device's own node and /dev/iommu, as far as there are such: since Linux 6.6."""
    if "vfio-dev" not in function.entries:
        return ()
    folder = f"{function.folder}/vfio-dev"
    names = [name for name in scan.host.names(folder) if number_behind("vfio", name) is not None]
    if not names:
        return ()
    numbers = node_numbers(device_numbers(scan.host, f"{folder}/{names[0]}/dev"), make=False)
    own, _ = scan.nodes.read(f"/dev/vfio/devices/{names[0]}", role=VFIO_ROLE, numbers=numbers)
    shared, _ = scan.nodes.read(IOMMU, role=SHARED_ROLE)
    return () if own is None else (own,) if shared is None else (own, shared)
