"""A profile: which part of a driver one kind's specs contain, and under which names."""

from __future__ import annotations

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.model.inventory import DriverFile

CAPABILITIES = ("compute", "utility", "graphics", "video", "display", "ngx")
# How devices may be named: by number, by UUID, by type and number (gpu0, mig0:1), by PCI address, by the
# number of the node (minor0), as their card (card0). Vendors of other packages may have their own.
NAMINGS = ("index", "uuid", "type-index", "pci", "minor", "card")
# How the driver's files reach a container (docs/decisions/0006-layouts.md); ``auto`` is the best one that the
# host supports.
LAYOUTS = ("auto", "files", "view", "hwcaps")
# The hook that runs before a container starts: none, cdigen's own, or NVIDIA's.
HOOKS = ("auto", "none", "cdigen", "nvidia")
# The steps of a hook, by the names in NVIDIA's hook.
STEPS = (
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
)
_SHOWN = ("graphics", "display")
# What images ask for by NVIDIA_DRIVER_CAPABILITIES, as classes of their own (``gpu-compute``): compute and
# utility are what it means where it is not set (libnvidia-container and nvidia-container-toolkit alike).
# Graphics and display have the same libraries (libnvidia-container, nvc_mount.c) and the same modules of X
# (nvidia-container-toolkit, internal/discover/graphics.go). Whoever asks for more has the profile itself.
NARROWED = (
    ("compute", ("compute", "utility")),
    ("graphics", ("compute", "utility", "graphics", "display")),
)


@frozen
class Profile:
    """What the kind ``<vendor>/<device_class>`` gives; no capabilities means all of them.

    ``names`` are the namings of its devices; none means the vendor's own. Switches: ``graphics`` and
    ``x11`` for what only these need, ``firmware``, ``sockets`` of the driver's daemons, ``mps`` for the
    folder of the Multi-Process Service, ``compat32`` for 32-bit libraries, ``whole_gpus`` to offer a GPU
    that is partitioned as a whole, too.

    ``narrow``: its vendor offers parts of it as well, see ``narrowed``.

    ``layout`` and ``hook`` say how the files get there; ``hook_steps`` are what a hook does,
    ``hook_required`` those without which a container must not start.
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
    narrow: bool = False
    layout: str = "auto"
    hook: str = "auto"
    hook_steps: tuple[str, ...] = (
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "update-application-profile",
    )
    hook_required: tuple[str, ...] = ()

    def wants(self, capabilities: tuple[str, ...]) -> bool:
        """Return whether something that serves CAPABILITIES belongs in this profile's specs."""
        if not capabilities:
            return True
        wanted = self.capabilities or CAPABILITIES
        if not self.graphics:
            wanted = tuple(name for name in wanted if name not in _SHOWN)
        if not self.x11 and capabilities == ("display",):
            return False
        return any(capability in wanted for capability in capabilities)

    def gives_more_than(self, capabilities: tuple[str, ...]) -> bool:
        """Return whether this profile gives all of CAPABILITIES, and others."""
        given = {name for name in self.capabilities or CAPABILITIES if self.graphics or name not in _SHOWN}
        return set(capabilities) < given

    def takes(self, file: DriverFile) -> bool:
        """Return whether FILE belongs in this profile's specs."""
        switches = {
            "firmware": self.firmware,
            "socket": self.sockets,
            "pipe": self.mps,
            "library32": self.compat32,
            "module": self.x11,
        }
        return switches.get(file.kind, True) and self.wants(file.capabilities)

    def needs_capability_folders(self) -> bool:
        """Return whether libraries are found only through the hwcaps folders."""
        return self.layout == "hwcaps" or (self.layout, self.hook) == ("view", "none")


def narrowed(profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
    """Return the parts of those of PROFILES that are ``narrow``: each of a class of its own in NARROWED.

    A part gives less than the whole, by the same names. A class that one of PROFILES has stays its own.
    """
    taken = {profile.device_class for profile in profiles}
    return tuple(
        _part(profile, device_class, capabilities)
        for profile in profiles
        if profile.narrow
        for word, capabilities in NARROWED
        if (device_class := f"{profile.device_class}-{word}") not in taken
        and profile.gives_more_than(capabilities)
    )


def _part(whole: Profile, device_class: str, capabilities: tuple[str, ...]) -> Profile:
    # The loaders' own folders are the whole's alone: of two kinds in a container one would cover the other.
    layout = "files" if whole.needs_capability_folders() else whole.layout
    return replace(
        whole,
        name=device_class,
        device_class=device_class,
        capabilities=capabilities,
        layout=layout,
        narrow=False,
    )


def is_naming(word: str) -> bool:
    """Return whether WORD may be a naming: a plugin vendor may have any word."""
    letters = word.replace("-", "a").replace("_", "a")
    return (
        letters.isascii()
        and letters.isalnum()
        and letters.islower()
        and len(word) <= 32
        and word[0] not in "-_"
    )


DEFAULT = Profile(name="default", device_class="gpu")
