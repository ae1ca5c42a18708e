"""Find the processes that use DRM devices: ``read_clients``, by what their open files say of themselves.

An open file of /dev/dri says in its fdinfo whose device it is and how much memory it has
(https://docs.kernel.org/gpu/drm-usage-stats.html, from Linux 5.19 on). That makes its driver ask the device.
The files of others may be looked at with CAP_SYS_PTRACE only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from cdigen.model.figures import MAX_PROCESSES, DeviceProcess
from cdigen.value import frozen
from cdigen.vendors.kernel.device_files import DEADLINE_S
from cdigen.vendors.kernel.processes import process_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import HostNode

PROGRAM = str(Path(__file__).parent / "drm_clients_child.py")
# The roles of the nodes whose users are told: those who compute or draw, and who shows pictures.
ROLES = frozenset({"render", "card"})
_LINE = re.compile(r"^drm-([\w-]+):[ \t]*(.*)$", re.MULTILINE)
_MEMORY = re.compile(r"(\d{1,15})(?: (KiB|MiB|GiB))?", re.ASCII)
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Regions of the device's own memory: vram of amdgpu, vram0 of xe, local0 of i915. What of it is in use is
# drm-resident-, and drm-memory- with amdgpu before Linux 6.13.
_REGION = re.compile(r"(resident|memory)-((?:vram|local)\d*)")


@frozen
class Clients:
    """The processes that use each device: address -> process -> memory in bytes, None where it is not told.

    ``is_complete`` is false where processes could not be looked at, or not in time.
    """

    by_address: Mapping[str, Mapping[int, int | None]]
    is_complete: bool


def read_clients(host: Root, nodes: Iterable[HostNode], *, deadline_s: float = DEADLINE_S) -> Clients:
    """Read what the files that processes of HOST have opened of NODES say; never raises."""
    numbers = [f"{node.major}:{node.minor}" for node in nodes]
    if not numbers:
        return Clients(by_address={}, is_complete=True)
    from cdigen.host import childprocess  # noqa: PLC0415 - most runs of cdigen start no child

    command = (os.path.realpath(sys.executable), "-I", "-S", PROGRAM, f"{host.outer}/proc", *numbers)
    try:
        result = childprocess.run(command, deadline_s=deadline_s)
        told = json.loads(result.output)
    except (OSError, ValueError):
        return Clients(by_address={}, is_complete=False)
    found: dict[str, dict[int, int | None]] = {}
    seen = set()
    for pid, text in told["files"]:
        values = dict(_LINE.findall(text))
        address, client = values.get("pdev", ""), values.get("client-id", "")
        # One client may have several files, and be counted once.
        if not address or (address, client, pid) in seen:
            continue
        seen.add((address, client, pid))
        of_device = found.setdefault(address, {})
        of_device[pid] = _sum(of_device.get(pid), _memory(values))
    return Clients(by_address=found, is_complete=told["unread"] == 0)


def processes_of(host: Root, memory: Mapping[int, int | None]) -> tuple[DeviceProcess, ...]:
    """Return the processes of MEMORY with their names: those that have most, MAX_PROCESSES at the most."""
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
