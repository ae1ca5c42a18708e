"""Turn AMD's inventory into drafts: which device gets which nodes, under which names.

Pure: the same inventory and profiles give the same drafts on any machine.

Names: the number that AMD's tools have; the unique_id in the form of ``amd-ctk gpu list``
(``0xEA35F57CC80DEB35``); the PCI address. A GPU that is split has one address, and up to ROCm 6 one unique_id
for all partitions: these then name all of them together, as AMD_VISIBLE_DEVICES has it; one that only some
share names those. No two namings can give one name: a number, one that begins with ``0x``, and those that
hold a colon or begin with a letter.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft, Payload
from cdigen.value import replace
from cdigen.vendors.classes import GPU, by_class
from cdigen.vendors.kernel.nodes import node_edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.inventory import (
        Accelerator,
        Driver,
        DriverFile,
        HostNode,
        Inventory,
        Partition,
    )
    from cdigen.model.profile import Profile

CDI_VENDOR = "amd.com"
# Those of a profile that names none.
NAMINGS = ("index", "uuid", "pci")


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile, of the GPUs, and one of the NPUs where there are any.

    A profile that wants nothing of what the GPUs do has no devices.
    """
    return tuple(
        _draft(inventory, accelerators, profile, device_class)
        for device_class, profile, accelerators in by_class(inventory.accelerators, profiles)
    )


def _draft(
    inventory: Inventory, accelerators: tuple[Accelerator, ...], profile: Profile, device_class: str
) -> Draft:
    devices = []
    for accelerator in accelerators:
        offers = _offers(accelerator, profile.names or NAMINGS) if accelerator.usable else ()
        for names, nodes in offers:
            edits = node_edits(nodes, profile)
            # A device without any edit would make the whole document invalid.
            if edits.device_nodes:
                devices += [Device(name=name, edits=edits) for name in names]
    files = inventory.files if any(each.device_class == GPU for each in accelerators) else ()
    return Draft(
        kind=f"{CDI_VENDOR}/{device_class}",
        devices=tuple(devices),
        edits=ContainerEdits(),
        payload=_payload(inventory.driver, files, profile),
        profile=_delivered(profile) if files else profile,
    )


def _delivered(profile: Profile) -> Profile:
    """Return PROFILE with how the host's ROCm libraries reach containers where it does not say.

    As single files in the default folders: what an image's own cache names comes before those, and an image
    that has ROCm must not get half of the host's. A hook would put the host's first.
    """
    if profile.layout not in {"auto", "files"}:
        return profile
    return replace(profile, layout="files", hook="none" if profile.hook == "auto" else profile.hook)


def _payload(driver: Driver, every: tuple[DriverFile, ...], profile: Profile) -> Payload | None:
    files = tuple(file for file in every if profile.takes(file))
    if not files:
        return None
    return Payload(vendor="amd", version=driver.version, architecture=driver.architecture, files=files)


def _offers(
    gpu: Accelerator, namings: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Iterable[HostNode]]]:
    """Yield the devices that a GPU or an NPU is offered as, each as its names and its nodes."""
    whole = {"uuid": gpu.uuid, "pci": gpu.address}
    if not gpu.partitioned:
        yield _chosen({**whole, "index": str(gpu.index), "card": _card(gpu.nodes)}, namings), gpu.nodes
        return
    usable = [partition for partition in gpu.partitions if partition.usable]
    by_uuid: dict[str, list[Partition]] = {}
    for partition in usable:
        number = partition.label if partition.ordinal is None else str(partition.ordinal)
        own = {"index": number, "card": _card(partition.nodes)}
        yield _chosen(own, namings), partition.nodes
        if partition.uuid is not None:
            by_uuid.setdefault(partition.uuid, []).append(partition)
    for uuid, partitions in by_uuid.items():
        yield _chosen({"uuid": uuid}, namings), _together(partitions)
    yield _chosen(whole, namings), _together(usable)


def _chosen(names: Mapping[str, str | None], namings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for naming in namings if (name := names.get(naming)))


def _together(partitions: list[Partition]) -> Iterable[HostNode]:
    return dict.fromkeys(node for partition in partitions for node in partition.nodes)


def _card(nodes: tuple[HostNode, ...]) -> str:
    return next((node.path.rpartition("/")[2] for node in nodes if node.role in {"card", "accel"}), "")
