"""List the devices of amdgpu, numbered as AMD's tools count them, and group them by GPU.

The order is that of container-toolkit 1.3.0 (internal/amdgpu, GetAMDGPUs): PCI devices by their addresses as
text, then partitions by their names as text; of these, those whose render node KFD knows, grouped by the GPU
that KFD names, in the order in which the groups are met; within a group by the number of the render node.
A device in no group is not counted there, and comes after all others here.
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
# The module's own list of its devices, and the bus's, which is the same one.
PCI_LISTS = (f"{MODULE}/drivers/pci:amdgpu", "/sys/bus/pci/drivers/amdgpu")
PLATFORM = "/sys/devices/platform"
# Partitions but each GPU's first are devices of the platform: amdgpu_xcp_3, and amdgpu_xcp.3 of kernels
# without a change of April 2024 to amdgpu_xcp_drv.c (k8s-device-plugin issue 157).
XCP = "amdgpu_xcp"


@frozen
class AmdDevice:
    """A device that is listed: its folder in /sys, its address or name, its slot where it is on the PCI bus.

    ``render`` is the number of its render node, None without one; ``is_instinct`` says that it is a
    processing accelerator to the PCI bus, not a display adapter.
    """

    folder: str
    name: str
    slot: Slot | None
    render: int | None
    is_instinct: bool = False


def read_devices(host: Root) -> tuple[AmdDevice, ...]:
    """Return the PCI devices that amdgpu has, then its partition devices, each by name."""
    return (*_pci(host), *_partitions(host))


def grouped_like_amd_tools(
    devices: tuple[AmdDevice, ...], topology: dict[int, KfdNode]
) -> tuple[tuple[AmdDevice, ...], ...]:
    """Return those of DEVICES that AMD's tools count, in their order, those of one GPU together."""
    groups: dict[Slot, list[AmdDevice]] = {}
    for device in devices:
        # Its glob takes four digits of a domain, and virtual machines have more.
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
    """A device to offer, its number, and what KFD knows of it, or None."""

    device: AmdDevice
    ordinal: int
    node: KfdNode | None


def numbered(devices: tuple[AmdDevice, ...], topology: dict[int, KfdNode]) -> list[NumberedDevice]:
    """Return what is offered of DEVICES, numbered: what AMD's tools count, then what is left.

    Of that, Instincts come last: they get no device, and take no number from a GPU that can show pictures.
    Partition devices that KFD does not know are the idle ones of GPUs that are split less than they could be:
    the kernel makes all that there could be at once.
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
    """Return ENTRIES by the addresses of their GPUs; a partition is of the GPU where KFD says it is.

    Where KFD tells no domain, it is of the one GPU with that bus and device; one that is of none, or of any
    of several, stands under its own name.
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
