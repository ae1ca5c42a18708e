"""Create the drafts of specs from AMD's inventory.

The result depends only on the inventory and the profiles. By default, a device has three names: the number in
AMD's tools, the unique_id in the format of ``amd-ctk gpu list`` (``0xEA35F57CC80DEB35``), and the PCI
address.

All partitions of a GPU have the same PCI address, and up to ROCm 6 the same unique_id. A container that
requests such a name gets all partitions with this name, as with AMD_VISIBLE_DEVICES. Names of different
namings are never equal. An index is a number, a unique_id begins with ``0x``, a PCI address contains a colon,
and other names begin with a letter.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft, Payload
from cdigen.value import replace
from cdigen.vendors.amd.vendor import VENDOR
from cdigen.vendors.classes import GPU, by_class
from cdigen.vendors.kernel.nodes import node_edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cdigen.model.inventory import Accelerator, Driver, DriverFile, HostNode, Inventory, Partition
    from cdigen.model.profile import Profile


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return a draft with the GPUs for each profile, and a draft with the NPUs if the host has NPUs.

    If a profile selects no capability of the GPUs, its draft has no devices.
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
        offers = _offers(accelerator, profile.names or VENDOR.NAMINGS) if accelerator.usable else ()
        for names, nodes in offers:
            edits = node_edits(nodes, profile)
            # A device without edits is left out, because the whole spec would be invalid.
            if edits.device_nodes:
                devices += [Device(name=name, edits=edits) for name in names]
    files = inventory.files if any(each.device_class == GPU for each in accelerators) else ()
    return Draft(
        kind=f"{VENDOR.CDI_VENDOR}/{device_class}",
        devices=tuple(devices),
        edits=ContainerEdits(),
        payload=_payload(inventory.driver, files, profile),
        profile=_delivered(profile) if files else profile,
    )


def _delivered(profile: Profile) -> Profile:
    """Return PROFILE with AMD's defaults for the host's ROCm libraries.

    By default, containers get single files in the default library folders, without a hook. The libraries in
    the image's ld.so.cache then take precedence, so that an image with ROCm uses only its own ROCm. With a
    hook, the host's libraries would take precedence.
    """
    if profile.layout not in {"auto", "files"}:
        return profile
    return replace(profile, layout="files", hook="none" if profile.hook == "auto" else profile.hook)


def _payload(driver: Driver, every: tuple[DriverFile, ...], profile: Profile) -> Payload | None:
    files = tuple(file for file in every if profile.includes(file))
    if not files:
        return None
    return Payload(vendor="amd", version=driver.version, architecture=driver.architecture, files=files)


def _offers(
    gpu: Accelerator, namings: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Iterable[HostNode]]]:
    """Yield the names and the nodes of each CDI device of GPU. GPU can also be an NPU."""
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
