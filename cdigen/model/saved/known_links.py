"""The stored links and memory sizes of GPUs, from an earlier query of a vendor's library: ``KnownLinks``.

Links can change if the driver is loaded again, if the GPUs change, or if a GPU is partitioned (MIG disables a
GPU's links). Other changes of links are rare. The memory size of a GPU never changes. A query is slow,
because NVML needs seconds and KFD has a thousand files.
"""

from __future__ import annotations

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, Inventory, Link


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
