"""The driver's device nodes: read with what the kernel says they should be, or noted as missing.

The kernel does not make these nodes itself: nvidia-modprobe, udev rules or the driver's libraries do,
by the numbers in /proc and the owner and mode in /proc/driver/nvidia/params (NVIDIA's README of the
driver, "Configuring NVIDIA device files"). A missing node is recorded as it would have to be made.
"""

from __future__ import annotations

from cdigen.host import devnodes
from cdigen.host.procfs import character_majors, read_text
from cdigen.host.root import reason
from cdigen.model.inventory import HostNode
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.base import Places

PARAMETERS = "/proc/driver/nvidia/params"
# Documentation/admin-guide/devices.txt of the kernel gives 195 to NVIDIA; the others are dynamic.
NVIDIA_MAJOR = 195
CONTROL_MINOR = 255
MODESET_MINOR = 254


@frozen
class Numbers:
    """What a node has to be: a major, None where /proc/devices does not tell it, and a minor."""

    major: int | None
    minor: int


class NodeReader:
    """Reads the nodes of one look at the host, and gathers those that are missing.

    ``missing`` holds nodes that could be made: their numbers are known, and the driver's parameters
    do not forbid it (ModifyDeviceFiles).
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._majors = character_majors(places.host)
        parameters = _parameters(places)
        self._may_be_made = parameters.get("ModifyDeviceFiles", 1) != 0
        self._mode = parameters.get("DeviceFileMode", 0o666) & 0o777
        self._uid = parameters.get("DeviceFileUID", 0)
        self._gid = parameters.get("DeviceFileGID", 0)
        self.missing: list[HostNode] = []

    def gpu(self, minor: int) -> Numbers:
        """Return the numbers of a GPU's node."""
        return Numbers(major=self._nvidia_major(), minor=minor)

    def control(self, role: str) -> Numbers:
        """Return the numbers of a node that all GPUs share, by its role."""
        if role in {"uvm", "uvm-tools"}:
            return Numbers(major=self._majors.get("nvidia-uvm"), minor=int(role == "uvm-tools"))
        minor = MODESET_MINOR if role == "modeset" else CONTROL_MINOR
        return Numbers(major=self._nvidia_major(), minor=minor)

    def of(self, driver: str, minor: int) -> Numbers:
        """Return the numbers of a node of another DRIVER in /proc/devices."""
        return Numbers(major=self._majors.get(driver), minor=minor)

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

        With NUMBERS a node of another minor is wrong: it would give a container another device. One
        that does not exist is noted as missing, with MODE instead of the driver's where it is given.
        """
        places = self._places
        try:
            node = devnodes.read_node(places.dev, path, role=role, capabilities=capabilities)
        except devnodes.NotADevice as error:
            return None, str(error)
        except (FileNotFoundError, NotADirectoryError):
            if numbers is not None and numbers.major is not None and self._may_be_made:
                self.missing.append(self._wanted(path, role, numbers.major, numbers.minor, mode))
            return None, f"{places.dev.host_path(path)} does not exist"
        except OSError as error:
            return None, f"{places.dev.host_path(path)} cannot be read: {reason(error)}"
        if numbers is not None and node.minor != numbers.minor:
            return None, (
                f"{node.host_path} has the numbers {node.major}:{node.minor}, but the driver's minor is "
                f"{numbers.minor}"
            )
        return node, ""

    def _nvidia_major(self) -> int:
        return self._majors.get("nvidia", self._majors.get("nvidia-frontend", NVIDIA_MAJOR))

    def _wanted(self, path: str, role: str, major: int, minor: int, mode: int | None) -> HostNode:
        return HostNode(
            path=path,
            host_path=self._places.dev.host_path(path),
            role=role,
            major=major,
            minor=minor,
            mode=self._mode if mode is None else mode,
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


def _parameters(places: Places) -> dict[str, int]:
    try:
        return parse_parameters(read_text(places.host, PARAMETERS))
    except OSError:
        return {}
