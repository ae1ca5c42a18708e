"""The values of discovery that cdigen saves between two starts: ``KnownLinks`` and ``GpuPartitionNames``.

``KnownLinks`` are the links and memory sizes of GPUs, from an earlier query of a vendor's library. Links can
change if the driver is loaded again, if the GPUs change, or if a GPU is partitioned (MIG disables a GPU's
links). Other changes of links are rare. The memory size of a GPU never changes. A query is slow, because NVML
needs seconds and KFD has a thousand files.

``GpuPartitionNames`` are the names of a GPU's partitions, for times when the vendor's library does not
respond. NVIDIA's kernel module reports the MIG instances. Only NVML reports their numbers and UUIDs. The
names from NVML stay valid while the instances are the same. "The sources" are the kernel module and NVML.
"""

from __future__ import annotations

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory, Link

# The rule of the finding that the sources contradict each other. The path of the finding is the GPU.
CONTRADICTION = "mig-contradiction"


@frozen
class GpuLinks:
    """The links, the island and the memory of the GPU at ``address``, as in ``Accelerator``."""

    address: str
    links: tuple[Link, ...]
    island: str
    memory_mib: int | None = None


@frozen
class KnownLinks:
    """The result of a query of a vendor's library; ``gpus`` is empty if the query failed.

    ``about`` identifies the GPUs (``gpu_identities``). ``load`` identifies one load of the driver. The result
    is valid for these GPUs until the driver is loaded again. ``queried_s`` is the time of the query, in
    seconds since the boot. ``requery_after_s`` is the time until the next query in seconds; 0 means no
    further query.
    """

    vendor: str
    load: str
    about: tuple[str, ...]
    queried_s: int
    requery_after_s: int
    gpus: tuple[GpuLinks, ...]


def gpu_identities(inventory: Inventory) -> tuple[str, ...]:
    """Return sorted texts that identify the usable GPUs of INVENTORY, and whether each is partitioned."""
    return tuple(
        sorted(
            f"{gpu.address} {gpu.uuid}{' partitioned' * gpu.partitioned}"
            for gpu in inventory.accelerators
            if gpu.usable
        )
    )


def find_known(inventory: Inventory, load: str, known: Iterable[KnownLinks]) -> KnownLinks | None:
    """Return the entry of KNOWN for the GPUs of INVENTORY and the driver load LOAD, or None.

    The entry stays valid if some GPUs are gone. A GPU that falls off the bus does not change the links of the
    remaining GPUs.
    """
    now, gpus = (inventory.vendor, load), set(gpu_identities(inventory))
    return next((each for each in known if (each.vendor, each.load) == now and gpus <= set(each.about)), None)


def merge_answers(gpus: tuple[GpuLinks, ...], before: KnownLinks | None) -> tuple[GpuLinks, ...]:
    """Return GPUS, or the GPUs of BEFORE if GPUS is empty; BEFORE also supplies missing memory sizes."""
    earlier = () if before is None else before.gpus
    sizes = {each.address: each.memory_mib for each in earlier}
    return tuple(
        replace(each, memory_mib=sizes.get(each.address)) if each.memory_mib is None else each
        for each in gpus or earlier
    )


def with_links(inventory: Inventory, known: KnownLinks) -> Inventory:
    """Return INVENTORY with the links in KNOWN, and with the memory sizes in KNOWN that INVENTORY lacks."""
    own = {gpu.address: gpu for gpu in known.gpus}
    return replace(
        inventory,
        accelerators=tuple(
            _with_links(gpu, own[gpu.address]) if gpu.address in own else gpu
            for gpu in inventory.accelerators
        ),
    )


def _with_links(gpu: Accelerator, known: GpuLinks) -> Accelerator:
    gpu = replace(gpu, memory_mib=known.memory_mib if gpu.memory_mib is None else gpu.memory_mib)
    # An unusable GPU keeps its memory size, but its links are down.
    return replace(gpu, links=known.links, island=known.island) if gpu.usable else gpu


@frozen
class PartitionName:
    """The names of one partition, with fields of ``Partition``; ``instance`` identifies the partition."""

    instance: str
    index: int | None
    uuid: str | None
    profile: str
    graphics: bool


@frozen
class GpuPartitionNames:
    """The names of all partitions of one GPU; all fields except ``partitions`` identify the GPU."""

    vendor: str
    driver: str
    address: str
    minor: int
    uuid: str | None
    partitions: tuple[PartitionName, ...]


def names_to_store(
    before: tuple[GpuPartitionNames, ...],
    inventories: Mapping[str, Inventory],
    absent: Iterable[str],
) -> tuple[GpuPartitionNames, ...]:
    """Return the names to store, from INVENTORIES and from BEFORE, the names that are stored now.

    If this discovery did not read a GPU, the GPU keeps its names from BEFORE. A GPU that was read without
    names loses its stored names, because its instances have changed. A GPU is treated as not read if the
    sources report different partitions. The vendors in ABSENT have no driver, and thus the instances of their
    GPUs are gone.
    """
    names: list[GpuPartitionNames] = []
    for vendor, inventory in inventories.items():
        own = {known.address: known for known in before if known.vendor == vendor}
        unclear = disputed(inventory)
        for gpu in inventory.accelerators:
            is_read = gpu.usable and gpu.address not in unclear
            now = _names(inventory, gpu) if is_read else own.get(gpu.address)
            if now is not None:
                names.append(now)
    gone = {*inventories, *absent}
    return (*names, *(known for known in before if known.vendor not in gone))


def disputed(inventory: Inventory) -> frozenset[str]:
    """Return the addresses of the GPUs for which the sources report different partitions."""
    paths = {finding.path for finding in inventory.findings if finding.rule == CONTRADICTION}
    return frozenset(gpu.address for gpu in inventory.accelerators if f"GPU {gpu.index}" in paths)


def _names(inventory: Inventory, gpu: Accelerator) -> GpuPartitionNames | None:
    # Partitions with ordinals get their numbers from the kernel's order, so their names need no storage.
    named = [part for part in gpu.partitions if part.index is not None and part.ordinal is None]
    if gpu.minor is None or not named:
        return None
    return GpuPartitionNames(
        vendor=inventory.vendor,
        driver=inventory.driver.version,
        address=gpu.address,
        minor=gpu.minor,
        uuid=gpu.uuid,
        partitions=tuple(
            PartitionName(
                instance=part.instance,
                index=part.index,
                uuid=part.uuid,
                profile=part.profile,
                graphics=part.graphics,
            )
            for part in gpu.partitions
        ),
    )
