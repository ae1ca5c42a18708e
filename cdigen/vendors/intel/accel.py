"""Read Intel's accelerators other than GPUs: NPUs of intel_vpu, Gaudis of habanalabs, and firmware nodes.

Each accelerator has one node in /dev/accel. The kernel lists the node in the device's folder
(``accel/accel0``). Intel also ships a Gaudi driver separately from the kernel. Older releases of this driver
create devices without a bus. The file ``pci_addr`` of such a device has the PCI address.

The index of an NPU is its position in the order of PCI addresses. The driver (drivers/accel/ivpu) creates
only one node for an NPU.
The index of a Gaudi is the number of its node, as in HABANA_VISIBLE_DEVICES of Intel's runtime and device
plugin. A Gaudi without a node gets a number that no other Gaudi has.

Firmware nodes access the graphics system controller (GSC) of a discrete GPU. i915 and xe create auxiliary
devices in the GPU's folder in /sys: ``i915.mei-gsc.<n>``, ``i915.mei-gscfi.<n>`` and ``xe.mei-gscfi.<n>``.
The module mei_gsc creates a node for each auxiliary device, such as ``mei/mei1`` (drivers/misc/mei/gsc-me.c).
The tools xpu-smi, igsc and fwupd use the node of gscfi to read and write the firmware of a GPU. Therefore,
these nodes have a separate CDI kind, ``intel.com/gpu-mei``. They are not a part of a GPU's CDI device. A GPU
without valid firmware is in survivability mode. cdigen offers such a GPU only with this kind. cdigen never
offers the management engine of the CPU (usually /dev/mei0).
"""

from __future__ import annotations

import re
from itertools import count

from cdigen.host.procfs import number_behind, read_line
from cdigen.host.sysfs import pci_address
from cdigen.model.inventory import Accelerator
from cdigen.value import replace
from cdigen.vendors.intel.gpu import is_unbound, model_of
from cdigen.vendors.intel.presence import GAUDI, MEI, MEI_ROLE, NPU, WORDS
from cdigen.vendors.kernel.drm import devices as drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.kernel.drm.devices import NodeScan

CLASS = "/sys/class/accel"
_AUXILIARY = re.compile(r"(?:i915|xe)\.mei-gsc(?:fi)?\.[0-9]+")


def find_minor(host: Root, function: PciFunction) -> drm.DrmMinor | None:
    """Return the accelerator node of FUNCTION, or None if the kernel lists no accelerator node."""
    if minors := drm.minors(host, function.folder, "accel"):
        return minors[0]
    for name in host.names(CLASS):
        minor = drm.read_minor(host, CLASS, name, "accel")
        if minor and _is_of(host, f"{CLASS}/{name}/device", function):
            return minor
    return None


def _is_of(host: Root, folder: str, function: PciFunction) -> bool:
    """Return whether the device at FOLDER is FUNCTION."""
    address = pci_address(read_line(host, f"{folder}/pci_addr"))
    return folder == function.folder or (address is not None and address == function.address)


def _read(scan: NodeScan, function: PciFunction, index: int, minor: drm.DrmMinor | None) -> Accelerator:
    device = Accelerator(
        index=index,
        address=function.address,
        model=model_of(function),
        device_class=function.device_class,
        device_id=function.device_id,
    )
    word = WORDS[function.device_class]
    return scan.accelerator(device, function.folder, minor, word=word, driver=function.driver or "accel")


def read_npus(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Return the NPUs that are bound to their driver; add a finding for each problem."""
    served = [each for each in functions if each.device_class == NPU and not is_unbound(each)]
    return tuple(
        _read(scan, function, index, find_minor(scan.host, function)) for index, function in enumerate(served)
    )


def read_gaudis(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Return the Gaudis that are bound to their driver, sorted by index; add a finding for each problem."""
    served = [
        (function, find_minor(scan.host, function))
        for function in functions
        if function.device_class == GAUDI and not is_unbound(function)
    ]
    used_numbers: set[int] = {minor.number for _, minor in served if minor}
    free = (number for number in count() if number not in used_numbers)
    read = []
    used_indices: set[int] = set()
    for function, minor in served:
        # If two Gaudis have the same node, NodeReader.claim assigns the node to one of them. The other Gaudi
        # gets a free index.
        index = minor.number if minor and minor.number not in used_indices else next(free)
        used_indices.add(index)
        gaudi = _read(scan, function, index, minor)
        if minor and gaudi.usable:
            gaudi = replace(gaudi, nodes=(*gaudi.nodes, *_other_nodes(scan, function, minor.number)))
        read.append(gaudi)
    return tuple(sorted(read, key=lambda gaudi: gaudi.index))


def _other_nodes(scan: NodeScan, function: PciFunction, number: int) -> Iterator[HostNode]:
    """Yield the further nodes of the Gaudi with the number NUMBER: the control node and the network nodes.

    Tools such as hl-smi and hlthunk use the control node to query a Gaudi that is in use. The driver creates
    the control node with a separate number in the accel class (habanalabs/common/device.c,
    cdev_sysfs_debugfs_add). Only some hosts have nodes of the network ports (RoCE by verbs).
    """
    name = f"accel_controlD{number}"
    listed, path = f"{CLASS}/{name}", f"/dev/accel/{name}"
    node, problem = scan.node(function.folder, path, "control", listed)
    if node is not None:
        yield node
    elif scan.host.exists(listed) or scan.dev.exists(path):
        text = f"{problem}; hl-smi does not find the Gaudi"
        _report(scan, function, "gaudi-control-node-unusable", path, text)
    folder = f"{function.folder}/infiniband_verbs"
    for name in scan.host.names(folder) if "infiniband_verbs" in function.entries else ():
        if number_behind("uverbs", name) is None:
            continue
        path = f"/dev/infiniband/{name}"
        node, problem = scan.node(function.folder, path, "network", f"{folder}/{name}")
        if node is not None:
            yield node
        else:
            text = f"{problem}; the Gaudi cannot reach other hosts by verbs"
            _report(scan, function, "gaudi-network-node-unusable", path, text)


def _report(scan: NodeScan, function: PciFunction, rule: str, path: str, text: str) -> None:
    where = scan.dev.host_path(path)
    scan.collector.add("warning", rule, where, f"{function.word}: {text}", scan.nodes.remedy())


def read_meis(scan: NodeScan, served: Iterable[tuple[PciFunction, Accelerator]]) -> tuple[Accelerator, ...]:
    """Return the firmware nodes of each GPU in SERVED; add a warning for each unusable node.

    GPUs without firmware nodes are left out.
    """
    found = []
    for function, gpu in served:
        nodes = tuple(_mei_nodes(scan, function))
        if nodes:
            found.append(
                Accelerator(
                    index=gpu.index,
                    address=gpu.address,
                    model=f"firmware of {gpu.model}",
                    nodes=nodes,
                    usable=True,
                    device_class=MEI,
                    device_id=gpu.device_id,
                )
            )
    return tuple(found)


def _mei_nodes(scan: NodeScan, function: PciFunction) -> Iterator[HostNode]:
    for entry in sorted(filter(_AUXILIARY.fullmatch, function.entries)):
        folder = f"{function.folder}/{entry}/mei"
        for name in scan.host.names(folder):
            if number_behind("mei", name) is None:
                continue
            path = f"/dev/{name}"
            node, problem = scan.node(function.folder, path, MEI_ROLE, f"{folder}/{name}")
            if node is not None:
                yield node
            else:
                text = f"{problem}; programs cannot access the GPU's firmware with this node"
                _report(scan, function, "mei-node-unusable", path, text)
