"""Create the drafts of specs from NVIDIA's inventory.

The result has one CDI kind of GPUs per profile, and one CDI kind per family of other devices (``families``).
The result depends only on the inventory and the profiles.

The namings index, uuid and type-index are naming strategies of nvidia-container-toolkit. The naming pci has
the PCI address in the format of sysfs. Names of different namings are never equal. In the naming index, the
name of a GPU is a number (``0``). The name of a MIG instance has this number, a colon and the instance's
number (``0:1``) or ids (``0:gi9-ci0``). A PCI address contains a dot. Names of all other namings begin with
letters, which are different in each naming.
"""

from __future__ import annotations

from cdigen.model.cdi import ContainerEdits, Device, Draft, HookStep, Payload
from cdigen.model.findings import errors
from cdigen.model.names import NONE
from cdigen.value import replace
from cdigen.vendors.kernel.nodes import node_edits
from cdigen.vendors.nvidia.files.tables import CARRIED_BY_IMAGES, CONTROL_NODES, MISSING_CONTROL_NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, Driver, DriverFile, Group, Inventory, Partition
    from cdigen.model.profile import Profile

CDI_VENDOR = "nvidia.com"

# The namings for profiles that set no naming.
NAMINGS = ("index", "uuid")

# If an image requests GPUs by this variable, NVIDIA's own runtime hook would inject the GPUs a second time.
# The value "void" prevents the second injection (nvidia-container-toolkit issue 395).
ENV = ("NVIDIA_VISIBLE_DEVICES=void",)

# With this device, a container gets only the common edits of the kind: the driver's files, the hook and the
# control nodes. The edits of a device must not be empty (container-device-interface issue 250).
FILES_ALONE = Device(name=NONE, edits=ContainerEdits(env=ENV))

# If this variable contains the folder of libcuda.so.1, Triton does not run 'ldconfig -p' to find the library
# (triton, nvidia/driver.py).
FOLDER_ENV = ("TRITON_LIBCUDA_PATH",)


def drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per profile. If no GPU is usable, the drafts have no devices."""
    return tuple(_with_files_alone(_draft(inventory, profile)) for profile in profiles)


def _with_files_alone(draft: Draft) -> Draft:
    """Return DRAFT with the additional device ``none``. A draft without devices does not change."""
    return replace(draft, devices=(*draft.devices, FILES_ALONE)) if draft.devices else draft


def _draft(inventory: Inventory, profile: Profile) -> Draft:
    devices = [
        Device(name=name, edits=edits)
        for accelerator in inventory.accelerators
        if accelerator.usable
        for names, edits in _offers(accelerator, profile)
        for name in names
    ]
    files = tuple(file for file in inventory.files if profile.includes(file))
    return Draft(
        kind=f"{CDI_VENDOR}/{profile.device_class}",
        devices=tuple(devices),
        edits=replace(node_edits(inventory.nodes, profile), env=ENV),
        payload=payload(inventory.driver, files, hook_steps(inventory.driver, files)),
        profile=profile,
        withheld=_missing_node(inventory, profile),
    )


def _missing_node(inventory: Inventory, profile: Profile) -> Finding | None:
    """Return the finding about a missing node that PROFILE requires, or None."""
    return next(
        (
            finding
            for finding in errors(inventory.findings)
            if finding.rule == MISSING_CONTROL_NODE
            for path, _, capabilities, weight in CONTROL_NODES
            if weight == "required"
            and finding.path.endswith(path)
            and profile.includes_capabilities(capabilities)
        ),
        None,
    )


def _offers(gpu: Accelerator, profile: Profile) -> Iterable[tuple[tuple[str, ...], ContainerEdits]]:
    """Yield the names and the edits of each CDI device of GPU.

    A GPU in MIG mode has a device for each usable MIG instance. The whole GPU is then useful only for
    administration. Therefore, it has a device only if the option ``whole_gpus`` of PROFILE is set. A MIG
    instance needs its GPU's node /dev/nvidiaN. Only an instance with graphics engines needs the DRM nodes.
    """
    namings = profile.names or NAMINGS
    if not gpu.partitioned or profile.whole_gpus:
        yield gpu_names(gpu, namings), node_edits(gpu.nodes, profile)
    own = tuple(node for node in gpu.nodes if node.role == "gpu")
    for mig in gpu.partitions:
        if mig.usable:
            nodes = (*(gpu.nodes if mig.graphics else own), *mig.nodes)
            yield mig_names(gpu, mig, namings), node_edits(nodes, profile)


def payload(driver: Driver, files: tuple[DriverFile, ...], steps: tuple[HookStep, ...] = ()) -> Payload:
    """Return the payload with FILES, and with the additional STEPS of the hook for these files."""
    return Payload(
        vendor="nvidia",
        version=driver.version,
        architecture=driver.architecture,
        files=files,
        steps=steps,
        carried=CARRIED_BY_IMAGES,
        folder_env=FOLDER_ENV if _holds(files, "libcuda.so.1") else (),
    )


def hook_steps(driver: Driver, files: tuple[DriverFile, ...]) -> tuple[HookStep, ...]:
    """Return the steps of the hook for a driver with FILES. A profile may select only some of the steps.

    Each step corresponds to a hook of nvidia-container-toolkit 1.20 (internal/discover).
    """
    steps = [HookStep(name="disable-device-node-modification")]
    if _holds(files, "libcuda.so.1"):
        steps.append(HookStep(name="enable-cuda-compat", arguments=(driver.version,)))
    if _holds(files, "libEGL_nvidia.so.0"):
        steps.append(HookStep(name="update-application-profile"))
    return tuple(steps)


def _holds(files: tuple[DriverFile, ...], soname: str) -> bool:
    return any(soname in file.names for file in files)


def group_drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return one draft per group of the inventory, except groups without nodes.

    A device without nodes is invalid. A group uses the profile of its device class. If PROFILES has no such
    profile, the group uses the first profile.
    """
    by_class = {profile.device_class: profile for profile in profiles}
    drafts = (
        _group_draft(group, inventory.driver, by_class.get(group.device_class, profiles[0]))
        for group in inventory.groups
    )
    return tuple(draft for draft in drafts if draft.devices)


