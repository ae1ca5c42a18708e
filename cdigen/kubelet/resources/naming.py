"""What the kubelet knows devices by: ``candidates`` with the vendors' own resource names and lasting ids.

The kubelet keeps a unit's id over restarts, of itself and of this process, and what a container got for it,
its CDI names, as long as the container lives. So both are what stays with a device: its UUID, or else its PCI
address. A number would be another GPU's once one before it is gone; it is used where specs have nothing else.
"""

from __future__ import annotations

from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.pipeline.device_names import KnownDevice, by_name, known_devices
from cdigen.value import frozen
from cdigen.vendors import registry
from cdigen.vendors.base import ResourceNames
from cdigen.vendors.classes import GPU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cdigen.model.findings import Severity
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

    # Whether a spec offers the device with a qualified CDI name.
    IsOffered = Callable[[str], bool]

# deviceplugin/v1beta1/api.proto, Device.ID. Replicas add "::" and a number.
MAX_ID = 63
_SUFFIX = len("::4999")
# Modes of hosts whose driver offers all GPUs as one.
_UNDIVIDED = ("wsl", "csv")


@frozen
class Candidate:
    """A device that can be a unit: whole, or a partition.

    ``names`` are how its vendor's users call its resource. ``cdi_names`` give it alone, and specs have them,
    the most lasting first; none: no container can have it now. ``handles`` are the words by which a
    configuration means it, in lower case: those of a partition's GPU are also its own.
    """

    id: str
    device: KnownDevice
    names: ResourceNames
    cdi_names: tuple[str, ...]
    handles: frozenset[str]

    @property
    def is_split(self) -> bool:
        """Whether it is a GPU that is offered as its partitions, if at all, and never a unit."""
        return self.device.partition is None and self.device.accelerator.partitioned


def candidates(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...], is_offered: IsOffered
) -> tuple[tuple[Candidate, ...], tuple[Finding, ...]]:
    """Return the devices of INVENTORIES and their partitions, whole ones and all; and why some are left out.

    PROFILES name them as in the specs.
    """
    devices = (*known_devices(inventories, profiles), *_undivided(inventories, profiles))
    owners = by_name(devices)
    made: list[Candidate] = []
    found: list[Finding] = []
    for vendor, inventory in inventories.items():
        rows = registry.resource_names(vendor) or _by_kind(vendor, inventory)
        left_out = {row: row.left_out(inventory.accelerators) for row in rows}
        handles: dict[str, frozenset[str]] = {}
        for device in devices:
            if device.vendor != vendor:
                continue
            gpu = device.accelerator
            row = _row(rows, gpu)
            if row is None:
                found += _unnamed(rows, device)
                continue
            key = gpu.address or str(gpu.index)
            own = handles[key] | _handles(device) if device.partition and key in handles else _handles(device)
            handles.setdefault(key, own)
            if reason := left_out[row].get(gpu.address):
                found.append(finding("info", "resource-left-out", device, f"is not offered: {reason}"))
                continue
            alone = [name for name in device.names if len(owners.get(name, ())) <= 1 and is_offered(name)]
            made.append(
                Candidate(
                    id=_id(device),
                    device=device,
                    names=row,
                    cdi_names=tuple(sorted(alone, key=lambda name: _changeability(device, name))),
                    handles=own,
                )
            )
    return _distinct(made, found)


def _undivided(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]) -> Iterator[KnownDevice]:
    """Yield the one GPU of hosts of WSL and Tegra, whose inventories have no accelerators."""
    for vendor, inventory in inventories.items():
        groups = [group for group in inventory.groups if group.device_class == GPU and group.devices]
        if inventory.mode not in _UNDIVIDED or inventory.accelerators or not groups:
            continue
        gpu = Accelerator(
            index=0,
            address="",
            model=inventory.mode,
            uuid=None,
            minor=None,
            nodes=groups[0].devices[0].nodes,
            usable=True,
        )
        kinds = [f"{registry.cdi_vendor(vendor)}/{profile.device_class}" for profile in profiles]
        names = tuple(f"{kind}={device.name}" for kind in kinds for device in groups[0].devices)
        yield KnownDevice(vendor=vendor, name=names[0], names=names, accelerator=gpu)


