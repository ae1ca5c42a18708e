"""Read the GPUs of amdgpu with their partitions and nodes.

The GPUs have the same numbers as in AMD's tools (``listing``). A GPU that KFD does not list can render, but
cannot compute. AMD's tools do not number such GPUs. cdigen numbers them after all other GPUs. An Instinct
that cannot compute gets no CDI device.
"""

from __future__ import annotations

from cdigen.host.containers import is_guest
from cdigen.host.procfs import mib, read_line
from cdigen.host.root import reason
from cdigen.model.inventory import Accelerator, Partition
from cdigen.value import replace
from cdigen.vendors.amd import kfd
from cdigen.vendors.amd.listing import (
    NO_MODES,
    by_gpu,
    numbered,
    read_devices,
    read_modes,
    report_contradictions,
)
from cdigen.vendors.kernel.drm import devices as drm
from cdigen.vendors.kernel.pci.names import amdgpu_name, pci_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.amd.kfd import Topology
    from cdigen.vendors.amd.listing import AmdDevice, NumberedDevice, PartitionModes

PCI_VENDOR = 0x1002
KFD_NODE = "/dev/kfd"
COMPUTE = ("compute",)
# The render node of a GPU without compute is for graphics and video only.
WITHOUT_KFD = ("graphics", "video")
DRIVER = "see 'dmesg | grep amdgpu' for the cause"
KFD_HINT = "see 'dmesg | grep kfd'"


