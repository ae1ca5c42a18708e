"""Read the capability files of the nvidia module: which device node grants which MIG instance.

A capability is a file below /proc/driver/nvidia/capabilities; opening the character device of its
minor, /dev/nvidia-caps/nvidia-cap<minor>, is what grants it. The minors stand in the file itself
(``DeviceFileMinor``) and, for every possible instance whether it exists or not, in
/proc/driver/nvidia-caps/mig-minors. Source: NVIDIA Multi-Instance GPU User Guide, "Device Nodes and
Capabilities".
"""

from __future__ import annotations

from functools import lru_cache

from cdigen.host.procfs import read_text
from cdigen.host.root import reason
from cdigen.model.findings import Finding
from cdigen.vendors.nvidia.kernel_module import remedy, unusable_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root

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
        # There are 135 lines for each GPU, so what _number does stands here.
        if name and number.isascii() and number.isdigit() and len(number) <= 7:
            minors.setdefault(name, int(number))
    return minors


def read_minors(host: Root) -> tuple[Mapping[str, int], tuple[Finding, ...]]:
    """Read mig-minors; a host without the file has none, one that cannot be read or is empty is a finding."""
    try:
        minors = parse_minors(read_text(host, MIG_MINORS, limit=1 << 22))
    except (FileNotFoundError, NotADirectoryError):
        return {}, ()
    except OSError as error:
        finding = Finding(
            severity="warning",
            rule="mig-minors-unreadable",
            path=MIG_MINORS,
            message=f"{MIG_MINORS} cannot be read: {reason(error)}; the instances' own files have to do",
            hint=remedy(error),
        )
        return {}, (finding,)
    if minors:
        return minors, ()
    return {}, (unusable_file(MIG_MINORS, "names no capability", "the instances' own files have to do"),)


def parse_access(text: str) -> dict[str, int]:
    """Return the ``Name: number`` lines of an access file: DeviceFileMinor, DeviceFileMode, ...Modify."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, colon, number = line.partition(":")
        value = _number(number.strip())
        if colon and value is not None:
            values.setdefault(name.strip(), value)
    return values


def access_path(capability: str) -> str:
    """Return the path of the access file of CAPABILITY (``gpu0/mig/gi1``)."""
    return f"{CAPABILITIES}/{capability}/access"


def read_access(host: Root, path: str, listed: int | None) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """Read the access file at PATH, and say where it tells no minor and LISTED, mig-minors', has to do.

    A file that does not exist says nothing. Raises OSError where it cannot be read and none is listed.
    """
    error: OSError | None = None
    try:
        access = parse_access(read_text(host, path))
        problem = "" if "DeviceFileMinor" in access else "tells no minor"
    except (FileNotFoundError, NotADirectoryError):
        if listed is None:
            raise
        return {}, ()
    except OSError as caught:
        if listed is None:
            raise
        access, problem, error = {}, f"cannot be read: {reason(caught)}", caught
    if not problem or listed is None:
        return access, ()
    return access, (unusable_file(path, problem, f"{MIG_MINORS} has to do", error),)


def numbered(host: Root, folder: str, prefix: str) -> list[int]:
    """Return N for each entry ``<prefix>N`` of a capability folder, in rising order.

    The kernel writes numbers without zeros before them; ``gi01`` is nothing of its.
    """
    numbers = (
        (name, _number(name.removeprefix(prefix)))
        for name in host.names(f"{CAPABILITIES}/{folder}")
        if name.startswith(prefix)
    )
    return sorted(number for name, number in numbers if number is not None and name == f"{prefix}{number}")


def _number(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= MAX_MINOR:
        return int(text)
    return None
