"""``candidates`` returns the devices with the vendors' resource names and with lasting ids.

The kubelet keeps the id of a unit across restarts of the kubelet and of this process. The kubelet keeps the
CDI names of a container as long as the container exists. So ids and names use a lasting property of the
device (the UUID or the PCI address). An index may become the index of another GPU if a GPU with a smaller
index is removed. Names with an index are used only if specs have no other name for the device.
"""

from __future__ import annotations

from functools import partial

from cdigen.config.settings import MAX_REPLICAS
from cdigen.kubelet.resources.model import MAX_ID, REPLICA, Unit
from cdigen.model.findings import Finding
from cdigen.model.inventory import Accelerator
from cdigen.pipeline.device_names import KnownDevice, devices_by_name, known_devices
from cdigen.value import frozen
from cdigen.vendors import registry
from cdigen.vendors.base import ResourceNames
from cdigen.vendors.classes import GPU
from cdigen.vendors.exclusion import exclusion_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cdigen.model.findings import Severity
    from cdigen.model.inventory import Inventory
    from cdigen.model.profile import Profile

    # Returns whether a spec has a qualified CDI name.
    IsInSpec = Callable[[str], bool]

# Replicas add REPLICA and a number to an id.
_SUFFIX = len(f"{REPLICA}{MAX_REPLICAS - 1}")


