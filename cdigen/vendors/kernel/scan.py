"""The state that a vendor's readers share: file trees, findings and node owners (``NodeScan``)."""

from __future__ import annotations

from cdigen.model.findings import FindingCollector
from cdigen.value import replace
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.nodes import NodeReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import Accelerator, HostNode
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.kernel.drm.devices import DrmMinor


class NodeScan:
    """The state that the readers of one host's devices share. Each node belongs to only one device."""

    def __init__(self, context: DiscoveryContext) -> None:
        self.host = context.host
        self.dev = context.dev
        self.collector = FindingCollector()
        self.nodes = NodeReader(context.dev, drm.NODE_CREATION)

    def minor(self, folder: str, minor: DrmMinor) -> tuple[HostNode | None, str]:
        """Return (node, "") for MINOR, or (None, problem) if its node cannot be used.

        FOLDER is the /sys folder of the device. If the file ``dev`` of MINOR exists and has no numbers, the
        function adds a finding.
        """
        listed = f"{folder}/{'accel' if minor.role == 'accel' else 'drm'}/{minor.name}"
        if minor.numbers is None and "dev" in self.host.names(listed):
            self.collector.add(
                "warning",
                "node-numbers-unknown",
                f"{listed}/dev",
                f"{listed}/dev contains no device numbers; cdigen cannot check the numbers of {minor.path}",
                f"see 'cat {listed}/dev'",
            )
        return drm.read_node(self.nodes, minor, folder)

    def node(self, folder: str, path: str, role: str, listed: str) -> tuple[HostNode | None, str]:
        """Return (node, "") for the node at PATH, or (None, problem) if it cannot be used.

        FOLDER is the /sys folder of the device. LISTED is the folder in /sys whose file ``dev`` has the
        numbers of the node.
        """
        if problem := self.nodes.claim(path, folder):
            return None, problem
        numbers = drm.node_numbers(drm.device_numbers(self.host, f"{listed}/dev"))
        return self.nodes.read(path, role=role, numbers=numbers)

    def accelerator(
        self, device: Accelerator, folder: str, minor: DrmMinor | None, *, word: str, driver: str
    ) -> Accelerator:
        """Return DEVICE with the node of MINOR, or DEVICE as unusable and without a node.

        FOLDER is the /sys folder of DEVICE. If the node is missing or unusable, the function adds a finding.
        WORD (``NPU``) is the type of DEVICE in the message of the finding.
        """
        node, problem = None, "the driver lists no device node"
        if minor is not None:
            node, problem = self.minor(folder, minor)
        if minor is not None and node is not None:
            return replace(device, minor=minor.number, nodes=(node,), usable=True)
        self.collector.add(
            "error",
            "accel-node-missing" if minor else "accel-without-node",
            self.dev.host_path(minor.path) if minor else device.address or folder,
            f"{word} {device.index} ({device.address or folder}) gets no CDI device: {problem}",
            self.nodes.remedy() if minor else f"see 'dmesg | grep {driver}'",
        )
        return replace(device, minor=minor.number if minor else None, problem=problem)
