"""Read Intel's accelerators other than GPUs: NPUs of intel_vpu and Gaudis of habanalabs.

Each has one node in /dev/accel, which the kernel lists in the device's folder (``accel/accel0``). Older
releases of the Gaudi driver that Intel ships apart from the kernel make devices that are on no bus instead,
each with its PCI address in ``pci_addr``.

The index of NPUs counts them by their PCI addresses (drivers/accel/ivpu makes no other node). That of a Gaudi
is the number of its node: HABANA_VISIBLE_DEVICES counts so, by which Intel's runtime and device plugin
choose. A Gaudi without a node takes a number that no other has.
"""

from __future__ import annotations

from itertools import count

from cdigen.host.procfs import number_behind, read_line
from cdigen.host.sysfs import pci_address
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.intel.gpu import is_unbound, model_of
from cdigen.vendors.intel.presence import GAUDI, NPU, WORDS
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.kernel.scan import NodeScan

CLASS = "/sys/class/accel"


def find_minor(host: Root, function: PciFunction) -> drm.DrmMinor | None:
    """Return the accelerator node of FUNCTION as the kernel names it, None where it lists none."""
    if minors := drm.minors(host, function.folder, "accel"):
        return minors[0]
    for name in host.names(CLASS):
        minor = drm.read_minor(host, CLASS, name, "accel")
        if minor and _is_of(host, f"{CLASS}/{name}/device", function):
            return minor
    return None


def _is_of(host: Root, folder: str, function: PciFunction) -> bool:
    """Return whether the device at FOLDER is FUNCTION."""
    told = pci_address(read_line(host, f"{folder}/pci_addr"))
    return folder == function.folder or (told is not None and told == function.address)


def _read(scan: NodeScan, function: PciFunction, index: int, minor: drm.DrmMinor | None) -> Accelerator:
    device = Accelerator(
        index=index,
        address=function.address,
        model=model_of(function),
        uuid=None,
        minor=None,
        nodes=(),
        usable=False,
        device_class=function.device_class,
        device_id=function.device_id,
    )
    word = WORDS[function.device_class]
    return scan.accelerator(device, function.folder, minor, word=word, driver=function.driver or "accel")


def read_npus(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the NPUs that are bound to their driver; each problem is a finding."""
    served = [each for each in functions if each.device_class == NPU and not is_unbound(each)]
    return tuple(
        _read(scan, function, index, find_minor(scan.host, function)) for index, function in enumerate(served)
    )


def read_gaudis(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the Gaudis that are bound to their driver, by their indices; each problem is a finding."""
    served = [
        (function, find_minor(scan.host, function))
        for function in functions
        if function.device_class == GAUDI and not is_unbound(function)
    ]
    taken: set[int] = {minor.number for _, minor in served if minor}
    free = (number for number in count() if number not in taken)
    read = []
    used: set[int] = set()
    for function, minor in served:
        # Where two list one node, NodeReader.claim decides; their indices differ all the same.
        index = minor.number if minor and minor.number not in used else next(free)
        used.add(index)
        gaudi = _read(scan, function, index, minor)
        if minor and gaudi.usable:
            gaudi = replace(gaudi, nodes=(*gaudi.nodes, *_other_nodes(scan, function, minor.number)))
        read.append(gaudi)
    return tuple(sorted(read, key=lambda gaudi: gaudi.index))


def _other_nodes(scan: NodeScan, function: PciFunction, number: int) -> Iterator[HostNode]:
    """Yield the nodes that exist of the Gaudi with that NUMBER besides its own.

    By its control node a Gaudi that is in use is asked (hl-smi, hlthunk). The driver makes it with a number
    of its own in the class of accelerators (habanalabs/common/device.c, cdev_sysfs_debugfs_add). The nodes
    of its network ports only some setups have (RoCE by verbs).
    """
    name = f"accel_controlD{number}"
    listed, path = f"{CLASS}/{name}", f"/dev/accel/{name}"
    node, problem = scan.node(function.folder, path, "control", listed)
    if node is not None:
        yield node
    elif scan.host.exists(listed) or scan.dev.exists(path):
        _say(scan, function, "gaudi-control-node-unusable", path, f"{problem}; hl-smi will not find it")
    folder = f"{function.folder}/infiniband_verbs"
    for name in scan.host.names(folder) if "infiniband_verbs" in function.entries else ():
        if number_behind("uverbs", name) is None:
            continue
        path = f"/dev/infiniband/{name}"
        node, problem = scan.node(function.folder, path, "network", f"{folder}/{name}")
        if node is not None:
            yield node
        else:
            text = f"{problem}; it cannot reach other hosts by verbs"
            _say(scan, function, "gaudi-network-node-unusable", path, text)


def _say(scan: NodeScan, function: PciFunction, rule: str, path: str, text: str) -> None:
    where = scan.dev.host_path(path)
    scan.collector.add("warning", rule, where, f"Gaudi {function.address}: {text}", drm.UDEV_HINT)
