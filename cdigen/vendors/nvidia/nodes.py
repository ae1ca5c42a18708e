"""The driver's device nodes: read with what the kernel says they should be, or noted as missing.

The kernel does not make these nodes itself: nvidia-modprobe, udev rules or the driver's libraries do,
by the numbers in /proc and the owner and mode in /proc/driver/nvidia/params (NVIDIA's README of the
driver, "Configuring NVIDIA device files"). A missing node is recorded as it would have to be made.
"""

from __future__ import annotations

from cdigen.host import devnodes
from cdigen.host.procfs import DEVICES, parse_majors, read_text
from cdigen.host.root import reason
from cdigen.model.inventory import HostNode
from cdigen.value import frozen
from cdigen.vendors.nvidia.kernel import unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.model.findings import Finding
    from cdigen.vendors.base import Places

PARAMETERS = "/proc/driver/nvidia/params"
# Documentation/admin-guide/devices.txt of the kernel gives 195 to NVIDIA; the others are dynamic.
NVIDIA_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254
# To read and to write: a node is never executed, and the driver's parameters are not to be trusted
# with bits that mean more.
NODE_MODE = 0o666
MAX_ID = 0xFFFFFFFE  # of users and groups: the one above says "unchanged" (chown(2))


@frozen
class Numbers:
    """What a node has to be: a major, None where the kernel does not tell it, and a minor.

    ``make_with`` is the major to make it with where it is missing, None where it is not to be made.
    """

    major: int | None
    minor: int
    make_with: int | None = None


class NodeReader:
    """Reads the nodes of one look at the host, and gathers those that are missing.

    ``missing`` holds nodes that could be made: their numbers are known, and the driver's parameters
    do not forbid it (ModifyDeviceFiles). ``wrong`` holds, as they should be, those in whose place there is
    something else. ``findings`` says which of the kernel's files tell nothing.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self.findings: list[Finding] = []
        self._majors = self._told(DEVICES, parse_majors, "majors of nodes are not compared")
        parameters = self._told(PARAMETERS, parse_parameters, "the driver's defaults hold for new nodes")
        self._may_be_made = parameters.get("ModifyDeviceFiles", 1) != 0
        self._mode = parameters.get("DeviceFileMode", NODE_MODE)
        self._uid = min(parameters.get("DeviceFileUID", 0), MAX_ID)
        self._gid = min(parameters.get("DeviceFileGID", 0), MAX_ID)
        self.missing: list[HostNode] = []
        self.wrong: list[HostNode] = []

    def gpu(self, minor: int) -> Numbers:
        """Return the numbers of a GPU's node."""
        return self._of_nvidia(minor)

    def control(self, role: str) -> Numbers:
        """Return the numbers of a node that all GPUs share, by its role."""
        if role in {"uvm", "uvm-tools"}:
            return self.of("nvidia-uvm", int(role == "uvm-tools"))
        return self._of_nvidia(MODESET_MINOR if role == "modeset" else CONTROL_MINOR)

    def of(self, driver: str, minor: int) -> Numbers:
        """Return the numbers of a node of another DRIVER in /proc/devices."""
        major = self._majors.get(driver)
        return Numbers(major=major, minor=minor, make_with=major)

    def read(
        self,
        path: str,
        *,
        role: str,
        capabilities: tuple[str, ...] = (),
        numbers: Numbers | None = None,
        mode: int | None = None,
    ) -> tuple[HostNode | None, str]:
        """Return the node at PATH and no problem, or None and what is wrong with it.

        With NUMBERS a node of others is wrong: it would give a container another device. One that
        does not exist is noted as missing, with MODE instead of the driver's where it is given.
        """
        places = self._places
        try:
            node = devnodes.read_node(places.dev, path, role=role, capabilities=capabilities)
        except devnodes.NotADevice as error:
            self._note(self.wrong, path, role, numbers, mode)
            return None, str(error)
        except (FileNotFoundError, NotADirectoryError):
            if self._may_be_made:
                self._note(self.missing, path, role, numbers, mode)
            return None, f"{places.dev.host_path(path)} does not exist"
        except OSError as error:
            return None, f"{places.dev.host_path(path)} cannot be read: {reason(error)}"
        if numbers is None or (node.minor == numbers.minor and node.major == (numbers.major or node.major)):
            return node, ""
        self._note(self.wrong, path, role, numbers, mode)
        told = (
            f"driver's minor is {numbers.minor}"
            if numbers.major is None
            else f"kernel's are {numbers.major}:{numbers.minor}"
        )
        return None, f"{node.host_path} has the numbers {node.major}:{node.minor}, but the {told}"

    def _of_nvidia(self, minor: int) -> Numbers:
        major = self._majors.get("nvidia", self._majors.get("nvidia-frontend"))
        return Numbers(major=major, minor=minor, make_with=major or NVIDIA_MAJOR)

    def _told(self, path: str, parse: Callable[[str], dict[str, int]], consequence: str) -> dict[str, int]:
        """Return what the kernel's file PATH tells; one that is there and tells nothing is a finding."""
        error: OSError | None = None
        try:
            if values := parse(read_text(self._places.host, path)):
                return values
            problem = "is empty or makes no sense"
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as caught:
            problem, error = f"cannot be read: {reason(caught)}", caught
        self.findings.append(unusable_file(path, problem, consequence, error))
        return {}

    def _note(
        self, where: list[HostNode], path: str, role: str, numbers: Numbers | None, mode: int | None
    ) -> None:
        """Add to WHERE the node that should be at PATH, if it is known."""
        if numbers is not None and numbers.make_with is not None:
            where.append(self._wanted(path, role, numbers.make_with, numbers.minor, mode))

    def _wanted(self, path: str, role: str, major: int, minor: int, mode: int | None) -> HostNode:
        return HostNode(
            path=path,
            host_path=self._places.dev.host_path(path),
            role=role,
            major=major,
            minor=minor,
            mode=(self._mode if mode is None else mode) & NODE_MODE,
            uid=self._uid,
            gid=self._gid,
        )


def parse_parameters(text: str) -> dict[str, int]:
    """Return the numeric ``Name: value`` lines of the module's parameters."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        number = value.strip()
        if colon and number.isascii() and number.isdigit() and len(number) <= 10:
            values.setdefault(name.strip(), int(number))
    return values