def _distinct(
    made: Iterable[Candidate], found: list[Finding]
) -> tuple[tuple[Candidate, ...], tuple[Finding, ...]]:
    """Return the first of MADE with each id, and the findings FOUND with those on the others."""
    # AMD's first partition has the address of the GPU that it is a part of.
    kept: dict[tuple[str, bool], Candidate] = {}
    for candidate in made:
        key = candidate.id, candidate.is_split
        if kept.setdefault(key, candidate) is not candidate:
            other = kept[key].device.name
            text = f"is not offered: {other} has the same id, {candidate.id}"
            found.append(finding("error", "resource-ambiguous", candidate.device, text))
    return tuple(kept.values()), tuple(found)


def _by_kind(vendor: str, inventory: Inventory) -> tuple[ResourceNames, ...]:
    """Return names for devices of another package's vendor: their kinds."""
    classes = dict.fromkeys(gpu.device_class for gpu in inventory.accelerators)
    part = registry.cdi_vendor(vendor)
    return tuple(ResourceNames(device_class=each, name=f"{part}/{each}") for each in classes)


def _row(rows: Iterable[ResourceNames], gpu: Accelerator) -> ResourceNames | None:
    return next(
        (
            row
            for row in rows
            if row.device_class == gpu.device_class and row.kernel_driver in {"", gpu.kernel_driver}
        ),
        None,
    )


def _unnamed(rows: Iterable[ResourceNames], device: KnownDevice) -> Iterator[Finding]:
    """Yield why DEVICE, for which none of ROWS is, is not offered; classes without rows are passed over."""
    drivers = [row.kernel_driver for row in rows if row.device_class == device.accelerator.device_class]
    if drivers and device.partition is None:
        driver = device.accelerator.kernel_driver
        has = f"its driver is {driver}" if driver else "the inventory does not say which driver has it"
        text = f"is not offered: {has}, and there are resources of {', '.join(drivers)}"
        yield finding("info", "resource-left-out", device, text)


def _id(device: KnownDevice) -> str:
    """Return what the kubelet knows DEVICE by.

    NVIDIA's plugin has UUIDs, AMD's PCI addresses and amdgpu_xcp_<n>: the kubelet knows running containers'
    devices by them when this takes the place of one of the two.
    """
    gpu, partition = device.accelerator, device.partition
    # A unique id of AMD's can be that of all partitions of a GPU.
    has_uuids = device.vendor == "nvidia"
    whole = (gpu.uuid if has_uuids else "") or gpu.address or f"{device.vendor}-{gpu.device_class}{gpu.index}"
    if partition is None:
        return _short(whole)
    if has_uuids:
        return _short(partition.uuid or f"{whole}:{partition.instance.replace('/', '-')}")
    return _short(partition.instance or f"{whole}:{partition.label}")


def _short(text: str) -> str:
    """Return TEXT, or where it leaves no room for a replica's number, its end: beginnings are alike."""
    return text[-(MAX_ID - _SUFFIX) :].lstrip(":-/.")


def _changeability(device: KnownDevice, name: str) -> tuple[int, int]:
    """Return a sort key: of the profile that is first, names by UUID, by PCI address, by anything else."""
    kinds = list(dict.fromkeys(each.partition("=")[0] for each in device.names))
    kind, _, word = name.partition("=")
    plain = _plain(word)
    addresses = [device.accelerator.address, device.partition.address if device.partition else ""]
    if device.uuid and _plain(device.uuid) == plain:
        rank = 0
    elif any(address and plain.startswith(_plain(address)) for address in addresses):
        rank = 1
    else:
        rank = 2
    return kinds.index(kind), rank


def _plain(text: str) -> str:
    # Intel's names have addresses with hyphens alone.
    return text.casefold().replace(":", "-").replace(".", "-")


def _handles(device: KnownDevice) -> frozenset[str]:
    part = device.partition
    words = {_id(device), device.uuid, device.name, *device.names, part.instance if part else ""}
    words |= {part.address} if part else {device.accelerator.address}
    words |= {name.partition("=")[2] for name in (device.name, *device.names)}
    return frozenset(word.casefold() for word in words if word)


def finding(severity: Severity, rule: str, device: KnownDevice, text: str, hint: str = "") -> Finding:
    """Return the finding that DEVICE is as TEXT says."""
    return Finding(severity=severity, rule=rule, path=device.name, message=f"{device.name} {text}", hint=hint)
