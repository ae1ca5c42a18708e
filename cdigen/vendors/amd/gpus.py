"""Read the GPUs of amdgpu with their partitions and nodes, numbered as AMD's tools count (``listing``).

GPUs that KFD does not know render but do not compute: AMD's tools leave them out, and here they come after
the others. An Instinct is there to compute: one that cannot gets no device, and so no number.
"""

from __future__ import annotations

from cdigen.host.procfs import mib, read_line
from cdigen.host.root import reason
from cdigen.model.inventory import Accelerator, Partition
from cdigen.value import replace
from cdigen.vendors.amd import kfd
from cdigen.vendors.amd.listing import by_gpu, numbered, read_devices
from cdigen.vendors.amd.modes import NO_MODES, read_modes, report_contradictions
from cdigen.vendors.kernel import drm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from cdigen.model.findings import Severity
    from cdigen.model.inventory import HostNode
    from cdigen.vendors.amd.kfd import Topology
    from cdigen.vendors.amd.listing import AmdDevice, NumberedDevice
    from cdigen.vendors.amd.modes import PartitionModes
    from cdigen.vendors.kernel.scan import NodeScan

KFD_NODE = "/dev/kfd"
COMPUTE = ("compute",)
# Of a GPU that does not compute, the render node is for those alone who want what it does.
WITHOUT_KFD = ("graphics", "video")
DRIVER = "see 'dmesg | grep amdgpu' for what happened to it"
KFD_HINT = "see 'dmesg | grep kfd'"


