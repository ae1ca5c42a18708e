"""Read the device nodes of NVIDIA's driver, with their expected numbers, owners and modes.

The kernel does not create these nodes. nvidia-modprobe, udev rules or the driver's libraries create the
nodes. The numbers are in /proc. The owner and mode are in /proc/driver/nvidia/params (NVIDIA's README of the
driver, "Configuring NVIDIA device files").
"""

from __future__ import annotations

from cdigen.host.kernelmodules import module_exclusion
from cdigen.host.procfs import DEVICES, parse_majors, read_text
from cdigen.host.root import reason
from cdigen.vendors.kernel import nodes
from cdigen.vendors.kernel.nodes import (
    NODE_MODE,
    DeviceNumbers,
    NodeCreationPolicy,
    is_dynamic_major,
    node_remedy,
)
from cdigen.vendors.nvidia.kernel_module import parse_numbers, unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.findings import Finding
    from cdigen.vendors.context import DiscoveryContext

PARAMETERS = "/proc/driver/nvidia/params"
REFUSAL = f"ModifyDeviceFiles is 0 in {PARAMETERS}"
# The name of the kernel module for modprobe. The driver has the same name in /proc/devices.
UVM = "nvidia-uvm"
# The module's names in /sys/module. With Debian's packages, the module has the second name.
UVM_KERNEL_NAMES = ("nvidia_uvm", "nvidia_current_uvm")
# The kernel's Documentation/admin-guide/devices.txt assigns the major 195 to NVIDIA. Other majors of the
# driver are dynamic.
NVIDIA_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254
MAX_ID = 0xFFFFFFFE  # greatest id of a user or group; 0xFFFFFFFF means "unchanged" (chown(2))


class NvidiaNodeReader(nodes.NodeReader):
    """Reads the NVIDIA nodes of one host.

    The driver's parameters contain the owner and the mode of new nodes. ``findings`` reports files in /proc
    that have no usable content.
    """

    def __init__(self, context: DiscoveryContext) -> None:
        self._host = context.host
        self.findings: list[Finding] = []
        self._majors = self._read_numbers(DEVICES, parse_majors, "cdigen cannot check the majors of nodes")
        parameters = self._read_numbers(PARAMETERS, parse_numbers, "new nodes get the driver's defaults")
        policy = NodeCreationPolicy(
            mode=parameters.get("DeviceFileMode", NODE_MODE),
            uid=min(parameters.get("DeviceFileUID", 0), MAX_ID),
            gid=min(parameters.get("DeviceFileGID", 0), MAX_ID),
            allowed=parameters.get("ModifyDeviceFiles", 1) != 0,
        )
        super().__init__(context.dev, policy)

    def gpu(self, minor: int) -> DeviceNumbers:
        """Return the numbers of the node of the GPU with the minor number MINOR, or of a control node."""
        major = self._majors.get("nvidia", self._majors.get("nvidia-frontend"))
        return DeviceNumbers(major=major, minor=minor, make_with=_creatable(major or NVIDIA_MAJOR))

    def control(self, role: str) -> DeviceNumbers:
        """Return the numbers of the control node with the role ROLE. All GPUs share the control nodes."""
        if role in {"uvm", "uvm-tools"}:
            return self.of(UVM, int(role == "uvm-tools"))
        return self.gpu(MODESET_MINOR if role == "modeset" else CONTROL_MINOR)

    def of(self, driver: str, minor: int) -> DeviceNumbers:
        """Return the numbers of a node with the major of DRIVER in /proc/devices."""
        major = self._majors.get(driver)
        return DeviceNumbers(major=major, minor=minor, make_with=_creatable(major))

    def remedy(self, problem: str = "", role: str = "") -> str:
        """Return the next step for PROBLEM, a text that ``read`` returned for a node with ROLE.

        The next step is usually a command. If cdigen may not create the node, the next step is to change the
        configuration that forbids the creation.
        """
        if self.is_denied:
            return super().remedy(problem, role)
        if not self.may_create:
            return f"set NVreg_ModifyDeviceFiles=1 for the module nvidia: {REFUSAL}"
        if role == "uvm" and UVM not in self._majors:
            place = module_exclusion(self._host, UVM, UVM_KERNEL_NAMES)
            if place:
                return f"remove {UVM} from {place}"
        return self.obstacles.get(problem) or node_remedy(self._host, self._dev)

    def then_create(self, command: str) -> str:
        """Return COMMAND, followed by the command that creates the nodes."""
        return f"{command} && {node_remedy(self._host, self._dev)}"

    def _read_numbers(
        self, path: str, parse: Callable[[str], dict[str, int]], consequence: str
    ) -> dict[str, int]:
        """Return the numbers in the file PATH in /proc.

        If an existing file cannot be read, or has no numbers, the function adds a finding.
        """
        error: OSError | None = None
        try:
            if values := parse(read_text(self._host, path)):
                return values
            problem = "is empty or invalid"
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as caught:
            problem, error = f"cannot be read: {reason(caught)}", caught
        self.findings.append(unusable_file(path, problem, consequence, error))
        return {}


def _creatable(major: int | None) -> int | None:
    """Return MAJOR if MAJOR is NVIDIA's or dynamic, else None.

    cdigen creates no node with any other major, because that major belongs to another driver.
    """
    return major if major is not None and (major == NVIDIA_MAJOR or is_dynamic_major(major)) else None
