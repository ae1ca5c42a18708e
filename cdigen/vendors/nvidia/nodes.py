"""Know which numbers the driver's device nodes must have, and how missing ones are made.

The kernel does not make these nodes itself: nvidia-modprobe, udev rules or the driver's libraries do,
by the numbers in /proc and the owner and mode in /proc/driver/nvidia/params (NVIDIA's README of the
driver, "Configuring NVIDIA device files").
"""

from __future__ import annotations

from cdigen.host.procfs import DEVICES, parse_majors, read_text
from cdigen.host.root import reason
from cdigen.vendors.kernel import nodes
from cdigen.vendors.kernel.nodes import NODE_MODE, DeviceNumbers, NodeCreationPolicy
from cdigen.vendors.nvidia.kernel_module import parse_numbers, unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.findings import Finding
    from cdigen.vendors.base import DiscoveryContext

PARAMETERS = "/proc/driver/nvidia/params"
# Documentation/admin-guide/devices.txt of the kernel gives 195 to NVIDIA; the others are dynamic.
NVIDIA_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254
MAX_ID = 0xFFFFFFFE  # of users and groups: the one above says "unchanged" (chown(2))


class NvidiaNodeReader(nodes.NodeReader):
    """Reads the nodes of one host, made as the driver's parameters say.

    ``findings`` says which of the kernel's files tell nothing.
    """

    def __init__(self, context: DiscoveryContext) -> None:
        self._host = context.host
        self.findings: list[Finding] = []
        self._majors = self._told(DEVICES, parse_majors, "majors of nodes are not compared")
        parameters = self._told(PARAMETERS, parse_numbers, "the driver's defaults hold for new nodes")
        policy = NodeCreationPolicy(
            mode=parameters.get("DeviceFileMode", NODE_MODE),
            uid=min(parameters.get("DeviceFileUID", 0), MAX_ID),
            gid=min(parameters.get("DeviceFileGID", 0), MAX_ID),
            allowed=parameters.get("ModifyDeviceFiles", 1) != 0,
        )
        super().__init__(context.dev, policy)

    def gpu(self, minor: int) -> DeviceNumbers:
        """Return the numbers of a GPU's node."""
        return self._of_nvidia(minor)

    def control(self, role: str) -> DeviceNumbers:
        """Return the numbers of a node that all GPUs share, by its role."""
        if role in {"uvm", "uvm-tools"}:
            return self.of("nvidia-uvm", int(role == "uvm-tools"))
        return self._of_nvidia(MODESET_MINOR if role == "modeset" else CONTROL_MINOR)

    def of(self, driver: str, minor: int) -> DeviceNumbers:
        """Return the numbers of a node of another DRIVER in /proc/devices."""
        major = self._majors.get(driver)
        return DeviceNumbers(major=major, minor=minor, make_with=major)

    def _of_nvidia(self, minor: int) -> DeviceNumbers:
        major = self._majors.get("nvidia", self._majors.get("nvidia-frontend"))
        return DeviceNumbers(major=major, minor=minor, make_with=major or NVIDIA_MAJOR)

    def _told(self, path: str, parse: Callable[[str], dict[str, int]], consequence: str) -> dict[str, int]:
        """Return what the kernel's file PATH tells; one that is there and tells nothing is a finding."""
        error: OSError | None = None
        try:
            if values := parse(read_text(self._host, path)):
                return values
            problem = "is empty or makes no sense"
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as caught:
            problem, error = f"cannot be read: {reason(caught)}", caught
        self.findings.append(unusable_file(path, problem, consequence, error))
        return {}
