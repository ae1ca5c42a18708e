"""Read the current statistics of AMD's GPUs and of their partitions (``STATS``).

amdgpu has files with the statistics of a GPU (https://docs.kernel.org/gpu/amdgpu/thermal.html and
driver-misc.html). KFD has files with the memory of partitions and with the compute processes (the kernel's
drivers/gpu/drm/amd/amdkfd/kfd_process.c and kfd_topology.c).
"""

from __future__ import annotations

import re

from cdigen.host.procfs import number_behind
from cdigen.host.sysfs import PCI_DEVICES
from cdigen.model.findings import FindingCollector
from cdigen.model.stats import DeviceStats
from cdigen.value import replace
from cdigen.vendors.amd import kfd
from cdigen.vendors.kernel.device_files import DEADLINE_S, DeviceFiles, FilesToRead, read_devices
from cdigen.vendors.kernel.drm.clients import ROLES, Clients, processes_of, read_clients
from cdigen.vendors.kernel.nodes import all_nodes
from cdigen.vendors.kernel.pci.health import is_suspended
from cdigen.vendors.kernel.sensors import SUSPENDED, Sensors, files_to_read, mhz

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdigen.host.root import Root
    from cdigen.model.inventory import Accelerator, HostNode, Inventory
    from cdigen.model.stats import DeviceProcess
    from cdigen.vendors.context import DiscoveryContext

_FILES = (
    "mem_info_vram_total",
    "mem_info_vram_used",
    "gpu_busy_percent",
    "mem_busy_percent",
    "pp_dpm_sclk",
    "pp_dpm_mclk",
)
_PROCESSES = f"{kfd.KFD}/proc"
# The key of KFD's files in the results. The other keys are device addresses.
_KFD = "kfd"
_CLOCKS = re.compile(r"^\w+: *(\d+)Mhz", re.MULTILINE)


def read_stats(
    context: DiscoveryContext, inventory: Inventory, *, deadline_s: float = DEADLINE_S
) -> tuple[DeviceStats, ...]:
    """Return the statistics of the devices in INVENTORY and of their partitions; raise no exception.

    The function does not resume suspended devices. A device that does not answer within DEADLINE_S does not
    delay the other devices.
    """
    host = context.host
    nodes = _kfd_nodes(host) if inventory.accelerators else {}
    requests = {
        device.address: files_to_read(host, f"{PCI_DEVICES}/{device.address}", _FILES)
        for device in inventory.accelerators
        if not is_suspended(host, device.address)
    }
    requests[_KFD] = _of_kfd(host, nodes)
    results = read_devices(host, requests, deadline_s=deadline_s)
    active = [device for device in inventory.accelerators if device.address in requests]
    nodes_of_clients = [node for device in active for node in all_nodes(device) if node.role in ROLES]
    clients = read_clients(host, nodes_of_clients, deadline_s=deadline_s)
    return tuple(
        each
        for device in inventory.accelerators
        for each in _of_device(host, device, results, nodes, clients)
    )


def _kfd_nodes(host: Root) -> Mapping[int, str]:
    """Return a mapping from the number of a render node to the folder of its node in KFD."""
    topology = kfd.read_topology(host, FindingCollector())
    return {render: f"{kfd.NODES}/{node.name}" for render, node in topology.nodes.items()}


def _of_kfd(host: Root, nodes: Mapping[int, str]) -> FilesToRead:
    files = [
        f"{folder}/{name}"
        for folder in nodes.values()
        for name in ("gpu_id", "mem_banks/0/properties", "mem_banks/0/used_memory")
    ]
    for pid in host.names(_PROCESSES):
        names = host.names(f"{_PROCESSES}/{pid}") if pid.isdigit() else ()
        files += [f"{_PROCESSES}/{pid}/{name}" for name in names if name.startswith("vram_")]
    return FilesToRead(files=tuple(files))


