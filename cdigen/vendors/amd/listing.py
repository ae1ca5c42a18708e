"""List the devices of amdgpu with the numbers that AMD's tools use, grouped by GPU, and read partition modes.

cdigen uses the order of container-toolkit 1.3.0 (internal/amdgpu, GetAMDGPUs). PCI devices come first, sorted
by address as text. Partitions follow, sorted by name as text. The devices that KFD assigns to one GPU are a
group. Groups are sorted by their first devices. The devices in a group are sorted by the numbers of their
render nodes.

A device has no group if KFD does not list its render node. AMD's tools do not number devices without a group.
cdigen numbers these devices after all other devices.

``current_compute_partition`` and ``current_memory_partition`` contain one word each (amdgpu_gfx.c,
amdgpu_gmc.c). The word and KFD's topology do not change at the same time. During a change, the file may
already contain the new mode while KFD lists only some or none of the partitions.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import number_behind, read_line, read_text
from cdigen.host.root import reason
from cdigen.value import frozen, replace
from cdigen.vendors.amd.kfd import bus_and_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.host.root import Root
    from cdigen.model.findings import FindingCollector
    from cdigen.vendors.amd.kfd import KfdNode, Slot

MODULE = "/sys/module/amdgpu"
# The list of the module's devices. The folder of the module and the folder of the PCI bus have the same list.
PCI_LISTS = (f"{MODULE}/drivers/pci:amdgpu", "/sys/bus/pci/drivers/amdgpu")
PLATFORM = "/sys/devices/platform"
# All partitions of a GPU except the first are platform devices with names such as amdgpu_xcp_3. Before April
# 2024 (amdgpu_xcp_drv.c), the kernel used names such as amdgpu_xcp.3 (k8s-device-plugin issue 157).
XCP = "amdgpu_xcp"
WHOLE = "SPX"
# Compute mode -> number of devices of the GPU. In CPX, it is the GPU's number of compute dies.
COMPUTE_MODES: dict[str, int | None] = {WHOLE: 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": None}
MEMORY_MODES = ("NPS1", "NPS2", "NPS3", "NPS4", "NPS6", "NPS8")
HINT = "run 'cdigen inspect' after a mode change ends; see 'dmesg | grep -e amdgpu -e kfd'"


@frozen
class AmdDevice:
    """A device of amdgpu.

    ``folder`` is its folder in /sys. ``name`` is the PCI address of a PCI device, or the name of a partition.
    ``slot`` is None for a partition. ``render`` is the number of the render node, or None if there is no
    render node. ``is_instinct`` is true if the PCI class is processing accelerator instead of display
    adapter.
    """

    folder: str
    name: str
    slot: Slot | None
    render: int | None
    is_instinct: bool = False


def read_devices(host: Root) -> tuple[AmdDevice, ...]:
    """Return the PCI devices of amdgpu, sorted by name, and then the partitions, sorted by name."""
    return (*_pci(host), *_partitions(host))


def grouped_like_amd_tools(
    devices: tuple[AmdDevice, ...], topology: dict[int, KfdNode]
) -> tuple[tuple[AmdDevice, ...], ...]:
    """Return the devices in DEVICES that AMD's tools number, in the order of the tools, grouped by GPU."""
    groups: dict[Slot, list[AmdDevice]] = {}
    for device in devices:
        # AMD's tools match only PCI domains of four digits. In virtual machines, a domain can have more
        # digits.
        if device.slot is not None and device.name.find(":") != 4:
            continue
        node = topology.get(device.render) if device.render else None
        if node is not None and node.slot is not None:
            groups.setdefault(node.slot, []).append(device)
    return tuple(tuple(sorted(group, key=lambda device: device.render or 0)) for group in groups.values())


def _pci(host: Root) -> list[AmdDevice]:
    found = []
    folder = next((folder for folder in PCI_LISTS if host.exists(folder)), "")
    for name in host.names(folder) if folder else ():
        key = sysfs.pci_key(name.lower())
        if key is not None:
            device = _listed(host, f"{folder}/{name}", name, key[:3])
            is_instinct = sysfs.class_of(host, device.folder) == sysfs.PROCESSING_ACCELERATOR
            found.append(replace(device, is_instinct=is_instinct))
    return found


def _partitions(host: Root) -> list[AmdDevice]:
    names = [name for name in host.names(PLATFORM) if name.startswith((f"{XCP}_", f"{XCP}."))]
    names.sort(key=lambda name: name.replace(".", "_"))
    return [_listed(host, f"{PLATFORM}/{name}", name, None) for name in names]


def _listed(host: Root, folder: str, name: str, slot: Slot | None) -> AmdDevice:
    numbers = [number_behind("renderD", entry) for entry in host.names(f"{folder}/drm")]
    render = next((number for number in reversed(numbers) if number is not None), None)
    return AmdDevice(folder=folder, name=name, slot=slot, render=render)


@frozen
class NumberedDevice:
    """A device of the inventory, with its number. ``node`` is None if KFD does not list the device."""

    device: AmdDevice
    ordinal: int
    node: KfdNode | None


def numbered(devices: tuple[AmdDevice, ...], topology: dict[int, KfdNode]) -> list[NumberedDevice]:
    """Return the devices of the inventory, with their numbers.

    The devices that AMD's tools number are the first. All other devices follow. Instincts without a KFD node
    are the last. They get no CDI device, so GPUs that can render have the lower numbers.

    Partitions that KFD does not list are left out, because they are not in use. The kernel always creates as
    many partition devices as the mode with the most partitions needs.
    """
    order = [device for group in grouped_like_amd_tools(devices, topology) for device in group]
    known = {device.folder for device in order}
    left = (
        device
        for device in devices
        if device.folder not in known and (device.slot is not None or device.render in topology)
    )
    order += sorted(left, key=lambda device: device.is_instinct and device.render not in topology)
    return [
        NumberedDevice(
            device=device, ordinal=ordinal, node=topology.get(device.render) if device.render else None
        )
        for ordinal, device in enumerate(order)
    ]


