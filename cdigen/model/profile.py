"""A profile: the driver files in the spec of a kind, and the names of its devices."""

from __future__ import annotations

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import DriverFile

CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx")
# The forms of device names: number, UUID, type and number (gpu0, mig0:1), PCI address, number of the node
# (minor0), card (card0). Plugin vendors can define further forms.
NAMINGS = ("index", "uuid", "type-index", "pci", "minor", "card")
# How containers get the driver's files (docs/decisions/0006-layouts.md); ``auto`` is the best layout that the
# host supports.
LAYOUTS = ("auto", "files", "view", "hwcaps")
# The hook that runs before a container starts: none, the hook of cdigen, or the hook of NVIDIA.
HOOKS = ("auto", "none", "cdigen", "nvidia")
OWN_HOOKS = ("auto", "cdigen")
# The steps of a hook, with their names in NVIDIA's hook.
STEPS = (
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
)
_SHOWN = ("graphics", "display")
# Frequent values of NVIDIA_DRIVER_CAPABILITIES in images, as classes (``gpu-compute``). Compute and utility
# are the default of the variable, in libnvidia-container and in nvidia-container-toolkit. Graphics and
# display have the same libraries (libnvidia-container, nvc_mount.c) and the same X modules
# (nvidia-container-toolkit, internal/discover/graphics.go). A request for other capabilities gets the kind of
# the profile.
CAPABILITY_CLASSES = (
    ("compute", ("compute", "utility")),
    ("graphics", ("compute", "utility", "graphics", "display")),
)


@frozen
class Profile:
    """The content of the kind ``<vendor>/<device_class>``.

    - ``capabilities``: the driver capabilities. Empty means all capabilities.
    - ``names``: the forms of the device names. Empty means the vendor's default.
    - ``graphics``: include the files that only graphics programs need.
    - ``x11``: include the files that only the X server needs.
    - ``firmware``: include the firmware.
    - ``sockets``: include the sockets of the driver's daemons.
    - ``mps``: include the folder of the Multi-Process Service.
    - ``compat32``: include 32-bit libraries and their manifests.
    - ``whole_gpus``: also write a partitioned GPU as a whole device.
    - ``has_capability_kinds``: also write the capability kinds (see ``capability_profiles``).
    - ``layout`` and ``hook``: the method by which a container gets the files.
    - ``hook_steps``: the steps of the hook. If a step of ``required_hook_steps`` fails, the
      container does not start.
    - ``target``: the runtime releases that read the specs (``podman-4.3``). Empty means the target of the
      configuration.
    """

    name: str
    device_class: str
    capabilities: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    graphics: bool = True
    x11: bool = True
    firmware: bool = True
    sockets: bool = True
    mps: bool = False
    compat32: bool = False
    whole_gpus: bool = False
    has_capability_kinds: bool = False
    layout: str = "auto"
    hook: str = "auto"
    hook_steps: tuple[str, ...] = (
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "update-application-profile",
    )
    required_hook_steps: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    def includes_capabilities(self, capabilities: tuple[str, ...]) -> bool:
        """Return whether this profile's specs include a file or node that serves CAPABILITIES."""
        if not capabilities:
            return True
        included = self.capabilities or CAPABILITIES
        if not self.graphics:
            included = tuple(name for name in included if name not in _SHOWN)
        if not self.x11 and capabilities == ("display",):
            return False
        return any(capability in included for capability in capabilities)

    def exceeds(self, capabilities: tuple[str, ...]) -> bool:
        """Return whether this profile includes all of CAPABILITIES and at least one other capability."""
        included = {name for name in self.capabilities or CAPABILITIES if self.graphics or name not in _SHOWN}
        return set(capabilities) < included

    def includes(self, file: DriverFile) -> bool:
        """Return whether this profile's specs include FILE."""
        switches = {
            "firmware": self.firmware,
            "socket": self.sockets,
            "pipe": self.mps,
            "library32": self.compat32,
            "config32": self.compat32,
            "module": self.x11,
        }
        return switches.get(file.kind, True) and self.includes_capabilities(file.capabilities)

    def needs_capability_folders(self) -> bool:
        """Return whether the loader finds libraries only through the hwcaps folders."""
        return self.layout == "hwcaps" or (self.layout, self.hook) == ("view", "none")


def capability_profiles(profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
    """Return the profiles of the capability kinds, for each of PROFILES with ``has_capability_kinds``.

    CAPABILITY_CLASSES lists the classes. A capability kind has fewer files than its profile, and the same
    device names. The result contains no class that one of PROFILES already has.
    """
    present = {profile.device_class for profile in profiles}
    return tuple(
        _capability_profile(profile, device_class, capabilities)
        for profile in profiles
        if profile.has_capability_kinds
        for word, capabilities in CAPABILITY_CLASSES
        if (device_class := f"{profile.device_class}-{word}") not in present and profile.exceeds(capabilities)
    )


def _capability_profile(profile: Profile, device_class: str, capabilities: tuple[str, ...]) -> Profile:
    # Only PROFILE itself mounts the loader's folders. If two kinds in one container mounted these folders,
    # the mounts of one kind would hide the mounts of the other kind.
    layout = "files" if profile.needs_capability_folders() else profile.layout
    return replace(
        profile,
        name=device_class,
        device_class=device_class,
        capabilities=capabilities,
        layout=layout,
        has_capability_kinds=False,
    )


def is_naming(word: str) -> bool:
    """Return whether WORD has the syntax of a naming; a plugin vendor may define further namings."""
    letters = word.replace("-", "a").replace("_", "a")
    return (
        letters.isascii()
        and letters.isalnum()
        and letters.islower()
        and len(word) <= 32
        and word[0] not in "-_"
    )


DEFAULT = Profile(name="default", device_class="gpu")
