"""Gaudi accelerators of habanalabs: the accelerator, its control node, and its network's node.

The index is the number of the accelerator's node: HABANA_VISIBLE_DEVICES counts so, by which Intel's
runtime and device plugin choose. One without a node takes a number that none has.
"""

from __future__ import annotations

from itertools import count

from cdigen.vendors.intel.accel import CLASS, find_minor, read_accelerator
from cdigen.vendors.intel.gpu import is_unbound
from cdigen.vendors.intel.tables import GAUDI
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdigen.model.inventory import Accelerator, HostNode
    from cdigen.vendors.intel.pci import PciFunction
    from cdigen.vendors.intel.scan import NodeScan


def read_gaudis(scan: NodeScan, functions: Iterable[PciFunction]) -> tuple[Accelerator, ...]:
    """Read the Gaudis that their driver has, in the order of their index; each trouble is a finding."""
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
        # Two that claim one node are for the reader of nodes to judge; their indices differ all the same.
        index = minor.number if minor and minor.number not in used else next(free)
        used.add(index)
        others = _Others(scan, function)
        read.append(read_accelerator(scan, function, index, minor, others.read))
    return tuple(sorted(read, key=lambda gaudi: gaudi.index))


class _Others:
    """Reads what a Gaudi has besides its node."""

    def __init__(self, scan: NodeScan, function: PciFunction) -> None:
        self._look = scan
        self._function = function

    def read(self, minor: drm.DrmMinor) -> tuple[HostNode, ...]:
        """Return the control node and the network's, as far as they are there."""
        return (*self._control(minor), *self._network())

    def _control(self, minor: drm.DrmMinor) -> Iterator[HostNode]:
        """Yield the node by which a Gaudi that is in use is asked (hl-smi, hlthunk); accel_controlD0.

        The driver makes it with a number of its own in the class of accelerators (habanalabs/common/device.c,
        cdev_sysfs_debugfs_add).
        """
        name = f"accel_controlD{minor.number}"
        is_listed = self._look.host.exists(f"{CLASS}/{name}")
        numbers = drm.device_numbers(self._look.host, f"{CLASS}/{name}/dev")
        node, problem = self._look.node(self._function, f"/dev/accel/{name}", "control", numbers)
        if node is not None:
            yield node
        elif is_listed or self._look.dev.exists(f"/dev/accel/{name}"):
            self._say("gaudi-control-node-unusable", f"/dev/accel/{name}", problem, "hl-smi will not find it")

    def _network(self) -> Iterator[HostNode]:
        """Yield the nodes of a Gaudi's own network ports, which only some setups have (RoCE by verbs)."""
        if "infiniband_verbs" not in self._function.entries:
            return
        folder = f"{self._function.folder}/infiniband_verbs"
        for name in self._look.host.names(folder):
            digits = name.removeprefix("uverbs")
            if digits == name or not (digits.isascii() and digits.isdigit()):
                continue
            numbers = drm.device_numbers(self._look.host, f"{folder}/{name}/dev")
            path = f"/dev/infiniband/{name}"
            node, problem = self._look.node(self._function, path, "network", numbers)
            if node is not None:
                yield node
            else:
                self._say(
                    "gaudi-network-node-unusable", path, problem, "it cannot reach other hosts by verbs"
                )

    def _say(self, rule: str, path: str, problem: str, consequence: str) -> None:
        where = self._look.dev.host_path(path)
        message = f"Gaudi {self._function.address}: {problem}; {consequence}"
        self._look.collector.add("warning", rule, where, message, drm.UDEV_HINT)
