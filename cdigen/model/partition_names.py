"""Keep the names that a vendor's library gave to a GPU's partitions, for when it does not answer.

NVIDIA's kernel module tells which MIG instances there are, only NVML their numbers and UUIDs. As long as the
instances are the same, names that NVML gave once are still valid.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.model.inventory import Accelerator, Inventory


# The rule of a finding that sources disagree on the partitions of a GPU, which is its path.
CONTRADICTION = "mig-contradiction"


@frozen
class PartitionName:
    """One partition by the driver's own name of it (``instance``), with the fields of ``Partition``."""

    instance: str
    index: int | None
    uuid: str | None
    profile: str
    graphics: bool


@frozen
class GpuPartitionNames:
    """All partitions of one GPU; it is the same GPU as long as every field but ``partitions`` is."""

    vendor: str
    driver: str
    address: str
    minor: int
    uuid: str | None
    partitions: tuple[PartitionName, ...]


def remembered(
    before: tuple[GpuPartitionNames, ...],
    inventories: Mapping[str, Inventory],
    absent: Iterable[str],
) -> tuple[GpuPartitionNames, ...]:
    """Return which names to remember: those in INVENTORIES, and of GPUs not read now those BEFORE.

    A GPU that was read without names has lost them: its instances have changed. A GPU on whose partitions the
    sources disagree counts as not read. The vendors ABSENT no longer have a driver, so their instances are
    gone.
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
    """Return the addresses of the GPUs on whose partitions the sources disagree."""
    paths = {finding.path for finding in inventory.findings if finding.rule == CONTRADICTION}
    return frozenset(gpu.address for gpu in inventory.accelerators if f"GPU {gpu.index}" in paths)


def _names(inventory: Inventory, gpu: Accelerator) -> GpuPartitionNames | None:
    # Where partitions have ordinals, the kernel's own order numbers them: there is nothing to remember.
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