@frozen
class NamingCandidate:
    """A whole device or a partition that can be a unit.

    ``names`` are the vendor's names of the device's resource. ``cdi_names`` are the names in specs that
    inject only this device, with the most lasting name first. If ``cdi_names`` is empty, no container can
    have the device now. ``handles`` are the words by which a configuration can name the device, in lower
    case. A partition also has the handles of its GPU. ``profile`` is the profile of the partition, or the
    profile in the name of the whole device's resource, or "". ``named_gb`` is the memory size of a whole
    device in GB by its model, or None. ``claim_names`` are those of the unit.
    """

    id: str
    device: KnownDevice
    names: ResourceNames
    cdi_names: tuple[str, ...]
    handles: frozenset[str]
    profile: str
    named_gb: int | None
    claim_names: tuple[str, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether the device is a partitioned GPU; then only the partitions can be units."""
        return self.device.partition is None and self.device.accelerator.partitioned

    def unit(self, kind: str = "") -> Unit:
        """Return the device as a unit with one name of KIND (the most lasting), to inject the device once."""
        device = self.device
        names = [name for name in self.cdi_names if not kind or name.startswith(f"{kind}=")]
        return Unit(
            id=self.id,
            health=device.health if names and device.usable else "unhealthy",
            numa=device.accelerator.numa_node,
            accelerator=device.accelerator,
            partition=device.partition,
            cdi_names=tuple(names[:1]),
            claim_names=self.claim_names,
        )


def candidates(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...], is_in_spec: IsInSpec
) -> tuple[tuple[NamingCandidate, ...], tuple[Finding, ...]]:
    """Return the GPUs and partitions of INVENTORIES, and findings on the devices that are left out.

    PROFILES name the devices as in the specs.
    """
    devices = (*known_devices(inventories, profiles), *_undivided(inventories, profiles))
    owners = devices_by_name(devices)

    def is_usable_name(name: str) -> bool:
        return len(owners.get(name, ())) <= 1 and is_in_spec(name)

    made: list[NamingCandidate] = []
    found: list[Finding] = []
    for vendor, inventory in inventories.items():
        own = [device for device in devices if device.vendor == vendor]
        with registry.reporting(vendor, found):
            of_vendor, more = _candidates_of(inventory, own, is_usable_name)
            made += of_vendor
            found += more
    return _distinct(made, found)


def _candidates_of(
    inventory: Inventory, devices: Iterable[KnownDevice], is_usable_name: IsInSpec
) -> tuple[list[NamingCandidate], list[Finding]]:
    """Return the candidates for DEVICES of INVENTORY, and findings on the other devices."""
    made: list[NamingCandidate] = []
    found: list[Finding] = []
    rows = registry.resource_names(inventory.vendor) or _by_kind(inventory)
    left_out = {row: row.left_out(inventory.accelerators) for row in rows}
    handles: dict[str, frozenset[str]] = {}
    for device in devices:
        gpu, partition = device.accelerator, device.partition
        row = _row(rows, gpu)
        if row is None:
            found += _unnamed(rows, device)
            continue
        key, unit_id = gpu.address or str(gpu.index), _id(device, row)
        own = _handles(device, unit_id) | (handles.get(key, frozenset()) if partition else frozenset())
        handles.setdefault(key, own)
        reason = left_out[row].get(gpu.address) or (
            exclusion_problem(device.excluded) if device.excluded else ""
        )
        if reason:
            found.append(finding("info", "resource-left-out", device, f"is not advertised: {reason}"))
            continue
        names = sorted(filter(is_usable_name, device.names), key=partial(_changeability, device))
        made.append(
            NamingCandidate(
                id=unit_id,
                device=device,
                names=row,
                cdi_names=tuple(names),
                handles=own,
                profile=partition.profile if partition else row.profile_of(gpu),
                named_gb=None if partition else row.memory_gb(gpu.model),
                claim_names=_claim_names(row, device),
            )
        )
    return made, found


def _undivided(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]) -> Iterator[KnownDevice]:
    """Yield the single GPU of a WSL or Tegra host, whose inventory has no accelerators."""
    for vendor, inventory in inventories.items():
        groups = [group for group in inventory.groups if group.device_class == GPU and group.devices]
        if not inventory.is_undivided or inventory.accelerators or not groups:
            continue
        gpu = Accelerator(
            index=0, address="", model=inventory.mode, nodes=groups[0].devices[0].nodes, usable=True
        )
        kinds = [f"{registry.cdi_vendor(vendor)}/{profile.device_class}" for profile in profiles]
        names = tuple(f"{kind}={device.name}" for kind in kinds for device in groups[0].devices)
        yield KnownDevice(vendor=vendor, name=names[0], names=names, accelerator=gpu)


def _distinct(
    made: Iterable[NamingCandidate], found: list[Finding]
) -> tuple[tuple[NamingCandidate, ...], tuple[Finding, ...]]:
    """Return the first of MADE for each id, and FOUND together with findings on the other devices."""
    # The first partition of an AMD GPU has the GPU's address as its id, so ``is_split`` is in the key.
    kept: dict[tuple[str, bool], NamingCandidate] = {}
    for candidate in made:
        key = candidate.id, candidate.is_split
        if kept.setdefault(key, candidate) is not candidate:
            other = kept[key].device.name
            text = f"is not advertised: {other} has the same id, {candidate.id}"
            found.append(finding("error", "resource-ambiguous", candidate.device, text))
    return tuple(kept.values()), tuple(found)


def _by_kind(inventory: Inventory) -> tuple[ResourceNames, ...]:
    """Return the CDI kinds as resource names, for the devices of a vendor without RESOURCES."""
    classes = dict.fromkeys(gpu.device_class for gpu in inventory.accelerators)
    part = registry.cdi_vendor(inventory.vendor)
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
    """Yield a finding on DEVICE, which matches none of ROWS; yield nothing if no row has its class."""
    drivers = [row.kernel_driver for row in rows if row.device_class == device.accelerator.device_class]
    if drivers and device.partition is None:
        driver = device.accelerator.kernel_driver
        has = f"its driver is {driver}" if driver else "its driver is not in the inventory"
        text = f"is not advertised: {has}, and resources exist only for the drivers {', '.join(drivers)}"
        yield finding("info", "resource-left-out", device, text)


def _id(device: KnownDevice, names: ResourceNames) -> str:
    """Return the id of DEVICE for the kubelet.

    NVIDIA's plugin uses UUIDs. AMD's plugin uses PCI addresses and amdgpu_xcp_<n>. When cdigen replaces such
    a plugin, the kubelet has these ids for running containers.
    """
    gpu, partition = device.accelerator, device.partition
    # All partitions of an AMD GPU can have the same unique id.
    whole = (
        (gpu.uuid if names.has_uuid_ids else "")
        or gpu.address
        or f"{device.vendor}-{gpu.device_class}{gpu.index}"
    )
    if partition is None:
        return _short(whole)
    if names.has_uuid_ids:
        return _short(partition.uuid or f"{whole}:{partition.instance.replace('/', '-')}")
    return _short(partition.instance or f"{whole}:{partition.label}")


def _claim_names(names: ResourceNames, device: KnownDevice) -> tuple[str, ...]:
    """Return the names in a DRA driver of DEVICE, of its GPU, and of its partitions.

    The first partition of an AMD GPU has the name of the GPU. Other partitions must not have this name.
    """
    gpu, partition = device.accelerator, device.partition
    if not names.claim_driver:
        return ()
    parts = {name for part in gpu.partitions for name in names.claim_names(gpu, part)}
    whole = names.claim_names(gpu, None)
    if partition is None:
        found = {*whole, *parts}
    else:
        found = {*names.claim_names(gpu, partition), *(name for name in whole if name not in parts)}
    return tuple(f"{names.claim_driver}/{name}" for name in sorted(found))


def _short(text: str) -> str:
    """Return TEXT, cut at its start to leave space for a replica's number; long ids often begin equally."""
    return text[-(MAX_ID - _SUFFIX) :].lstrip(":-/.")


def _changeability(device: KnownDevice, name: str) -> tuple[int, int]:
    """Return a sort key for NAME, with the lowest key for the most lasting name.

    Names of the first profile come first. In each profile, names by UUID are followed by names by PCI address
    and by other names.
    """
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
    # In Intel's names, addresses have only hyphens as separators.
    return text.casefold().replace(":", "-").replace(".", "-")


def _handles(device: KnownDevice, unit_id: str) -> frozenset[str]:
    part = device.partition
    words = {unit_id, device.uuid, device.name, *device.names, part.instance if part else ""}
    words |= {part.address} if part else {device.accelerator.address}
    words |= {name.partition("=")[2] for name in (device.name, *device.names)}
    return frozenset(word.casefold() for word in words if word)


def finding(severity: Severity, rule: str, device: KnownDevice, text: str, hint: str = "") -> Finding:
    """Return a finding on DEVICE; the finding's message is the device's name and TEXT."""
    return Finding(severity=severity, rule=rule, path=device.name, message=f"{device.name} {text}", hint=hint)