def platform_drafts(inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
    """Return the drafts of a WSL2 host or a Tegra board: one draft per profile and group.

    On such hosts, GPUs have only one naming.
    """
    return tuple(map(_with_files_alone, group_drafts(_with_profiles(inventory, profiles), profiles)))


def _group_draft(group: Group, driver: Driver, profile: Profile) -> Draft:
    is_whole_kind = "/" in group.device_class
    # Containers for the administration of GPUs must see the real state of the GPUs. Therefore, the only
    # possible step is the step for forward compatibility (nvidia-container-toolkit 1.20, management.go).
    steps = tuple(step for step in hook_steps(driver, group.files) if step.name == "enable-cuda-compat")
    return Draft(
        kind=group.device_class if is_whole_kind else f"{CDI_VENDOR}/{group.device_class}",
        devices=tuple(
            Device(name=device.name, edits=node_edits(device.nodes))
            for device in group.devices
            if device.nodes
        ),
        edits=ContainerEdits(env=ENV),
        payload=payload(driver, group.files, steps),
        profile=profile,
        yields=is_whole_kind,
    )


def _with_profiles(inventory: Inventory, profiles: tuple[Profile, ...]) -> Inventory:
    """Return INVENTORY with a copy of its groups for each profile."""
    groups = (
        replace(
            group,
            device_class=profile.device_class,
            files=tuple(file for file in group.files if profile.includes(file)),
        )
        for group in inventory.groups
        for profile in profiles
    )
    return replace(inventory, groups=tuple(groups))


def gpu_names(gpu: Accelerator, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a whole GPU in NAMINGS. Names with an unknown value (UUID) are left out."""
    names = {
        "index": str(gpu.index),
        "uuid": gpu.uuid,
        "type-index": f"gpu{gpu.index}",
        "pci": gpu.address,
        "minor": None if gpu.minor is None else f"minor{gpu.minor}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))


def mig_names(gpu: Accelerator, mig: Partition, namings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a MIG instance. The namings pci and minor have no names for MIG instances.

    If the number of the instance is not known, the name contains the instance's ids (``0:gi9-ci0``). cdigen
    does not assign a number, because NVML may later report the same number for another instance.
    """
    names = {
        "index": f"{gpu.index}:{mig.label}",
        "uuid": mig.uuid,
        "type-index": f"mig{gpu.index}:{mig.label}",
    }
    return tuple(name for naming in namings if (name := names.get(naming)))
