"""Which of amdgpu's devices are offered, with which numbers, and which of them are one GPU."""

from __future__ import annotations

from cdigen.value import frozen
from cdigen.vendors.amd.kfd import bus_and_device
from cdigen.vendors.amd.listing import grouped_like_amd_tools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.amd.kfd import KfdNode, Slot
    from cdigen.vendors.amd.listing import AmdDevice


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