def _of_device(
    host: Root,
    device: Accelerator,
    results: Mapping[str, DeviceFiles],
    nodes: Mapping[int, str],
    clients: Clients,
) -> Iterator[DeviceStats]:
    files = results.get(device.address)
    if files is None:
        blank = DeviceStats(address=device.address, problem=SUSPENDED)
    else:
        blank = _filled(device.address, files)
    of_kfd = results[_KFD]
    computing = _computing(_folders(all_nodes(device), nodes), of_kfd)
    yield replace(blank, processes=_processes(host, computing, clients, device.address if files else None))
    for part in device.partitions:
        folders = _folders(part.nodes, nodes)
        total, used = _memory(folders, of_kfd)
        computing = _computing(folders, of_kfd)
        yield DeviceStats(
            address=device.address,
            instance=part.instance,
            problem=blank.problem,
            memory_total=total,
            memory_used=used,
            processes=None if computing is None else processes_of(host, computing),
        )


def _filled(address: str, files: DeviceFiles) -> DeviceStats:
    if files.problem:
        return DeviceStats(address=address, problem=files.problem)
    sensors = Sensors(files, f"{PCI_DEVICES}/{address}")
    total = sensors.number("mem_info_vram_total") or None
    return replace(
        sensors.stats(address),
        memory_total=total,
        memory_used=sensors.number("mem_info_vram_used") if total else None,
        utilization=sensors.percent("gpu_busy_percent"),
        memory_utilization=sensors.percent("mem_busy_percent"),
        # Instincts from MI300 on have no sensor "edge".
        temperature=sensors.temperature("edge", "junction"),
        core_clock=sensors.clock("sclk"),
        memory_clock=sensors.clock("mclk"),
        core_clock_max=_highest(sensors.text("pp_dpm_sclk")),
        memory_clock_max=_highest(sensors.text("pp_dpm_mclk")),
    )


def _highest(levels: str) -> int | None:
    """Return the highest clock in LEVELS in MHz. LEVELS has lines such as ``1: 2100Mhz *``."""
    return mhz(max((int(level[:9]) for level in _CLOCKS.findall(levels)), default=None))


def _folders(of: tuple[HostNode, ...], nodes: Mapping[int, str]) -> list[str]:
    """Return the folder of KFD's node for each render node in the tuple OF."""
    names = (node.path.rpartition("/")[2] for node in of)
    renders = dict.fromkeys(number_behind("renderD", name) for name in names)
    return [nodes[render] for render in renders if render is not None and render in nodes]


def _memory(folders: list[str], kfd_files: DeviceFiles) -> tuple[int | None, int | None]:
    """Return the size and the used size of a partition's memory in bytes."""
    if len(folders) != 1:
        return None, None
    properties = kfd_files.texts.get(f"{folders[0]}/mem_banks/0/properties", "")
    found = re.search(r"^size_in_bytes (\d{1,18})$", properties, re.MULTILINE)
    total = int(found[1]) if found else 0
    return (total, kfd_files.number(f"{folders[0]}/mem_banks/0/used_memory")) if total else (None, None)


def _computing(folders: list[str], kfd_files: DeviceFiles) -> dict[int, int | None] | None:
    """Return the memory of the processes that KFD lists for the nodes at FOLDERS, by process id.

    The result is None if there is no such node, or if KFD's files cannot be read.
    """
    gpu_ids = {kfd_files.texts.get(f"{folder}/gpu_id", "").strip() for folder in folders} - {"", "0"}
    if not gpu_ids or kfd_files.problem:
        return None
    memory: dict[int, int | None] = {}
    for path in kfd_files.texts:
        folder, _, name = path.rpartition("/")
        pid = folder.rpartition("/")[2]
        if name.removeprefix("vram_") in gpu_ids and folder.startswith(_PROCESSES):
            memory[int(pid)] = (memory.get(int(pid)) or 0) + max(kfd_files.number(path) or 0, 0)
    return memory


def _processes(
    host: Root, computing: dict[int, int | None] | None, clients: Clients, address: str | None
) -> tuple[DeviceProcess, ...] | None:
    """Return the processes of a whole GPU, from KFD and from the clients of DRM devices.

    KFD and the DRM device both report the memory of a compute process. The result contains the greater value.
    If CLIENTS is not complete, the result contains only the processes from KFD. ADDRESS is None for a
    suspended GPU.
    """
    if address is None or not clients.is_complete:
        return None if computing is None else processes_of(host, computing)
    memory = dict(computing or {})
    for pid, used in clients.by_address.get(address, {}).items():
        memory[pid] = max(memory.get(pid) or 0, used or 0)
    return processes_of(host, memory)


STATS = read_stats
