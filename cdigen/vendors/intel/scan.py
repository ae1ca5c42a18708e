"""Share what the readers of one host need: its trees, findings, and whose node is whose (``NodeScan``)."""

from __future__ import annotations

from cdigen.model.findings import FindingCollector
from cdigen.vendors.kernel import drm
from cdigen.vendors.kernel.nodes import NodeReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.intel.pci import PciFunction


class NodeScan:
    """One host as the readers of GPUs, NPUs and Gaudis read it; no node is given to two devices."""

    def __init__(self, context: DiscoveryContext) -> None:
        self.host = context.host
        self.dev = context.dev
        self.collector = FindingCollector()
        self.nodes = NodeReader(context.dev, drm.NODE_CREATION)

    def minor(self, function: PciFunction, minor: drm.DrmMinor) -> tuple[HostNode | None, str]:
        """Return the node of MINOR of FUNCTION, or None and what is wrong with it."""
        self._report_unknown_numbers(function, minor)
        return self.node(function, minor.path, minor.role, minor.numbers, capabilities=minor.capabilities)

    def node(
        self,
        function: PciFunction,
        path: str,
        role: str,
        numbers: tuple[int, int] | None,
        *,
        capabilities: tuple[str, ...] = (),
    ) -> tuple[HostNode | None, str]:
        """Return the node at PATH, which belongs to FUNCTION, or None and what is wrong with it."""
        if problem := self.nodes.claim(path, function.folder):
            return None, problem
        return self.nodes.read(path, role=role, capabilities=capabilities, numbers=drm.node_numbers(numbers))

    def _report_unknown_numbers(self, function: PciFunction, minor: drm.DrmMinor) -> None:
        """Report a node whose file of numbers in /sys exists and holds none."""
        folder = f"{function.folder}/{'accel' if minor.role == 'accel' else 'drm'}/{minor.name}"
        if minor.numbers is None and "dev" in self.host.names(folder):
            self.collector.add(
                "warning",
                "node-numbers-unknown",
                f"{folder}/dev",
                f"{folder}/dev tells no numbers; those of {minor.path} are not compared",
                f"see 'cat {folder}/dev'",
            )
