"""Read the GPUs that are bound to a VFIO driver, for virtual machines in containers.

cdigen offers these GPUs only if the option ``vfio`` is set. They have the same CDI kind as other GPUs. Their
names are the same as in Intel's tools (0000-03-00-1-0x56c0), in Intel's own generator and in its DRA driver.
Therefore, such a name is valid with any driver of the device.

These GPUs have no index as a CDI name, and are not in the device ``all``. A container that requests any GPU
or all GPUs needs GPUs that programs can use. No container should accidentally get hardware access through the
IOMMU. Intel's DRA driver also separates these GPUs, as the class gpu-vfio.intel.com.

A container needs the node of the device's IOMMU group and /dev/vfio/vfio. With newer kernels, a container can
use the device's own node and /dev/iommu instead (Documentation/driver-api/vfio.rst). The reader uses the
nodes that exist.
"""

from __future__ import annotations

from cdigen.host.procfs import number_behind
from cdigen.model.inventory import Accelerator
from cdigen.vendors.intel.gpu import model_of
from cdigen.vendors.intel.pci import link_name
from cdigen.vendors.intel.presence import GPU, VFIO_DRIVERS, VFIO_ROLE
from cdigen.vendors.kernel.drm.devices import device_numbers, node_numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction, VirtualFunction
    from cdigen.vendors.kernel.drm.devices import NodeScan

SHARED_ROLE = "vfio-control"
CONTAINER, IOMMU = "/dev/vfio/vfio", "/dev/iommu"


def read_vfio_gpus(
    scan: NodeScan, functions: Iterable[PciFunction], virtual: Mapping[str, VirtualFunction], first_index: int
) -> tuple[Accelerator, ...]:
    """Return the GPUs that are bound to a VFIO driver, with indices from FIRST_INDEX on."""
    functions_of_vfio = [
        each for each in functions if each.device_class == GPU and each.driver in VFIO_DRIVERS
    ]
    return tuple(
        _read(scan, function, first_index + count, virtual.get(function.address))
        for count, function in enumerate(functions_of_vfio)
    )


def _read(scan: NodeScan, function: PciFunction, index: int, virtual: VirtualFunction | None) -> Accelerator:
    group, why_not = _group_nodes(scan, function)
    own = _own_nodes(scan, function)
    # The device's own node is usable only with /dev/iommu.
    nodes = (*group, *own) if group or len(own) == 2 else ()
    if not nodes:
        scan.collector.add(
            "error",
            "vfio-node-missing",
            function.address,
            f"GPU {function.address} of {function.driver} gets no CDI device: {why_not}",
            "enable the IOMMU; see 'ls -l /dev/vfio' and 'dmesg | grep -i -e vfio -e iommu'",
        )
    return Accelerator(
        index=index,
        address=function.address,
        model=model_of(function, virtual),
        nodes=nodes,
        usable=bool(nodes),
        problem="" if nodes else why_not,
        device_class=GPU,
        device_id=function.device_id,
        kernel_driver=function.driver,
    )


def _group_nodes(scan: NodeScan, function: PciFunction) -> tuple[tuple[HostNode, ...], str]:
    """Return (nodes, "") for the IOMMU group of FUNCTION, or ((), reason) if a node cannot be used."""
    if "iommu_group" not in function.entries:
        return (), "the device is in no IOMMU group"
    number = link_name(scan.host, f"{function.folder}/iommu_group")
    if number_behind("", number) is None:
        return (), f"{function.folder}/iommu_group is not a link to a group"
    group, problem = scan.nodes.read(f"/dev/vfio/{number}", role=VFIO_ROLE)
    control, control_problem = scan.nodes.read(CONTAINER, role=SHARED_ROLE)
    if group is None or control is None:
        return (), problem or control_problem
    return (group, control), ""


def _own_nodes(scan: NodeScan, function: PciFunction) -> tuple[HostNode, ...]:
    """Return the device's own node and /dev/iommu, if they exist. They are possible since Linux 6.6."""
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
