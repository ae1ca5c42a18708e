"""Share what a vendor's readers of one host need: trees, findings, and whose node is whose (``NodeScan``)."""

from __future__ import annotations

from cdigen.model.findings import FindingCollector
from cdigen.value import replace
from cdigen.vendors.kernel import drm
from cdigen.vendors.kernel.nodes import NodeReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, HostNode
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.kernel.drm import DrmMinor


class NodeScan:
    """One host as the readers of its devices read it; no node is given to two devices."""

    def __init__(self, context: DiscoveryContext) -> None:
        self.host = context.host
        self.dev = context.dev
        self.collector = FindingCollector()
        self.nodes = NodeReader(context.dev, drm.NODE_CREATION)

    def minor(self, folder: str, minor: DrmMinor) -> tuple[HostNode | None, str]:
        """Return the node of MINOR of the device at FOLDER, or None and what is wrong with it.

        A file of numbers in /sys that exists and holds none is a finding.
        """
        listed = f"{folder}/{'accel' if minor.role == 'accel' else 'drm'}/{minor.name}"
        if minor.numbers is None and "dev" in self.host.names(listed):
            self.collector.add(
                "warning",
                "node-numbers-unknown",
                f"{listed}/dev",
                f"{listed}/dev tells no numbers; those of {minor.path} are not compared",
                f"see 'cat {listed}/dev'",
            )
        return drm.read_node(self.nodes, minor, folder)

    def node(self, folder: str, path: str, role: str, listed: str) -> tuple[HostNode | None, str]:
        """Return the node at PATH of the device at FOLDER, or None and what is wrong with it.

        LISTED is the folder in /sys whose ``dev`` has the node's numbers.
        """
        if problem := self.nodes.claim(path, folder):
            return None, problem
        numbers = drm.node_numbers(drm.device_numbers(self.host, f"{listed}/dev"))
        return self.nodes.read(path, role=role, numbers=numbers)

    def accelerator(
        self, device: Accelerator, folder: str, minor: DrmMinor | None, *, word: str, driver: str
    ) -> Accelerator:
        """Return DEVICE, at FOLDER, with its node MINOR, without which it is unusable.

        A node that is missing, or cannot be used, is a finding, which calls DEVICE by WORD (``NPU``).
        """
        node, problem = None, "its driver shows no node of it"
        if minor is not None:
            node, problem = self.minor(folder, minor)
        if minor is not None and node is not None:
            return replace(device, minor=minor.number, nodes=(node,), usable=True)
        self.collector.add(
            "error",
            "accel-node-missing" if minor else "accel-without-node",
            self.dev.host_path(minor.path) if minor else device.address or folder,
            f"{word} {device.index} ({device.address or folder}) gets no device: {problem}",
            drm.UDEV_HINT if minor else f"see 'dmesg | grep {driver}'",
        )
        return replace(device, minor=minor.number if minor else None, problem=problem)
