"""The stored names of a GPU's partitions, for times when the vendor's library does not respond.

NVIDIA's kernel module reports the MIG instances. Only NVML reports their numbers and UUIDs. The names from
NVML stay valid while the instances are the same. "The sources" are the kernel module and NVML.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory


# The rule of the finding that the sources contradict each other. The path of the finding is the GPU.
CONTRADICTION = "mig-contradiction"


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
