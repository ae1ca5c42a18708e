"""One look at a host: where it is read, what it says, and whose nodes are whose."""

from __future__ import annotations

from cdigen.host.root import is_plain
from cdigen.vendors import drm
from cdigen.vendors.intel.notes import Notes
from cdigen.vendors.nodes import NodeReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.base import Places
    from cdigen.vendors.intel.pci import Function

UDEV = (
    "is udev running? 'udevadm trigger' makes missing nodes, and so does 'create_nodes: true' in the "
    "configuration"
)


class Look:
    """Reads nodes for the readers of GPUs, NPUs and Gaudis; no node is given to two devices."""

    def __init__(self, places: Places) -> None:
        self.host = places.host
        self.dev = places.dev
        self.notes = Notes()
        self.nodes = NodeReader(places.dev, drm.MAKING)
        self._owners: dict[str, str] = {}

    def minor(self, function: Function, minor: drm.Minor) -> tuple[HostNode | None, str]:
        """Return the node of MINOR of FUNCTION, or None and what is wrong with it."""
        self._doubt_numbers(function, minor)
        return self.node(function, minor.path, minor.role, minor.numbers, capabilities=minor.capabilities)

    def node(
        self,
        function: Function,
        path: str,
        role: str,
        numbers: tuple[int, int] | None,
        *,
        capabilities: tuple[str, ...] = (),
    ) -> tuple[HostNode | None, str]:
        """Return the node at PATH, which belongs to FUNCTION, or None and what is wrong with it."""
        owner = self._owners.setdefault(path, function.folder)
        if owner != function.folder:
            return None, f"{path} is the node of another device, too ({owner})"
        node, problem = self.nodes.read(
            path, role=role, capabilities=capabilities, numbers=drm.node_numbers(numbers)
        )
        if node is not None and not is_plain(node.host_path):
            return None, f"{path} leads to a path that a spec cannot hold"
        return node, problem

    def _doubt_numbers(self, function: Function, minor: drm.Minor) -> None:
        """Say so where the kernel's file with the numbers of a node is there and tells none."""
        folder = f"{function.folder}/{'accel' if minor.role == 'accel' else 'drm'}/{minor.name}"
        if minor.numbers is None and "dev" in self.host.names(folder):
            self.notes.say(
                "warning",
                "node-numbers-unknown",
                f"{folder}/dev",
                f"{folder}/dev tells no numbers; those of {minor.path} are not compared",
                f"see 'cat {folder}/dev'",
            )