class AmdGpuReader:
    """Reads the AMD GPUs of one host."""

    def __init__(self, scan: drm.NodeScan) -> None:
        self._scan = scan
        self._host, self._dev = scan.host, scan.dev
        self._collector = scan.collector
        self._kfd: tuple[HostNode, ...] = ()
        # Whether the host is a guest without /dev/kfd. Its GPUs are for graphics only.
        self._is_for_graphics = False
        # The verb in messages about GPUs that are not in KFD's topology.
        self._kfd_state = ""

    def read(self) -> tuple[Accelerator, ...]:
        """Return all GPUs, sorted by their numbers. A broken GPU is unusable, and has a finding."""
        topology = kfd.read_topology(self._host, self._collector)
        if topology.nodes:
            self._read_kfd()
        self._kfd_state = "does not list" if not topology.unread else "cannot be read for"
        gpus = by_gpu(numbered(read_devices(self._host), topology.nodes))
        modes = {address: self._modes(address, entries) for address, entries in gpus.items()}
        if topology.nodes:
            report_contradictions(self._collector, gpus, modes)
        self._report_without_kfd(gpus, modes, topology)
        found = [self._gpu(address, entries, modes[address]) for address, entries in gpus.items()]
        return tuple(self._without_repetition(sorted(found, key=lambda gpu: gpu.index)))

    def _read_kfd(self) -> None:
        numbers = drm.node_numbers(drm.device_numbers(self._host, f"{kfd.KFD}/dev"))
        read = self._scan.nodes.read
        node, problem = read(KFD_NODE, role="control", capabilities=COMPUTE, numbers=numbers)
        if node is None:
            text = f"{problem}; no container can compute on AMD's GPUs"
            self._is_for_graphics = not self._dev.exists(KFD_NODE) and is_guest(self._host)
            self._collector.add(
                "info" if self._is_for_graphics else "error",
                "control-node-missing",
                self._dev.host_path(KFD_NODE),
                text,
                self._scan.nodes.remedy(),
            )
        else:
            self._kfd = (node,)

    def _modes(self, address: str, entries: list[NumberedDevice]) -> PartitionModes:
        own = _own_folder(entries)
        return read_modes(self._host, self._collector, address, own) if own else NO_MODES

    def _gpu(self, address: str, entries: list[NumberedDevice], modes: PartitionModes) -> Accelerator:
        """Return the GPU at ADDRESS, which consists of the devices ENTRIES."""
        own = _own_folder(entries)
        # If ENTRIES has only partitions, ``own`` is empty, and ``{own}/device`` would be /device of the host.
        device_id = read_line(self._host, f"{own}/device") if own else ""
        product = self._product(own, device_id) or f"AMD GPU {device_id}".rstrip()
        uuids = {uuid for entry in entries if (uuid := self._uuid(entry, address))}
        uuid = uuids.pop() if len(uuids) == 1 else None
        whole = Accelerator(
            index=min(entry.ordinal for entry in entries),
            address=address,
            model=product,
            uuid=uuid,
            device_id=device_id,
            memory_mib=mib(read_line(self._host, f"{own}/mem_info_vram_total")) if own else None,
        )
        if _is_whole(entries, modes, address):
            nodes, problem = self._nodes(entries[0], address, modes=modes)
            split = f" ({modes.compute}, {modes.memory})" if modes.memory and modes.compute else ""
            return replace(
                whole,
                model=f"{product}{split}",
                minor=entries[0].device.render,
                nodes=nodes,
                usable=not problem,
                problem=problem,
            )
        partitions = self._partitions(entries, modes, address, has_own=uuid is None)
        usable = any(partition.usable for partition in partitions)
        return replace(
            whole,
            usable=usable,
            problem="" if usable else "no partition of the GPU can be used",
            partitioned=True,
            partitions=partitions,
        )

    def _product(self, own: str, device_id: str) -> str:
        """Return the product name of the GPU with the folder OWN, or "" if it is not known.

        Only GPUs for servers have the file ``product_name`` (amdgpu_fru_eeprom.c).
        """
        if not own:
            return ""
        revision = read_line(self._host, f"{own}/revision")
        name = read_line(self._host, f"{own}/product_name") or amdgpu_name(self._host, device_id, revision)
        if name:
            return name
        listed = pci_name(self._host, PCI_VENDOR, device_id)
        return f"AMD {listed}" if listed else ""

    def _partitions(
        self, entries: list[NumberedDevice], modes: PartitionModes, address: str, *, has_own: bool
    ) -> tuple[Partition, ...]:
        """Return the partitions in ENTRIES.

        If HAS_OWN is true, each partition has its own UUID (from ROCm 7.0 on). Else only the GPU has a UUID.
        """
        partitions = []
        for place, entry in enumerate(sorted(entries, key=lambda entry: entry.ordinal)):
            nodes, problem = self._nodes(entry, address, is_partition=True)
            partitions.append(
                Partition(
                    index=place,
                    uuid=self._uuid(entry, address) if has_own else None,
                    profile=modes.profile,
                    instance=entry.device.name,
                    graphics=False,
                    nodes=nodes,
                    usable=not problem,
                    problem=problem,
                    address=entry.device.name,
                    ordinal=entry.ordinal,
                    memory_mib=kfd.memory_mib(self._host, entry.node) if entry.node else None,
                )
            )
        return tuple(partitions)

    def _nodes(
        self,
        entry: NumberedDevice,
        address: str,
        *,
        is_partition: bool = False,
        modes: PartitionModes = NO_MODES,
    ) -> tuple[tuple[HostNode, ...], str]:
        """Return (nodes, "") for ENTRY, or ((), problem) if ENTRY cannot be used.

        MODES are the partition modes of a GPU that is not partitioned. For a partition, MODES is NO_MODES.
        """
        device = entry.device
        label = f"GPU {entry.ordinal} ({address}{f', {device.name}' if device.slot is None else ''})"
        minors = drm.minors(self._host, device.folder)
        if not minors:
            return (), self._report_lost(device, label)
        if is_partition and (problem := self._partition_problem(entry, address, label)):
            return (), problem
        if problem := self._compute_problem(entry, modes, label):
            return (), problem
        nodes: list[HostNode] = []
        for minor in minors:
            node, problem = self._scan.minor(device.folder, minor)
            if node is not None:
                is_complete = (entry.node and not self._is_for_graphics) or minor.role == "card"
                nodes.append(node if is_complete else replace(node, capabilities=WITHOUT_KFD))
                continue
            path = self._dev.host_path(minor.path)
            # A GPU that only drives displays has a card and no render node.
            if minor.role == "render" or len(minors) == 1:
                text = f"{label} gets no CDI device: {problem}"
                self._collector.add("error", "gpu-node-missing", path, text, self._scan.nodes.remedy())
                return (), f"its {'render node' if minor.role == 'render' else 'card'} cannot be used"
            text = f"{label} cannot drive displays: {problem}"
            self._collector.add("warning", "drm-node-missing", path, text, self._scan.nodes.remedy())
        if device.render is None and nodes:
            text = f"{label} has no render node: containers can use the GPU for displays only"
            self._collector.add("warning", "gpu-without-render-node", device.folder, text, DRIVER)
        if not nodes:
            return (), "its device nodes are missing"
        return (*(self._kfd if entry.node else ()), *nodes), ""

    def _partition_problem(self, entry: NumberedDevice, address: str, label: str) -> str:
        """Return the problem if ENTRY cannot be assigned to a GPU, else "".

        The function adds a finding for the problem.
        """
        device, node = entry.device, entry.node
        if node is None:
            text = f"{label} gets no CDI device: KFD {self._kfd_state} this partition"
            self._collector.add("error", "partition-without-kfd", device.folder, text, KFD_HINT)
            return f"KFD {self._kfd_state} it"
        if not _has_no_gpu(entry, address):
            return ""
        # If the partition has no location, the reader of the topology has added the finding.
        if node.location is not None:
            text = (
                f"{label} gets no CDI device: KFD reports no PCI domain for the partition, "
                "and not exactly one GPU has the partition's bus and device"
            )
            self._collector.add("error", "partition-without-gpu", device.folder, text, KFD_HINT)
        return "its GPU is not known"

    def _compute_problem(self, entry: NumberedDevice, modes: PartitionModes, label: str) -> str:
        """Return the problem if ENTRY must compute and cannot compute, else "".

        A finding reports each problem.
        """
        if entry.node is not None:
            # Without KFD's node, programs find no GPU, or compute on the CPU.
            can_render = self._is_for_graphics and not _must_compute(entry, modes)
            return "" if self._kfd or can_render else f"{KFD_NODE} cannot be used"
        if not _must_compute(entry, modes):
            return ""
        if entry.device.render is None:
            text = f"{label} has no render node: the GPU cannot compute and gets no CDI device"
            self._collector.add("error", "gpu-without-render-node", entry.device.folder, text, DRIVER)
        return f"KFD {self._kfd_state} it, so it cannot compute"

    def _report_lost(self, device: AmdDevice, label: str) -> str:
        """Add a finding that DEVICE has no DRM devices; return the problem as a short text."""
        try:
            self._host.directory(device.folder)
            why = "no DRM devices, because its driver has failed or the GPU is being removed"
        except OSError as error:
            why = f"its folder in /sys cannot be read: {reason(error)}"
        text = f"{label} gets no CDI device: {why}"
        self._collector.add("error", "gpu-lost", device.folder, text, DRIVER)
        return "it has no DRM devices"

    def _uuid(self, entry: NumberedDevice, address: str) -> str | None:
        """Return the unique_id in the format of 'amd-ctk gpu list', or None if it is not known."""
        # If a partition without a known GPU had a UUID, two GPUs would have the same UUID.
        if _has_no_gpu(entry, address):
            return None
        number = entry.node.unique_id if entry.node else 0
        if not number:
            digits = read_line(self._host, f"{entry.device.folder}/unique_id").lower().removeprefix("0x")
            try:
                number = int(digits, 16) if digits.isalnum() and len(digits) <= 16 else 0
            except ValueError:
                number = 0
        return f"0x{number:X}" if 0 < number < 1 << 64 else None

    def _report_without_kfd(
        self,
        gpus: Mapping[str, list[NumberedDevice]],
        modes: Mapping[str, PartitionModes],
        topology: Topology,
    ) -> None:
        """Add findings for GPUs that cannot compute.

        Each GPU has a separate finding. If KFD lists no GPU, one finding contains all compute GPUs, and one
        finding contains all other GPUs.
        """
        lacking = {
            address: entries[0]
            for address, entries in gpus.items()
            if len(entries) == 1 and entries[0].node is None and entries[0].device.render is not None
        }
        dead = {
            address: entry
            for address, entry in lacking.items()
            # GPUs that can be partitioned have the finding of report_contradictions instead.
            if _must_compute(entry, modes[address]) and not (topology.nodes and modes[address].can_split)
        }
        for_graphics = {
            address: entry for address, entry in lacking.items() if not _must_compute(entry, modes[address])
        }
        self._report_idle("error", dead, topology, "cannot compute and {gets} no CDI device")
        self._report_idle("warning", for_graphics, topology, "can be used for graphics only")

    def _report_idle(
        self, severity: Severity, lacking: Mapping[str, NumberedDevice], topology: Topology, what: str
    ) -> None:
        if lacking and not topology.nodes:
            why = f"{self._kfd_state} any GPU" if topology.unread else "lists no GPU that computes"
            gets = "gets" if len(lacking) == 1 else "get"
            text = f"KFD {why}: {', '.join(lacking)} {what.format(gets=gets)}"
            hint = KFD_HINT if topology.unread else _no_kfd_hint(self._host.exists(kfd.KFD))
            self._collector.add(severity, "gpu-without-kfd", kfd.NODES, text, hint)
            return
        for address, entry in lacking.items():
            text = (
                f"GPU {address}: KFD {self._kfd_state} renderD{entry.device.render}, so the GPU "
                f"{what.format(gets='gets')}"
            )
            self._collector.add(severity, "gpu-without-kfd", entry.device.folder, text, KFD_HINT)

    def _without_repetition(self, gpus: Iterable[Accelerator]) -> list[Accelerator]:
        """Return GPUS without repeated UUIDs; add a finding for each repeated UUID.

        A UUID that several GPUs have is not a valid name.
        """
        gpus = list(gpus)
        owners: dict[str, list[str]] = {}
        for gpu in gpus:
            # Partitions of the same GPU may have the same UUID. The name then means all these partitions.
            for uuid in dict.fromkeys(_uuids(gpu)):
                owners.setdefault(uuid, []).append(gpu.address)
        repeated = {uuid: addresses for uuid, addresses in owners.items() if len(addresses) > 1}
        for uuid, addresses in repeated.items():
            self._collector.add(
                "warning",
                "gpu-repeated",
                uuid,
                f"the GPUs {', '.join(addresses)} have the same UUID {uuid}: no CDI device has this name",
                "request these GPUs by their numbers or PCI addresses",
            )
        return [_without_uuids(gpu, set(repeated)) for gpu in gpus] if repeated else gpus


