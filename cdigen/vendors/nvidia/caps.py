"""Read the capability files of the nvidia module: which device node grants which MIG instance.

A capability is a file below /proc/driver/nvidia/capabilities; opening the character device of its
minor, /dev/nvidia-caps/nvidia-cap<minor>, is what grants it. The minors stand in the file itself
(``DeviceFileMinor``) and, for every possible instance whether it exists or not, in
/proc/driver/nvidia-caps/mig-minors. Source: NVIDIA Multi-Instance GPU User Guide, "Device Nodes and
Capabilities".
"""

from __future__ import annotations

from functools import lru_cache

from cdigen.host.procfs import number_behind, read_text
from cdigen.host.root import reason
from cdigen.vendors.nvidia.kernel_module import parse_numbers, remedy, unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.nvidia.nodes import NvidiaNodeReader

CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
DRIVER_NAME = "nvidia-caps"
MAX_MINOR = 0xFFFFF


def node_path(minor: int) -> str:
    """Return the path of the capability node with this minor."""
    return f"/dev/nvidia-caps/nvidia-cap{minor}"


# Each look at the host reads them, some ten thousand lines, and they change with the driver alone.
@lru_cache(maxsize=1)
def parse_minors(text: str) -> Mapping[str, int]:
    """Return the minors in mig-minors by capability: ``{"gpu0/gi0/access": 3, "config": 1}``.

    Lines of another form are passed over.
    """
    minors: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        # There are 135 lines for each GPU, so what number_behind does stands here.
        if name and number.isascii() and number.isdigit() and len(number) <= 7:
            minors.setdefault(name, int(number))
    return minors


def read_minors(host: Root, collector: FindingCollector) -> Mapping[str, int]:
    """Read mig-minors; a host without the file has none, one that cannot be read or is empty is a finding."""
    instead = "the instances' own files have to do"
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
        collector.findings.append(unusable_file(MIG_MINORS, "names no capability", instead))
    return minors


def read_minor(
    host: Root, path: str, listed: int | None, collector: FindingCollector
) -> tuple[int | None, int | None, str]:
    """Return the minor and mode that the access file at PATH tells, and why there is no minor to be trusted.

    LISTED is the minor in mig-minors, which has to do where the file tells none, and must be the same.
    """
    error: OSError | None = None
    try:
        access = parse_numbers(read_text(host, path))
        problem = "" if access.get("DeviceFileMinor", MAX_MINOR + 1) <= MAX_MINOR else "tells no minor"
    except (FileNotFoundError, NotADirectoryError) as missing:
        access, problem = {}, "" if listed is not None else f"cannot be read: {reason(missing)}"
    except OSError as caught:
        access, problem, error = {}, f"cannot be read: {reason(caught)}", caught
    if listed is None and problem:
        return None, None, f"{path} {problem}"
    if problem:
        finding = unusable_file(path, problem, f"{MIG_MINORS} has to do", error)
        # Compute instances of one GPU instance share its file.
        collector.findings.extend(() if finding in collector.findings else (finding,))
    minor = listed if problem else access.get("DeviceFileMinor", listed)
    if listed not in {None, minor}:
        return None, None, f"its minor is {minor} in {path} and {listed} in {MIG_MINORS}"
    return minor, access.get("DeviceFileMode"), ""


def read_node(nodes: NvidiaNodeReader, minor: int, mode: int | None) -> tuple[HostNode | None, str]:
    """Return the capability node with this MINOR, to be made with MODE, or None and what is wrong with it."""
    numbers = nodes.of(DRIVER_NAME, minor)
    return nodes.read(node_path(minor), role="capability", numbers=numbers, mode=mode)


def numbered(host: Root, folder: str, prefix: str) -> list[int]:
    """Return N for each entry ``<prefix>N`` of a capability folder, in rising order."""
    numbers = (number_behind(prefix, name) for name in host.names(f"{CAPABILITIES}/{folder}"))
    return sorted(number for number in numbers if number is not None)
