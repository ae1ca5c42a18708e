"""Read the capability files of the nvidia module, which assign device nodes to MIG instances.

A capability is a file below /proc/driver/nvidia/capabilities. A process gets the capability when it opens the
device node /dev/nvidia-caps/nvidia-cap<minor>. The minor is in the capability file (``DeviceFileMinor``) and
in /proc/driver/nvidia-caps/mig-minors. mig-minors has the minors of all possible instances, including
instances that do not exist. NVIDIA's Multi-Instance GPU User Guide, "Device Nodes and Capabilities",
describes these files.
"""

from __future__ import annotations

from functools import lru_cache

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.root import reason
from cdigen.value import frozen, replace
from cdigen.vendors.nvidia.kernel_module import parse_numbers, remedy, unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.nvidia.devices.nodes import NvidiaNodeReader

CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
NODES = "/dev/nvidia-caps"
DRIVER_NAME = "nvidia-caps"
MAX_MINOR = 0xFFFFF


def node_path(minor: int) -> str:
    """Return the path of the capability node with the minor number MINOR."""
    return f"{NODES}/nvidia-cap{minor}"


# mig-minors has about 10,000 lines, and the daemon reads it in every cycle. The content changes only if
# another driver is loaded.
@lru_cache(maxsize=1)
def parse_minors(text: str) -> Mapping[str, int]:
    """Return the minor of each capability in TEXT, which is the content of mig-minors.

    An example is ``{"gpu0/gi0/access": 3, "config": 1}``. Lines in another format are ignored.
    """
    minors: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        # The file has 135 lines per GPU. Inline code is faster than number_behind.
        if name and number.isascii() and number.isdigit() and len(number) <= 7:
            minors.setdefault(name, int(number))
    return minors


def read_minors(host: Root, collector: FindingCollector) -> Mapping[str, int]:
    """Return the minor of each capability in mig-minors.

    If the file does not exist, the result is empty. If the file is empty or cannot be read, the function adds
    a finding.
    """
    instead = "cdigen uses the instances' own files"
    minors: Mapping[str, int] = {}
    try:
        minors = parse_minors(read_text(host, MIG_MINORS, limit=1 << 22))
    except (FileNotFoundError, NotADirectoryError):
        return minors
    except OSError as error:
        text = f"{MIG_MINORS} cannot be read: {reason(error)}; {instead}"
        collector.add("warning", "mig-minors-unreadable", MIG_MINORS, text, remedy(error))
        return minors
    if not minors:
        collector.findings.append(unusable_file(MIG_MINORS, "contains no capability", instead))
    return minors


@frozen
class Capability:
    """A capability.

    ``path`` is the path of its access file. ``mode`` is the mode of its node, or None if the access file has
    no mode. If ``is_locked`` is true, the access file forbids the creation of the node.
    """

    minor: int
    path: str
    mode: int | None
    is_locked: bool


def read_capability(
    host: Root, path: str, listed: int | None, collector: FindingCollector
) -> tuple[Capability | None, str]:
    """Return (capability, "") for the access file PATH, or (None, problem).

    LISTED is the capability's minor in mig-minors, or None. If the access file has no minor, the function
    uses LISTED. If both files have a minor, the two minors must be equal. cdigen may create the node only if
    the access file has a mode and no ``DeviceFileModify: 0``. nvidia-modprobe has the same rule.
    """
    error: OSError | None = None
    try:
        access = parse_numbers(read_text(host, path))
        problem = (
            "" if access.get("DeviceFileMinor", MAX_MINOR + 1) <= MAX_MINOR else "contains no minor number"
        )
    except (FileNotFoundError, NotADirectoryError) as missing:
        access, problem = {}, "" if listed is not None else f"cannot be read: {reason(missing)}"
    except OSError as caught:
        access, problem, error = {}, f"cannot be read: {reason(caught)}", caught
    if listed is None and problem:
        return None, f"{path} {problem}"
    if problem:
        finding = unusable_file(path, problem, f"cdigen uses {MIG_MINORS}", error)
        # Several compute instances use the file of the same GPU instance.
        collector.findings.extend(() if finding in collector.findings else (finding,))
    minor = listed if problem else access.get("DeviceFileMinor", listed)
    if minor is None or listed not in {None, minor}:
        return None, f"the minor number is {minor} in {path}, but {listed} in {MIG_MINORS}"
    is_locked = access.get("DeviceFileModify", 1) == 0
    return Capability(minor=minor, path=path, mode=access.get("DeviceFileMode"), is_locked=is_locked), ""


def read_node(nodes: NvidiaNodeReader, capability: Capability) -> tuple[HostNode | None, str]:
    """Return (node, "") for CAPABILITY, or (None, problem)."""
    numbers = nodes.of(DRIVER_NAME, capability.minor)
    is_creatable = capability.mode is not None and not capability.is_locked
    if not is_creatable:
        numbers = replace(numbers, make_with=None)
    path = node_path(capability.minor)
    node, problem = nodes.read(path, role="capability", numbers=numbers, mode=capability.mode)
    if node is None and not is_creatable:
        # A write to the access file sets DeviceFileModify (kernel-open/nvidia/nv-caps.c of the driver).
        nodes.obstacles[problem] = (
            nodes.then_create(f"echo 'DeviceFileModify: 1' >{capability.path}")
            if capability.is_locked
            else f"see 'cat {capability.path}': cdigen creates no node without a DeviceFileMode"
        )
    return node, problem


def numbered(host: Root, folder: str, prefix: str) -> list[int]:
    """Return the number N of each entry ``<PREFIX>N`` in the capability folder FOLDER, in rising order."""
    numbers = (number_behind(prefix, name) for name in host.names(f"{CAPABILITIES}/{folder}"))
    return sorted(number for number in numbers if number is not None)