def _own_folder(entries: list[NumberedDevice]) -> str:
    """Return the folder of the GPU itself, or "" if ENTRIES contains only partitions."""
    return next((entry.device.folder for entry in entries if entry.device.slot is not None), "")


def _must_compute(entry: NumberedDevice, modes: PartitionModes) -> bool:
    """Return whether ENTRY is a compute GPU: an Instinct, or a GPU that can be partitioned."""
    return entry.device.is_instinct or modes.can_split


def _is_whole(entries: list[NumberedDevice], modes: PartitionModes, address: str) -> bool:
    """Return whether ENTRIES is a GPU that cdigen offers as one device.

    Such a GPU is not partitioned, or KFD does not list its partitions.
    """
    if len(entries) > 1 or _has_no_gpu(entries[0], address):
        return False
    return not modes.is_split or entries[0].node is None


def _has_no_gpu(entry: NumberedDevice, address: str) -> bool:
    """Return whether ENTRY is a partition whose GPU is not known (``by_gpu``)."""
    return entry.device.slot is None and entry.device.name == address


def _no_kfd_hint(has_kfd: bool) -> str:  # noqa: FBT001
    if has_kfd:
        return "see 'dmesg | grep kfd': KFD does not support every GPU"
    return "use a kernel that was built with HSA_AMD; programs that compute need this option"


def _uuids(gpu: Accelerator) -> list[str]:
    return [uuid for uuid in (gpu.uuid, *(part.uuid for part in gpu.partitions)) if uuid is not None]


def _without_uuids(gpu: Accelerator, uuids: Container[str | None]) -> Accelerator:
    partitions = tuple(replace(part, uuid=None) if part.uuid in uuids else part for part in gpu.partitions)
    return replace(gpu, uuid=None if gpu.uuid in uuids else gpu.uuid, partitions=partitions)