class AmdGpuReader:
    """Reads the GPUs of one host."""

    def __init__(self, scan: NodeScan) -> None:
        self._scan = scan
        self._host, self._dev = scan.host, scan.dev
        self._collector = scan.collector
        self._kfd: tuple[HostNode, ...] = ()
        # What KFD has to say of a GPU that it has not named.
        self._asked = ""

    def read(self) -> tuple[Accelerator, ...]:
        """Read every GPU, in the order of their numbers; one that is broken is unusable, with a finding."""
        topology = kfd.read_topology(self._host, self._collector)
        if topology.nodes:
            self._read_kfd()
        self._asked = "does not know" if not topology.unread else "could not be asked about"
        gpus = by_gpu(numbered(read_devices(self._host), topology.nodes))
        modes = {address: self._modes(address, entries) for address, entries in gpus.items()}
        if topology.nodes:
            report_contradictions(self._collector, gpus, modes)
        self._say_without_kfd(gpus, modes, topology)
        found = [self._gpu(address, entries, modes[address]) for address, entries in gpus.items()]
        return tuple(self._without_repetition(sorted(found, key=lambda gpu: gpu.index)))

    def _read_kfd(self) -> None:
        numbers = drm.node_numbers(drm.device_numbers(self._host, f"{kfd.KFD}/dev"))
        read = self._scan.nodes.read
        node, problem = read(KFD_NODE, role="control", capabilities=COMPUTE, numbers=numbers)
        if node is None:
            text = f"{problem}; no container can compute on AMD's GPUs"
            self._collector.add(
                "error", "control-node-missing", self._dev.host_path(KFD_NODE), text, drm.UDEV_HINT
            )
        else:
            self._kfd = (node,)

    def _modes(self, address: str, entries: list[NumberedDevice]) -> PartitionModes:
        own = _own_folder(entries)
        return read_modes(self._host, self._collector, address, own) if own else NO_MODES

    def _gpu(self, address: str, entries: list[NumberedDevice], modes: PartitionModes) -> Accelerator:
        """Return the GPU at ADDRESS, which is offered as ENTRIES."""
        own = _own_folder(entries)
        # Without a folder of its own, the paths would be those of the host's root.
        device_id = read_line(self._host, f"{own}/device") if own else ""
        product = read_line(self._host, f"{own}/product_name") if own else ""
        product = product or f"AMD GPU {device_id}".rstrip()
        uuids = {uuid for entry in entries if (uuid := self._uuid(entry, address))}
        uuid = uuids.pop() if len(uuids) == 1 else None
        whole = Accelerator(
            index=min(entry.ordinal for entry in entries),
            address=address,
            model=product,
            uuid=uuid,
            minor=None,
            nodes=(),
            usable=False,
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
            problem="" if usable else "none of its partitions can be used",
            partitioned=True,
            partitions=partitions,
        )

    def _partitions(
        self, entries: list[NumberedDevice], modes: PartitionModes, address: str, *, has_own: bool
    ) -> tuple[Partition, ...]:
        """Return ENTRIES as partitions; from ROCm 7.0 on each HAS_OWN UUID, before all have the GPU's."""
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
        """Return the nodes that a device needs and no problem, or none and what is wrong with it.

        MODES are those of a GPU in one piece.
        """
        device = entry.device
        who = f"GPU {entry.ordinal} ({address}{f', {device.name}' if device.slot is None else ''})"
        minors = drm.minors(self._host, device.folder)
        if not minors:
            return (), self._lost(device, who)
        if is_partition and (problem := self._stray(entry, address, who)):
            return (), problem
        if problem := self._idle(entry, modes, who):
            return (), problem
        nodes: list[HostNode] = []
        for minor in minors:
            node, problem = self._scan.minor(device.folder, minor)
            if node is not None:
                nodes.append(node if entry.node or minor.role == "card" else _for_graphics(node))
                continue
            path = self._dev.host_path(minor.path)
            # Of a GPU that only shows pictures, the card is all there is.
            if minor.role == "render" or len(minors) == 1:
                text = f"{who}: {problem}; it gets no device"
                self._collector.add("error", "gpu-node-missing", path, text, drm.UDEV_HINT)
                return (), f"its {'render node' if minor.role == 'render' else 'card'} cannot be used"
            text = f"{who}: {problem}; it cannot show pictures on a screen"
            self._collector.add("warning", "drm-node-missing", path, text, drm.UDEV_HINT)
        if device.render is None and nodes:
            text = f"{who} has no render node: it is offered for showing pictures only"
            self._collector.add("warning", "gpu-without-render-node", device.folder, text, DRIVER)
        if not nodes:
            return (), "its device nodes are missing"
        return (*(self._kfd if entry.node else ()), *nodes), ""

    def _stray(self, entry: NumberedDevice, address: str, who: str) -> str:
        """Say why a partition cannot be known well enough; returns the problem in short, or nothing."""
        device, node = entry.device, entry.node
        if node is None:
            text = f"{who}: KFD {self._asked} this partition, which gets no device"
            self._collector.add("error", "partition-without-kfd", device.folder, text, KFD_HINT)
            return f"KFD {self._asked} it"
        if not _is_adrift(entry, address):
            return ""
        # Of one without any location the topology's reader has told already.
        if node.location is not None:
            text = f"{who}: KFD tells no domain, and no one GPU is at its bus and device; it gets no device"
            self._collector.add("error", "partition-without-gpu", device.folder, text, KFD_HINT)
        return "it is not known of which GPU it is a partition"

    def _idle(self, entry: NumberedDevice, modes: PartitionModes, who: str) -> str:
        """Return why a device cannot do what it is for, or nothing; most of that is said once for all."""
        if entry.node is not None:
            # A program that was given such a GPU would find none, or compute on its processor.
            return "" if self._kfd else f"{KFD_NODE} cannot be used"
        if not _must_compute(entry, modes):
            return ""
        if entry.device.render is None:
            text = f"{who} has no render node: it cannot compute and gets no device"
            self._collector.add("error", "gpu-without-render-node", entry.device.folder, text, DRIVER)
        return f"KFD {self._asked} it, so it cannot compute"

    def _lost(self, device: AmdDevice, who: str) -> str:
        """Say why a device that is listed has no DRM devices; returns the problem in short."""
        try:
            self._host.directory(device.folder)
            why = "has no DRM devices: its driver has failed, or it is being removed"
        except OSError as error:
            why = f"is listed, but its folder cannot be read: {reason(error)}"
        text = f"{who} {why}; it gets no device"
        self._collector.add("error", "gpu-lost", device.folder, text, DRIVER)
        return "it has no DRM devices"

    def _uuid(self, entry: NumberedDevice, address: str) -> str | None:
        """Return the GPU's unique_id in the form of 'amd-ctk gpu list', None where it has none."""
        # Of a partition whose GPU nobody knows it would be a second GPU's.
        if _is_adrift(entry, address):
            return None
        number = entry.node.unique_id if entry.node else 0
        if not number:
            digits = read_line(self._host, f"{entry.device.folder}/unique_id").lower().removeprefix("0x")
            try:
                number = int(digits, 16) if digits.isalnum() and len(digits) <= 16 else 0
            except ValueError:
                number = 0
        return f"0x{number:X}" if 0 < number < 1 << 64 else None

    def _say_without_kfd(
        self,
        gpus: Mapping[str, list[NumberedDevice]],
        modes: Mapping[str, PartitionModes],
        topology: Topology,
    ) -> None:
        """Say which GPUs do not compute: each, or where KFD knows none, all at once; partitions say it."""
        lacking = {
            address: entries[0]
            for address, entries in gpus.items()
            if len(entries) == 1 and entries[0].node is None and entries[0].device.render is not None
        }
        dead = {
            address: entry
            for address, entry in lacking.items()
            # Of one that can be split, the contradiction is said.
            if _must_compute(entry, modes[address]) and not (topology.nodes and modes[address].can_split)
        }
        for_graphics = {
            address: entry for address, entry in lacking.items() if not _must_compute(entry, modes[address])
        }
        self._say_idle("error", dead, topology, "cannot compute and {gets} no device")
        self._say_idle("warning", for_graphics, topology, "can be used for graphics only")

    def _say_idle(
        self, severity: Severity, lacking: Mapping[str, NumberedDevice], topology: Topology, what: str
    ) -> None:
        if lacking and not topology.nodes:
            why = f"{self._asked} any GPU" if topology.unread else "knows no GPU that computes"
            gets = "gets" if len(lacking) == 1 else "get"
            text = f"KFD {why}: {', '.join(lacking)} {what.format(gets=gets)}"
            hint = KFD_HINT if topology.unread else _no_kfd_hint(self._host.exists(kfd.KFD))
            self._collector.add(severity, "gpu-without-kfd", kfd.NODES, text, hint)
            return
        for address, entry in lacking.items():
            text = (
                f"GPU {address}: KFD {self._asked} renderD{entry.device.render}, so it "
                f"{what.format(gets='gets')}"
            )
            self._collector.add(severity, "gpu-without-kfd", entry.device.folder, text, KFD_HINT)

    def _without_repetition(self, gpus: Iterable[Accelerator]) -> list[Accelerator]:
        """Return GPUS without the UUIDs that two of them have: a name is that of one device, or of none."""
        gpus = list(gpus)
        owners: dict[str, list[str]] = {}
        for gpu in gpus:
            # Within one GPU a UUID may be that of several partitions, which it names together.
            for uuid in dict.fromkeys(_uuids(gpu)):
                owners.setdefault(uuid, []).append(gpu.address)
        repeated = {uuid: addresses for uuid, addresses in owners.items() if len(addresses) > 1}
        for uuid, addresses in repeated.items():
            self._collector.add(
                "warning",
                "gpu-repeated",
                uuid,
                f"the GPUs {', '.join(addresses)} have one UUID, {uuid}, which names none of them",
                "name them by their numbers or addresses",
            )
        return [_without_uuids(gpu, set(repeated)) for gpu in gpus] if repeated else gpus


