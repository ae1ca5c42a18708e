"""The resources of a host, with the specs that cdigen writes for its inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.values.unhealthy_gpus import example, split

from cdigen.config import KubeletConfig
from cdigen.kubelet.resources.resource_set import ResourceSet, advertise
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.naming import named_drafts
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.kubelet.resources.model import Resource
    from cdigen.model.inventory import Accelerator, Inventory, Partition
    from cdigen.model.profile import Profile


def names_of(inventories: Mapping[str, Inventory], profiles: tuple[Profile, ...] = (DEFAULT,)) -> set[str]:
    """Return the qualified names in the specs of INVENTORIES."""
    return {
        f"{draft.kind}={device.name}"
        for vendor, inventory in inventories.items()
        for draft in named_drafts(vendor, inventory, profiles)[0]
        for device in draft.devices
    }


def offered(
    inventories: Mapping[str, Inventory], *, profiles: tuple[Profile, ...] = (DEFAULT,), **settings: Any
) -> ResourceSet:
    """Return the resources of INVENTORIES with these SETTINGS."""
    names = names_of(inventories, profiles)
    return advertise(inventories, profiles, names.__contains__, KubeletConfig(**settings))


def counts(found: ResourceSet) -> dict[str, int]:
    """Return the number of units of each resource."""
    return {resource.name: len(resource.units) for resource in found.resources}


def resource_of(found: ResourceSet, name: str) -> Resource:
    return next(each for each in found.resources if each.name == name)


def with_gpus(*gpus: Accelerator) -> dict[str, Inventory]:
    """Return the host with eight H100, whose first accelerators are replaced by GPUS."""
    host = example()
    every = (*gpus, *host["nvidia"].accelerators[len(gpus) :])
    return {"nvidia": replace(host["nvidia"], accelerators=every)}


def h100(index: int) -> Accelerator:
    return example()["nvidia"].accelerators[index]


def sized(index: int, mib: int | None) -> Accelerator:
    """Return the H100 INDEX; MIB is its memory in MiB (None: unknown)."""
    return replace(h100(index), memory_mib=mib)


def with_memory(host: Mapping[str, Inventory], mib: int) -> dict[str, Inventory]:
    """Return HOST; MIB is the memory of each NVIDIA GPU in MiB."""
    gpus = tuple(replace(gpu, memory_mib=mib) for gpu in host["nvidia"].accelerators)
    return {"nvidia": replace(host["nvidia"], accelerators=gpus)}


def in_mig(gpu: Accelerator, *profiles: str) -> Accelerator:
    """Return GPU in MIG mode, with one instance for each of PROFILES."""

    part: Partition = split(gpu).partitions[0]
    number = gpu.index * 16
    parts = tuple(
        replace(
            part,
            index=place,
            uuid=f"MIG-d2e3f4a5-b6c7-4d8e-9f0a-{number + place:012x}",
            instance=f"gi{place + 1}/ci0",
            profile=profile,
        )
        for place, profile in enumerate(profiles)
    )
    return replace(gpu, partitioned=True, partitions=parts)
