"""What the devices of inventories are called: ``known_devices``, and ``by_name`` for who has a name.

Pure. A vendor's own ``edits`` name its devices: they are asked for one device at a time.
"""

from __future__ import annotations

from collections import Counter

from cdigen.model.names import NONE
from cdigen.model.profile import NAMINGS
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.health import Cause, Health
    from cdigen.model.inventory import Accelerator, Inventory, Partition
    from cdigen.model.profile import Profile

_ALL = "all"


@frozen
class KnownDevice:
    """A device of the vendor ``vendor``, or where ``partition`` is given, that part of it.

    ``name`` is the CDI name that people use, or what would be its name where no spec offers it (a GPU that is
    left out, or split). ``names`` are all that mean it, alone or beside others: specs have some of them.
    """

    vendor: str
    name: str
    names: tuple[str, ...]
    accelerator: Accelerator
    partition: Partition | None = None

    @property
    def health(self) -> Health:
        """Its health; that of a partition is its own and its GPU's."""
        return (self.partition or self.accelerator).health

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Why it is unhealthy."""
        return (self.partition or self.accelerator).causes

    @property
    def own_causes(self) -> tuple[Cause, ...]:
        """Its causes; of a partition those that its GPU has not as well."""
        if self.partition is None:
            return self.causes
        return tuple(cause for cause in self.causes if cause not in self.accelerator.causes)

    @property
    def uuid(self) -> str | None:
        """Its UUID, as far as it is known."""
        return (self.partition or self.accelerator).uuid

    @property
    def instance(self) -> str:
        """The driver's name of the partition, empty for a whole device."""
        return self.partition.instance if self.partition else ""

    @property
    def usable(self) -> bool:
        """Whether a spec offers it as far as discovery knows."""
        return self.accelerator.usable and (self.partition is None or self.partition.usable)


def known_devices(
    inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...]
) -> tuple[KnownDevice, ...]:
    """Return the devices of INVENTORIES, each followed by its partitions, named as PROFILES say."""
    return tuple(
        device
        for vendor, inventory in inventories.items()
        for gpu in inventory.accelerators
        for device in _of_gpu(vendor, inventory, gpu, profiles)
    )


def by_name(devices: Iterable[KnownDevice]) -> dict[str, tuple[KnownDevice, ...]]:
    """Return which of DEVICES each CDI name gives; ``all`` of a kind gives every usable device of it."""
    found: dict[str, list[KnownDevice]] = {}
    for device in devices:
        # A GPU that is split counts as its partitions, which have its causes as well.
        is_counted = device.usable and (device.partition is not None or not device.accelerator.partitioned)
        alls = [f"{name.partition('=')[0]}={_ALL}" for name in device.names] if is_counted else []
        # Comparing devices takes longer than all the rest.
        for name in dict.fromkeys((*device.names, *alls)):
            found.setdefault(name, []).append(device)
    return {name: tuple(those) for name, those in found.items()}


def health_of(devices: Iterable[KnownDevice]) -> Health:
    """Return the health of DEVICES together: unhealthy where one is, healthy where all are."""
    found = {device.health for device in devices}
    if "unhealthy" in found:
        return "unhealthy"
    return "healthy" if found == {"healthy"} else "unknown"


def _of_gpu(
    vendor: str, inventory: Inventory, gpu: Accelerator, profiles: tuple[Profile, ...]
) -> Iterator[KnownDevice]:
    """Yield GPU and its partitions."""

    def names_of(*partitions: Partition) -> tuple[str, ...]:
        usable = tuple(replace(part, usable=True) for part in partitions)
        return _names(vendor, inventory, replace(gpu, usable=True, partitions=usable), profiles)

    # A profile may offer a GPU that is split as a whole, too.
    whole = names_of()
    of_parts = [
        (part, tuple(name for name in names_of(part) if name not in whole)) for part in gpu.partitions
    ]
    owners = Counter(name for _, names in of_parts for name in names)
    # Names that every partition gives are those of the GPU that they are parts of.
    shared = tuple(name for name, count in owners.items() if 1 < count == len(of_parts))
    names = (*whole, *shared)
    is_numbered_apart = any(part.ordinal is not None for part in gpu.partitions)
    usual = (
        f"{registry.cdi_vendor(vendor)}/{gpu.device_class}={gpu.address if is_numbered_apart else gpu.index}"
    )
    yield KnownDevice(vendor=vendor, name=(*names, usual)[0], names=names, accelerator=gpu)
    for part, given in of_parts:
        own = [name for name in given if owners[name] == 1]
        name = (*own, *given, f"{usual}:{part.label}")[0]
        yield KnownDevice(vendor=vendor, name=name, names=given, accelerator=gpu, partition=part)


def _names(
    vendor: str, inventory: Inventory, gpu: Accelerator, profiles: tuple[Profile, ...]
) -> tuple[str, ...]:
    """Return the names of GPU, the usual one first; none where the code of the vendor fails."""
    alone = replace(inventory, accelerators=(gpu,), nodes=(), files=(), sought=(), findings=(), groups=())
    code = registry.load(vendor)
    every = tuple(
        replace(
            profile, names=tuple(dict.fromkeys((*(profile.names or code.NAMINGS), *code.NAMINGS, *NAMINGS)))
        )
        for profile in profiles
    )
    try:
        drafts = code.edits(alone, every)
    except Exception:  # noqa: BLE001 - a defect of the vendor's code, which generating specs reports
        return ()
    return tuple(
        f"{draft.kind}={device.name}"
        for draft in drafts
        for device in draft.devices
        if device.name not in {NONE, _ALL}
    )
