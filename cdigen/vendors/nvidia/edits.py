"""Turn an NVIDIA inventory into drafts: which device gets which nodes, what all devices share.

Pure: the same inventory and profiles give the same drafts on any machine.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, DeviceNode, Draft, Mount
from cdigen.vendors.nvidia.tables import CONTAINER_LIBRARY_FOLDERS, MULTIARCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import Accelerator, DriverFile, HostNode, Inventory
    from cdigen.model.profile import Profile

CDI_VENDOR = "nvidia.com"

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
# A socket needs nothing but connect(2), which a read-only mount allows.
SOCKET = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")

# "void" keeps NVIDIA's own runtime hook from injecting a second time into an image that asks for
# GPUs by this variable (nvidia-container-toolkit issue 395).
ENV = ("NVIDIA_VISIBLE_DEVICES=void",)


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile; a profile whose GPUs are all unusable has no devices."""
    return tuple(_draft(inventory, profile) for profile in profiles)


def _draft(inventory: Inventory, profile: Profile) -> Draft:
    devices: list[Device] = []
    for accelerator in inventory.accelerators:
        if accelerator.usable:
            edits = ContainerEdits(device_nodes=_nodes(accelerator.nodes, profile))
            devices.extend(Device(name=name, edits=edits) for name in _names(accelerator))
    shared = ContainerEdits(
        env=ENV,
        device_nodes=_nodes(inventory.nodes, profile),
        mounts=tuple(_mounts(inventory, profile)),
    )
    kind = f"{CDI_VENDOR}/{profile.device_class}"
    return Draft(kind=kind, devices=tuple(devices), edits=shared)


def _names(accelerator: Accelerator) -> tuple[str, ...]:
    return (str(accelerator.index), *([accelerator.uuid] if accelerator.uuid else []))


def _nodes(nodes: Iterable[HostNode], profile: Profile) -> tuple[DeviceNode, ...]:
    return tuple(
        DeviceNode(
            path=node.path,
            host_path=node.host_path if node.host_path != node.path else None,
            file_mode=node.mode,
        )
        for node in nodes
        if profile.wants(node.capabilities)
    )


def _mounts(inventory: Inventory, profile: Profile) -> Iterable[Mount]:
    """Yield a mount for every place where a container looks for a file.

    Libraries go into every folder that a loader may search by itself: the container's image is not
    known here, and a mount into a folder that its loader does not search is merely unused.
    """
    taken: set[str] = set()
    for file in inventory.files:
        if not profile.wants(file.capabilities):
            continue
        options = SOCKET if file.kind == "socket" else READ_ONLY
        for target in _targets(file, inventory.driver.architecture):
            if target not in taken:
                taken.add(target)
                yield Mount(host_path=file.host_path, container_path=target, options=options)


def _targets(file: DriverFile, architecture: str) -> Iterable[str]:
    multiarch = MULTIARCH.get(architecture, architecture)
    for folder in CONTAINER_LIBRARY_FOLDERS:
        for name in file.names:
            yield f"{folder.format(multiarch=multiarch)}/{name}"
    yield from file.targets