def by_gpu(entries: list[NumberedDevice]) -> dict[str, list[NumberedDevice]]:
    """Return a mapping from the address of a GPU to its devices in ENTRIES.

    KFD reports the PCI address of a partition's GPU. If KFD reports no PCI domain, only the bus and the
    device are compared. If a partition matches no GPU or several GPUs, the key is the partition's name.
    """
    gpus: dict[str, list[NumberedDevice]] = {}
    owners: dict[Slot, str] = {}
    for entry in entries:
        if entry.device.slot is not None:
            gpus[entry.device.name] = [entry]
            owners.setdefault(entry.device.slot, entry.device.name)
    on_bus = dict(owners)
    for entry in entries:
        if entry.device.slot is None:
            gpus.setdefault(_owner(entry, owners, on_bus), []).append(entry)
    return gpus


def _owner(entry: NumberedDevice, owners: dict[Slot, str], on_bus: dict[Slot, str]) -> str:
    node = entry.node
    if node is not None and node.slot is not None:
        return owners.setdefault(node.slot, "{:04x}:{:02x}:{:02x}.0".format(*node.slot))
    if node is None or node.location is None:
        return entry.device.name
    found = [name for slot, name in on_bus.items() if slot[1:] == bus_and_device(node.location)]
    return found[0] if len(found) == 1 else entry.device.name


@frozen
class PartitionModes:
    """The partition modes of a GPU, in the kernel's words.

    A mode is empty if the GPU has no mode or an unknown mode. ``can_split`` is true if the kernel has a file
    with the compute mode. ``device_id`` is the PCI device number. GPUs with the same number and the same
    modes have the same number of partitions.
    """

    compute: str
    memory: str
    can_split: bool = False
    device_id: str = ""

    @property
    def profile(self) -> str:
        """The name of a partition's profile in AMD's Kubernetes plugin, such as ``cpx_nps1``."""
        return "_".join(word.lower() for word in (self.compute, self.memory) if word)

    @property
    def is_split(self) -> bool:
        """Whether the GPU's compute mode splits the GPU into several devices."""
        return self.compute not in {"", WHOLE}


NO_MODES = PartitionModes(compute="", memory="")


def read_modes(host: Root, collector: FindingCollector, address: str, folder: str) -> PartitionModes:
    """Return the modes of the GPU at ADDRESS; add a finding for each unknown word.

    FOLDER is the folder of the GPU in /sys.
    """
    if not host.exists(folder):
        return NO_MODES
    return PartitionModes(
        compute=_mode(host, collector, address, f"{folder}/current_compute_partition", tuple(COMPUTE_MODES)),
        memory=_mode(host, collector, address, f"{folder}/current_memory_partition", MEMORY_MODES),
        can_split=host.exists(f"{folder}/current_compute_partition"),
        device_id=read_line(host, f"{folder}/device"),
    )


def _mode(host: Root, collector: FindingCollector, address: str, path: str, known: tuple[str, ...]) -> str:
    try:
        word = read_text(host, path).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        problem = f"cannot be read: {reason(error)}"
    else:
        if word.upper() in known:
            return word.upper()
        problem = f"contains an unknown mode {word[:40]!a} (known: {', '.join(known)})"
    text = f"GPU {address}: {path} {problem}; cdigen uses the existing devices of the GPU"
    collector.add("warning", "partition-unknown", path, text)
    return ""


def report_contradictions(
    collector: FindingCollector, gpus: Mapping[str, list[NumberedDevice]], modes: Mapping[str, PartitionModes]
) -> None:
    """Add a finding for each GPU with a wrong number of devices in KFD.

    The number is wrong if the mode of the GPU requires a different number, or if another GPU of the same type
    and mode has more devices.
    """
    most: dict[PartitionModes, int] = {}
    for address, entries in gpus.items():
        most[modes[address]] = max(most.get(modes[address], 0), _known(entries))
    for address, entries in gpus.items():
        mode, known = modes[address], _known(entries)
        # If KFD does not list some of the GPU's devices, there is a separate finding for each of them.
        if not mode.can_split or 0 < known < len(entries):
            continue
        folder = next(entry.device.folder for entry in entries if entry.device.slot is not None)
        path = f"{folder}/current_compute_partition"
        expected = COMPUTE_MODES.get(mode.compute)
        if not known or known != (expected or known):
            word = f"is in mode {mode.compute}" if mode.compute else "can be partitioned"
            text = f"GPU {address} {word}, but KFD {_has(known)}"
            collector.add("error", "partition-contradiction", path, text, HINT)
        elif known < most[mode]:
            # amdsmi issue 99 describes this fault, which affects single GPUs in large fleets.
            text = (
                f"GPU {address} has {known} partitions in {mode.compute}, but another GPU of its type has "
                f"{most[mode]}; cdigen uses the existing partitions, with the numbers of AMD's tools"
            )
            collector.add("error", "partition-missing", path, text, HINT)


def _known(entries: list[NumberedDevice]) -> int:
    return sum(entry.node is not None for entry in entries)


def _has(known: int) -> str:
    if not known:
        return "lists no part of the GPU; the GPU gets no CDI device"
    return f"lists {known} partitions; cdigen uses them" if known > 1 else "lists one device; cdigen uses it"
