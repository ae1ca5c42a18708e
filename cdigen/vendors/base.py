"""The vendor protocol (``Vendor``): the interface between cdigen and the code of one accelerator vendor.

docs/adding-a-vendor.md explains the protocol step by step.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, HostNode, Inventory
    from cdigen.model.known_links import KnownLinks
    from cdigen.model.partition_names import GpuPartitionNames
    from cdigen.model.profile import Profile

    class Vendor(Protocol):
        """The functions and values of one vendor. A module or an object can implement this protocol.

        ``NAME`` is the value of --vendor. ``CDI_VENDOR`` is the vendor part of the vendor's CDI kinds.
        ``NAMINGS`` are the device namings, in this order, for profiles that set no naming. ``OPTIONS`` are
        the vendor's own configuration options. ``MODULES`` are the kernel modules that drive the vendor's
        devices. The first of them is the most common. ``PCI_VENDORS`` are the PCI vendor numbers of the
        devices.

        A vendor can also have ``VISIBLE_DEVICES``, a tuple of ``VisibleDevices`` objects. They describe the
        environment variables by which containers request the vendor's devices. A vendor in cdigen's source
        tree defines the tuple in its module ``visible``, so that programs can read the tuple without
        discovery. A vendor of another package defines the tuple as an additional attribute of the vendor.
        """

        NAME: str
        CDI_VENDOR: str
        NAMINGS: tuple[str, ...]
        OPTIONS: tuple[VendorOption, ...]
        MODULES: tuple[str, ...]
        PCI_VENDORS: tuple[int, ...]

        def discover(self, context: DiscoveryContext) -> Inventory:
            """Return the inventory of the host; raise HostError if the host has no device of this vendor.

            cdigen calls this function on every host, for each vendor in the tree. The function must be fast
            if the vendor's kernel module is not loaded. In this case, it raises a HostError of the kind
            ``driver-not-loaded`` after a few reads, and does not import further modules.
            """

        def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
            """Return the drafts for PROFILES and for the other device classes, without reads of the host."""

        def watches(self, context: DiscoveryContext) -> Watches:
            """Return the files and uevents that the daemon watches. The files need not exist."""

        def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
            """Return the device nodes to create, with their numbers and modes."""

        def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
            """Return the correct node for each device node with wrong numbers or of a wrong type."""

        def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
            """Return findings about containers with this vendor's devices; exclude the findings of discovery.

            ``cdigen doctor`` shows these findings together with its own checks. INVENTORY is None if
            discovery failed.
            """


@frozen
class BootModule:
    """A kernel module to load after the driver.

    ``name`` is the argument for modprobe(8). ``kernel_names`` are the possible names in /sys/module.
    ``is_required`` is true if containers cannot compute without the module.
    """

    name: str
    kernel_names: tuple[str, ...]
    is_required: bool


@frozen
class NodesAtBoot:
    """The device nodes of a vendor, with their numbers, owners and modes.

    ``present`` holds the existing nodes, ``missing`` the nodes to create. ``wrong`` holds the correct nodes
    for paths that have another device's node or a file of another type. ``lacking`` holds the host paths of
    the missing nodes that containers need. ``refusal`` is the reason why cdigen must not create nodes. If
    cdigen may create nodes, ``refusal`` is empty.
    """

    present: tuple[HostNode, ...]
    missing: tuple[HostNode, ...]
    wrong: tuple[HostNode, ...]
    lacking: tuple[str, ...] = ()
    refusal: str = ""


@frozen
class BootNodes:
    """The modules to load and the device nodes to create after a driver is loaded.

    A vendor needs such an object if the kernel does not create the driver's nodes. ``drivers`` are the names
    of the driver in /sys/module. ``modules`` are the modules to load after the driver. ``sources`` are the
    files and folders of the host that contain the numbers, owners and modes of the nodes. ``folders`` are the
    folders with the nodes. ``applies`` returns whether the loaded driver needs such nodes on this host.
    ``read`` returns the nodes. ``read`` raises HostError if cdigen cannot read the driver's files in /proc.
    """

    drivers: tuple[str, ...]
    modules: tuple[BootModule, ...]
    sources: tuple[str, ...]
    folders: tuple[str, ...]
    applies: Callable[[DiscoveryContext], bool]
    read: Callable[[DiscoveryContext], NodesAtBoot]


@frozen
class VendorOption:
    """An option of one vendor in the configuration: ``vendor_options: {VENDOR: {NAME: value}}``.

    A value has the same type as ``default``, which is bool or str.
    """

    name: str
    default: bool | str
    help: str


@frozen
class Watches:
    """The files and uevents that show a change of a vendor's devices or driver.

    ``files`` are absolute paths of files and folders on this machine. The last name may contain ``*``. The
    daemon watches each entry of a folder. ``polled`` are small files and folders for which the kernel sends
    no event. ``subsystems`` are the subsystems of the uevents.
    """

    files: tuple[str, ...]
    polled: tuple[str, ...]
    subsystems: tuple[str, ...]


def as_written(word: str) -> tuple[str, ...]:
    """Return WORD unchanged, because specs and variables use the same name for a device."""
    return (word,)


@frozen
class VisibleDevices:
    """The environment variables by which containers request the devices of one class.

    ``variables`` are the names of the variables. cdigen uses the first variable that is set and not empty. A
    name that ends in ``*`` is a prefix. cdigen uses a variable with this prefix only if each word in its
    value matches ``words``, because other software may use the same prefix. If ``variables`` is empty,
    containers can request the devices by full CDI names only.

    The words in a variable are separated by commas. The words ``all``, ``none`` and ``void`` have the same
    meaning as in NVIDIA's variable. If ``has_ranges`` is true, ``0-3`` means the words 0, 1, 2 and 3.
    ``names`` returns the possible device names in specs for one word. The most common name is the first.

    ``kinds`` are the CDI kinds of the devices. cdigen uses the first kind that is permitted and has a spec on
    the host. ``claimed`` is the subset of ``kinds`` that a DRA driver writes for its claims. The devices of
    claims belong to other pods. Therefore, a rule in ``nri.allow`` permits a kind in ``claimed`` only if the
    rule lists the kind.

    ``allocated_kinds`` matches the kinds that device plugins and DRA drivers use for these devices. ``nodes``
    matches the paths of the device nodes in a container. ``words``, ``allocated_kinds`` and ``nodes`` are
    regular expressions that match the whole text. If ``nodes`` has a group in parentheses, the text of this
    group is the device's number.
    """

    variables: tuple[str, ...]
    kinds: tuple[str, ...]
    allocated_kinds: str
    nodes: str
    names: Callable[[str], tuple[str, ...]] = as_written
    has_ranges: bool = False
    words: str = ""
    claimed: tuple[str, ...] = ()


def nothing_left_out(_: tuple[Accelerator, ...]) -> dict[str, str]:
    """Return an empty mapping, so that cdigen advertises every device."""
    return {}


def no_profile(_accelerator: Accelerator) -> str:
    """Return an empty string, because a whole device has no profile."""
    return ""


def no_size(_model: str) -> None:
    """Return None, because no memory size is known for any model."""


@frozen
class ResourceNames:
    """The extended resources by which pods request devices of one class.

    The resources have the same names as in the vendor's device plugin. The object applies to the accelerators
    of ``device_class``. If ``kernel_driver`` is set, the object applies only to devices with this driver. If
    several objects match an accelerator, cdigen uses the first.

    ``name`` is the resource of whole devices. ``partition`` is the resource of partitions. If ``partition``
    is empty, ``name`` is also the resource of partitions. In ``partition``, cdigen replaces ``{profile}`` by
    the partition's profile, and each ``+`` in the profile by a dot, because resource names cannot contain
    ``+``.

    ``left_out`` returns the addresses of accelerators that no pod may get, and the reason for each address.
    ``memory_gb`` returns the memory size of a model in GB, or None if the size is not known. cdigen calls
    ``memory_gb`` if the kernel reports no memory size. ``profile_of`` returns the profile of a whole
    accelerator if the name of its resource contains a profile. Else ``profile_of`` returns an empty string.
    """

    device_class: str
    name: str
    partition: str = ""
    kernel_driver: str = ""
    left_out: Callable[[tuple[Accelerator, ...]], Mapping[str, str]] = nothing_left_out
    memory_gb: Callable[[str], int | None] = no_size
    profile_of: Callable[[Accelerator], str] = no_profile


NO_OPTIONS: Mapping[str, Mapping[str, bool | str]] = {}


def no_names() -> tuple[GpuPartitionNames, ...]:
    """Return an empty tuple, because no partition names are stored."""
    return ()


def no_links() -> tuple[KnownLinks, ...]:
    """Return an empty tuple, because no links are stored."""
    return ()


@frozen
class DiscoveryContext:
    """The file trees of the host that a vendor reads, and the options of the call.

    ``host`` is the tree with the host's /proc and /sys. ``driver`` is the tree with the driver's files.
    ``dev`` is the tree whose /dev contains the nodes. The search paths are absolute folders of the driver's
    tree. If a search path is set, cdigen uses these folders instead of the vendor's own tables.

    ``mode`` is the type of host. With ``auto``, cdigen detects the type. ``nvml`` selects the vendor's
    management library for a child process. Its value is ``auto``, ``off``, or the path of a library.
    ``compat32`` adds 32-bit libraries. ``mps_pipe_dir`` is the folder of NVIDIA's Multi-Process Service, or
    empty. The user root or ``mps_uid`` must own this folder. ``options`` are the configured vendor options,
    by vendor and name. ``partition_names`` returns the last known names of GPU partitions. ``known_links``
    returns the last known links between GPUs.
    """

    host: Root
    driver: Root
    dev: Root
    library_search_paths: tuple[str, ...] = ()
    binary_search_paths: tuple[str, ...] = ()
    config_search_paths: tuple[str, ...] = ()
    mode: str = "auto"
    nvml: str = "off"
    compat32: bool = False
    mps_pipe_dir: str = ""
    mps_uid: int = 0
    options: Mapping[str, Mapping[str, bool | str]] = NO_OPTIONS
    partition_names: Callable[[], tuple[GpuPartitionNames, ...]] = no_names
    known_links: Callable[[], tuple[KnownLinks, ...]] = no_links

    def option(self, vendor: str, option: VendorOption) -> bool | str:
        """Return the configured value of the OPTION of VENDOR, or the default of OPTION."""
        return self.options.get(vendor, {}).get(option.name, option.default)
