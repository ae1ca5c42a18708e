"""Leave out devices whose nodes another vendor's devices have, or that are invalid.

Each vendor's own reader gives no node to two of its devices (``nodes.NodeReader.claim``). Here vendors are
held against each other, and those of other packages against what their nodes can be. Pure.
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

# The roles of nodes that devices share: /dev/kfd, /dev/vfio/vfio, /dev/iommu.
SHARED_ROLES = frozenset(("control", "vfio-control"))
_HINT = "name the one of them that is to have it: --vendor, or 'vendors' in the configuration"


def without_shared_nodes(
    inventories: Mapping[str, Inventory],
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return INVENTORIES, by vendor, without devices whose nodes are another's, or cannot be theirs.

    Of two vendors the first has a node. One that is left with nothing is a HostError, whose kind is the rule
    of the finding.
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
    """Holds the devices of one vendor against those of the vendors before it."""

    def __init__(self, vendor: str, owners: dict[tuple[int, int], tuple[str, str]]) -> None:
        self.findings: list[Finding] = []
        self._vendor = vendor
        # numbers of a node -> whose it is: the vendor, and the device in words
        self._owners = owners

    def accelerator(self, accelerator: Accelerator) -> Accelerator:
        """Return ACCELERATOR, unusable where a node of it is not its own."""
        word = accelerator.device_class.upper()
        who = f"{word} {accelerator.index} ({accelerator.address or accelerator.model})"
        problem = self._problem(accelerator.nodes, who) if accelerator.usable else ""
        if problem:
            return replace(accelerator, usable=False, problem=problem)
        if not accelerator.partitions:
            return accelerator
        partitions = tuple(self._partition(part, who) for part in accelerator.partitions)
        if not accelerator.partitioned or any(part.usable for part in partitions):
            return replace(accelerator, partitions=partitions)
        problem = accelerator.problem or "none of its partitions can be used"
        return replace(accelerator, partitions=partitions, usable=False, problem=problem)

    def _partition(self, partition: Partition, who: str) -> Partition:
        what = f"partition {partition.index} of {who}"
        problem = self._problem(partition.nodes, what) if partition.usable else ""
        return replace(partition, usable=False, problem=problem) if problem else partition

    def _problem(self, nodes: Iterable[HostNode], who: str) -> str:
        """Return what is wrong with a device's NODES, which is a finding as well, or nothing."""
        own = [node for node in nodes if node.role not in SHARED_ROLES]
        for node in own:
            problem, rule = number_problem(node), "node-impossible"
            hint = "see 'ls -l' of it; udev makes it anew"
            vendor, other = self._owners.get((node.major, node.minor), (self._vendor, ""))
            if vendor != self._vendor:
                problem = f"{node.host_path} is the node of {vendor}'s {other}"
                rule, hint = "node-claimed-twice", _HINT
            if problem:
                message = f"{self._vendor}: {who} gets no device: {problem}"
                finding = Finding(
                    severity="error", rule=rule, path=node.host_path, message=message, hint=hint
                )
                self.findings.append(finding)
                return problem
        self._owners.update(((node.major, node.minor), (self._vendor, who)) for node in own)
        return ""
