"""List the devices of amdgpu with the numbers that AMD's tools use, grouped by GPU.

cdigen uses the order of container-toolkit 1.3.0 (internal/amdgpu, GetAMDGPUs). PCI devices come first, sorted
by address as text. Partitions follow, sorted by name as text. The devices that KFD assigns to one GPU are a
group. Groups are sorted by their first devices. The devices in a group are sorted by the numbers of their
render nodes.

A device has no group if KFD does not list its render node. AMD's tools do not number devices without a group.
cdigen numbers these devices after all other devices.
"""

from __future__ import annotations

from cdigen.host import sysfs
from cdigen.host.procfs import number_behind
from cdigen.value import frozen, replace
from cdigen.vendors.amd.kfd import bus_and_device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.host.root import Root
    from cdigen.vendors.amd.kfd import KfdNode, Slot

MODULE = "/sys/module/amdgpu"
# The list of the module's devices. The folder of the module and the folder of the PCI bus have the same list.
PCI_LISTS = (f"{MODULE}/drivers/pci:amdgpu", "/sys/bus/pci/drivers/amdgpu")
PLATFORM = "/sys/devices/platform"
# All partitions of a GPU except the first are platform devices with names such as amdgpu_xcp_3. Before April
# 2024 (amdgpu_xcp_drv.c), the kernel used names such as amdgpu_xcp.3 (k8s-device-plugin issue 157).
XCP = "amdgpu_xcp"


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
