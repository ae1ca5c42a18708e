"""Keep how GPUs are linked, and how much memory they have, as a vendor told once: ``KnownLinks``.

Links change with the driver's loading, with the GPUs and with whether these are partitioned (MIG takes a
GPU's links down), hardly otherwise, and memory not even so. To ask takes long: NVML needs seconds, and KFD
has a thousand files.
"""

from __future__ import annotations

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, Inventory, Link


@frozen
class GpuLinks:
    """The links of the GPU at ``address``, its island and memory, as an ``Accelerator`` has them."""

    address: str
    links: tuple[Link, ...]
    island: str
    memory_mib: int | None = None


@frozen
class KnownLinks:
    """What a vendor told, or nothing where that failed.

    It is true of these GPUs (``about``) under the same ``load`` of the driver. ``asked_s``: when it was
    asked, in seconds since the boot; ``again_s``: after how many more it is asked again, 0 for never.
    """

    vendor: str
    load: str
    about: tuple[str, ...]
    asked_s: int
    again_s: int
    gpus: tuple[GpuLinks, ...]


def gpus_of(inventory: Inventory) -> tuple[str, ...]:
    """Return what tells the GPUs of INVENTORY that may be linked from any others."""
    return tuple(
        sorted(
            f"{gpu.address} {gpu.uuid}{' partitioned' * gpu.partitioned}"
            for gpu in inventory.accelerators
            if gpu.usable
        )
    )


def known_of(inventory: Inventory, load: str, known: Iterable[KnownLinks]) -> KnownLinks | None:
    """Return what is KNOWN of the GPUs of INVENTORY under this LOAD of the driver.

    It is still true where some GPUs are gone: one that falls off the bus costs no other its links.
    """
    now, gpus = (inventory.vendor, load), set(gpus_of(inventory))
    return next((each for each in known if (each.vendor, each.load) == now and gpus <= set(each.about)), None)


def told_now(gpus: tuple[GpuLinks, ...], before: KnownLinks | None) -> tuple[GpuLinks, ...]:
    """Return what was told of GPUS; a library that does not answer now does not undo what it told BEFORE."""
    earlier = () if before is None else before.gpus
    sizes = {each.address: each.memory_mib for each in earlier}
    return tuple(
        replace(each, memory_mib=sizes.get(each.address)) if each.memory_mib is None else each
        for each in gpus or earlier
    )


def with_links(inventory: Inventory, known: KnownLinks) -> Inventory:
    """Return INVENTORY with the links that are KNOWN of its GPUs, and with memory that it has not itself."""
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
    # One that is lost is as large as before; its links are down.
    return replace(gpu, links=known.links, island=known.island) if gpu.usable else gpu