def _own_folder(entries: list[NumberedDevice]) -> str:
    """Return the folder of the GPU itself, or nothing where only partitions of it are listed."""
    return next((entry.device.folder for entry in entries if entry.device.slot is not None), "")


def _must_compute(entry: NumberedDevice, modes: PartitionModes) -> bool:
    """Return whether a GPU is there to compute: an Instinct, or one that can be split, as only these can."""
    return entry.device.is_instinct or modes.can_split


def _is_whole(entries: list[NumberedDevice], modes: PartitionModes, address: str) -> bool:
    """Return whether a GPU is offered in one piece: it is not split, or KFD knows none of its parts."""
    if len(entries) > 1 or _is_adrift(entries[0], address):
        return False
    return not modes.is_split or entries[0].node is None


def _is_adrift(entry: NumberedDevice, address: str) -> bool:
    """Return whether ENTRY is a partition that stands under its own name (``by_gpu``)."""
    return entry.device.slot is None and entry.device.name == address


def _for_graphics(node: HostNode) -> HostNode:
    return replace(node, capabilities=WITHOUT_KFD)


def _no_kfd_hint(has_kfd: bool) -> str:  # noqa: FBT001
    if has_kfd:
        return "see 'dmesg | grep kfd': it does not support every GPU"
    return "this kernel was built without HSA_AMD; programs that compute need it"


def _uuids(gpu: Accelerator) -> list[str]:
    return [uuid for uuid in (gpu.uuid, *(part.uuid for part in gpu.partitions)) if uuid is not None]


def _without_uuids(gpu: Accelerator, uuids: Container[str | None]) -> Accelerator:
    partitions = tuple(replace(part, uuid=None) if part.uuid in uuids else part for part in gpu.partitions)
    return replace(gpu, uuid=None if gpu.uuid in uuids else gpu.uuid, partitions=partitions)
