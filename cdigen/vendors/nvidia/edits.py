"""Turn NVIDIA's inventory into drafts: a kind of GPUs for each profile, and one for each other device family.

Pure: the same inventory and profiles give the same drafts on any machine.

Names are nvidia-container-toolkit's naming strategies index, uuid and type-index, and PCI addresses as sysfs
spells them. No two namings can give the same name: an index is a number, two numbers with a colon, or one
with a colon and an instance's ids; each of the others begins with its own letters or holds the dot of a PCI
address.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft, Payload, Step
from cdigen.model.names import NONE
from cdigen.value import replace
from cdigen.vendors.kernel.nodes import node_edits
from cdigen.vendors.nvidia.tables import CARRIED_BY_IMAGES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.inventory import (
        Accelerator,
        Driver,
        DriverFile,
        Group,
        Inventory,
        Partition,
    )
    from cdigen.model.profile import Profile

CDI_VENDOR = "nvidia.com"

# The namings of a profile that names none.
NAMINGS = ("index", "uuid")

# "void" keeps NVIDIA's own runtime hook from injecting a second time into an image that asks for
# GPUs by this variable (nvidia-container-toolkit issue 395).
ENV = ("NVIDIA_VISIBLE_DEVICES=void",)

# What a container gets by it is common to all devices of a kind: the driver's files, its hook, its control
# nodes. A device's own edits must not be empty (container-device-interface issue 250).
FILES_ALONE = Device(name=NONE, edits=ContainerEdits(env=ENV))

# Triton asks 'ldconfig -p' for libcuda.so.1 unless this names its folder (triton, nvidia/driver.py).
FOLDER_ENV = ("TRITON_LIBCUDA_PATH",)


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile; a profile whose GPUs are all unusable has no devices."""
    return tuple(_with_files_alone(_draft(inventory, profile)) for profile in profiles)


def _with_files_alone(draft: Draft) -> Draft:
    """Return DRAFT with the device ``none`` as well, which is no reason for a spec by itself."""
    return replace(draft, devices=(*draft.devices, FILES_ALONE)) if draft.devices else draft


def _draft(inventory: Inventory, profile: Profile) -> Draft:
    devices = [
        Device(name=name, edits=edits)
        for accelerator in inventory.accelerators
        if accelerator.usable
        for names, edits in _offers(accelerator, profile)
        for name in names
    ]
    files = tuple(file for file in inventory.files if profile.takes(file))
    return Draft(
        kind=f"{CDI_VENDOR}/{profile.device_class}",
        devices=tuple(devices),
        edits=replace(node_edits(inventory.nodes, profile), env=ENV),
        payload=payload(inventory.driver, files, hook_steps(inventory.driver, files)),
        profile=profile,
    )


def _offers(gpu: Accelerator, profile: Profile) -> Iterable[tuple[tuple[str, ...], ContainerEdits]]:
    """Yield the devices that a GPU is offered as, each as its names and its edits.

    A GPU in MIG mode is its instances; as a whole it can be used for managing it only, so it is
    offered so only where the profile asks. An instance needs its GPU's own node, and its DRM nodes
    only if it has graphics engines.
    """
    namings = profile.names or NAMINGS
    if not gpu.partitioned or profile.whole_gpus:
        yield gpu_names(gpu, namings), node_edits(gpu.nodes, profile)
    own = tuple(node for node in gpu.nodes if node.role == "gpu")
    for mig in gpu.partitions:
        if mig.usable:
            nodes = (*(gpu.nodes if mig.graphics else own), *mig.nodes)
            yield mig_names(gpu, mig, namings), node_edits(nodes, profile)


def payload(driver: Driver, files: tuple[DriverFile, ...], steps: tuple[Step, ...] = ()) -> Payload:
    """Return FILES as what containers get, with the STEPS of a hook that they need besides being found."""
    return Payload(
        vendor="nvidia",
        version=driver.version,
        architecture=driver.architecture,
        files=files,
        steps=steps,
        carried=CARRIED_BY_IMAGES,
        folder_env=FOLDER_ENV if _holds(files, "libcuda.so.1") else (),
    )


def hook_steps(driver: Driver, files: tuple[DriverFile, ...]) -> tuple[Step, ...]:
    """Return what a driver with FILES needs done at start-up; a profile chooses among it.

    Source: what nvidia-container-toolkit 1.20 has done for it (internal/discover).
    """
    wanted = [Step(name="disable-device-node-modification")]
    if _holds(files, "libcuda.so.1"):
        wanted.append(Step(name="enable-cuda-compat", arguments=(driver.version,)))
    if _holds(files, "libEGL_nvidia.so.0"):
        wanted.append(Step(name="update-application-profile"))
    return tuple(wanted)


def _holds(files: tuple[DriverFile, ...], soname: str) -> bool:
    return any(soname in file.names for file in files)


def group_drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per group that has a device with nodes; a device without any would be invalid.

    Its files get into containers as the profile of its class has it, or else as the first of PROFILES.
    """
    by_class = {profile.device_class: profile for profile in profiles}
    drafts = (
        _group_draft(group, inventory.driver, by_class.get(group.device_class, profiles[0]))
        for group in inventory.groups
    )
    return tuple(draft for draft in drafts if draft.devices)


def platform_drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return the drafts of a host that names its GPUs in one way only (WSL2, Tegra): one per profile."""
    return tuple(map(_with_files_alone, group_drafts(_with_profiles(inventory, profiles), profiles)))


def _group_draft(group: Group, driver: Driver, profile: Profile) -> Draft:
    is_whole_kind = "/" in group.device_class
    return Draft(
        kind=group.device_class if is_whole_kind else f"{CDI_VENDOR}/{group.device_class}",
        devices=tuple(
            Device(name=device.name, edits=node_edits(device.nodes))
            for device in group.devices
            if device.nodes
        ),
        edits=ContainerEdits(env=ENV),
        payload=payload(driver, group.files, _group_steps(group, driver)),
        profile=profile,
        yields=is_whole_kind,
    )


def _group_steps(group: Group, driver: Driver) -> tuple[Step, ...]:
    """Return what the files of GROUP need done: those of all other families are no libraries.

    Who administers GPUs sees them as they are (nvidia-container-toolkit 1.20, management.go), so of the steps
    only forward compatibility is left.
    """
    return tuple(step for step in hook_steps(driver, group.files) if step.name == "enable-cuda-compat")


def _with_profiles(inventory: Inventory, profiles: tuple[Profile, ...]) -> Inventory:
    """Return INVENTORY with its groups once for each profile."""
    groups = (
        replace(
            group,
            device_class=profile.device_class,
            files=tuple(file for file in group.files if profile.takes(file)),
        )
        for group in inventory.groups
        for profile in profiles
    )
    return replace(inventory, groups=tuple(groups))


def gpu_names(gpu: Accelerator, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a whole GPU; what it does not have (a UUID) gives none."""
    names = {
        "index": str(gpu.index),
        "uuid": gpu.uuid,
        "type-index": f"gpu{gpu.index}",
        "pci": gpu.address,
        "minor": None if gpu.minor is None else f"minor{gpu.minor}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))


def mig_names(gpu: Accelerator, mig: Partition, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a MIG instance; namings of whole GPUs give none.

    An instance whose number is not known is named by its ids (``0:gi9-ci0``): a number that is counted here
    could be another instance's as soon as NVML answers.
    """
    names = {
        "index": f"{gpu.index}:{mig.label}",
        "uuid": mig.uuid,
        "type-index": f"mig{gpu.index}:{mig.label}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))
