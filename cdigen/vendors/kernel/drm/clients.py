"""Find the processes that use DRM devices (``read_clients``).

The function reads the fdinfo of each process's open files in /dev/dri. The fdinfo contains the device's
address and the memory of the client (https://docs.kernel.org/gpu/drm-usage-stats.html, from Linux 5.19 on).
During a read of the fdinfo, the driver queries the device. A read of another user's fdinfo requires
CAP_SYS_PTRACE.
"""

from __future__ import annotations

import re

from cdigen.host.procfs import process_name
from cdigen.model.stats import MAX_PROCESSES, DeviceProcess
from cdigen.value import frozen
from cdigen.vendors.kernel.device_files import DEADLINE_S
from cdigen.vendors.kernel.open_files import read_open_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode

# The roles of the nodes to search for. Render nodes serve compute and rendering, cards serve displays.
ROLES = frozenset({"render", "card"})
_LINE = re.compile(r"^drm-([\w-]+):[ \t]*(.*)$", re.MULTILINE)
_MEMORY = re.compile(r"(\d{1,15})(?: (KiB|MiB|GiB))?", re.ASCII)
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# The regions of the device's own memory are vram (amdgpu), vram0 (xe) and local0 (i915). The keys of the used
# memory begin with drm-resident-. With amdgpu before Linux 6.13, they begin with drm-memory-.
_REGION = re.compile(r"(resident|memory)-((?:vram|local)\d*)")


@frozen
class Clients:
    """The processes that use each device.

    ``by_address`` maps a device address to the ids of its processes, and each id to the process's memory. The
    memory is in bytes, or None if the driver does not report the memory. ``is_complete`` is false if cdigen
    could not read all processes before the deadline.
    """

    by_address: Mapping[str, Mapping[int, int | None]]
    is_complete: bool


def read_clients(host: Root, nodes: Iterable[HostNode], *, deadline_s: float = DEADLINE_S) -> Clients:
    """Return the processes on HOST that have NODES open; raise no exception."""
    numbers = [f"{node.major}:{node.minor}" for node in nodes]
    if not numbers:
        return Clients(by_address={}, is_complete=True)
    try:
        files, unread = read_open_files("fdinfo", f"{host.outer}/proc", numbers, deadline_s=deadline_s)
    except (OSError, ValueError):
        return Clients(by_address={}, is_complete=False)
    found: dict[str, dict[int, int | None]] = {}
    clients = set()
    for pid, text in files:
        values = dict(_LINE.findall(text))
        address, client = values.get("pdev", ""), values.get("client-id", "")
        # A client may have several open files. Its memory is added only once.
        if not address or (address, client, pid) in clients:
            continue
        clients.add((address, client, pid))
        of_device = found.setdefault(address, {})
        of_device[pid] = _sum(of_device.get(pid), _memory(values))
    return Clients(by_address=found, is_complete=unread == 0)


def processes_of(host: Root, memory: Mapping[int, int | None]) -> tuple[DeviceProcess, ...]:
    """Return the names, ids and memory of the processes in MEMORY.

    The result has at most MAX_PROCESSES processes. Processes with more memory come first.
    """
    most = sorted(memory.items(), key=lambda entry: (-(entry[1] or 0), entry[0]))[:MAX_PROCESSES]
    return tuple(DeviceProcess(pid=pid, name=process_name(host, pid), memory=used) for pid, used in most)


def _memory(values: Mapping[str, str]) -> int | None:
    regions: dict[str, dict[str, int]] = {}
    for key, value in values.items():
        named, size = _REGION.fullmatch(key), _MEMORY.fullmatch(value.strip())
        if named and size:
            regions.setdefault(named[2], {})[named[1]] = int(size[1]) * _UNITS[size[2]]
    return _sum(*(region.get("resident", region.get("memory")) for region in regions.values()))


def _sum(*sizes: int | None) -> int | None:
    known: Iterable[int] = [size for size in sizes if size is not None]
    return sum(known) if known else None
