"""Set devices to unusable if their nodes are invalid or belong to another vendor's devices.

The discovery of a vendor assigns each node to only one device (``nodes.NodeReader.claim``). This module
compares the nodes of different vendors. It also checks that the device numbers of each node are possible for
a node with this path. Both checks include vendors of other packages. The module does not read the host.
"""

from __future__ import annotations

from cdigen.model.errors import HostError
from cdigen.model.findings import Finding
from cdigen.value import replace
from cdigen.vendors.kernel.nodes import number_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Accelerator, HostNode, Inventory, Partition

# The roles of nodes that several devices share: /dev/kfd, /dev/vfio/vfio, /dev/iommu.
SHARED_ROLES = frozenset(("control", "vfio-control"))
_HINT = "select one of the two vendors: --vendor, or 'vendors' in the configuration"


def without_shared_nodes(
    inventories: Mapping[str, Inventory],
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return the checked inventories, and the errors of vendors that keep no usable device.

    INVENTORIES and both results are mappings by vendor. In the checked inventories, devices with an invalid
    or duplicate node are unusable. If two vendors have the same node, the first vendor keeps the node. A
    vendor has either an inventory or a HostError in the results. The kind of the HostError is the rule of the
    vendor's first finding in this module.
    """
    kept: dict[str, Inventory] = {}
    failures: dict[str, HostError] = {}
    owners: dict[tuple[int, int], tuple[str, str]] = {}
    for vendor, inventory in inventories.items():
        held = _VendorClaims(vendor, owners)
        accelerators = tuple(held.accelerator(each) for each in inventory.accelerators)
        if not held.findings:
            kept[vendor] = inventory
            continue
        findings = (*inventory.findings, *held.findings)
        if any(each.usable for each in accelerators) or any(group.devices for group in inventory.groups):
            kept[vendor] = replace(inventory, accelerators=accelerators, findings=findings)
        else:
            first = held.findings[0]
            failures[vendor] = HostError(
                f"no device of {vendor} can be used: {first.message}", hint=first.hint, kind=first.rule
            )
    return kept, failures


class _VendorClaims:
    """Compares the device nodes of one vendor with the device nodes of the earlier vendors."""

    def __init__(self, vendor: str, owners: dict[tuple[int, int], tuple[str, str]]) -> None:
        self.findings: list[Finding] = []
        self._vendor = vendor
        # (major, minor) of a node -> (vendor of the device, description of the device)
        self._owners = owners

    def accelerator(self, accelerator: Accelerator) -> Accelerator:
        """Return ACCELERATOR, which is unusable if it has an invalid node or another vendor's node."""
        word = accelerator.device_class.upper()
        label = f"{word} {accelerator.index} ({accelerator.address or accelerator.model})"
        problem = self._problem(accelerator.nodes, label) if accelerator.usable else ""
        if problem:
            return replace(accelerator, usable=False, problem=problem)
        if not accelerator.partitions:
            return accelerator
        partitions = tuple(self._partition(part, label) for part in accelerator.partitions)
        if not accelerator.partitioned or any(part.usable for part in partitions):
            return replace(accelerator, partitions=partitions)
        problem = accelerator.problem or "no partition of the device can be used"
        return replace(accelerator, partitions=partitions, usable=False, problem=problem)

    def _partition(self, partition: Partition, label: str) -> Partition:
        own_label = f"partition {partition.index} of {label}"
        problem = self._problem(partition.nodes, own_label) if partition.usable else ""
        return replace(partition, usable=False, problem=problem) if problem else partition

    def _problem(self, nodes: Iterable[HostNode], label: str) -> str:
        """Return the problem of a device's NODES, or an empty string; add a finding for the problem."""
        own = [node for node in nodes if node.role not in SHARED_ROLES]
        for node in own:
            problem, rule = number_problem(node), "node-impossible"
            hint = "show the device numbers with 'ls -l'; udev creates the node again"
            vendor, other = self._owners.get((node.major, node.minor), (self._vendor, ""))
            if vendor != self._vendor:
                problem = f"{node.host_path} is the node of {vendor}'s {other}"
                rule, hint = "node-claimed-twice", _HINT
            if problem:
                message = f"{self._vendor}: {label} gets no CDI device: {problem}"
                finding = Finding(
                    severity="error", rule=rule, path=node.host_path, message=message, hint=hint
                )
                self.findings.append(finding)
                return problem
        self._owners.update(((node.major, node.minor), (self._vendor, label)) for node in own)
        return ""
