"""The vendor protocol (``Vendor``): all that the rest of cdigen asks of a maker of accelerators.

docs/adding-a-vendor.md walks through it.
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
        """One vendor; a module with these names is enough.

        ``NAME`` is what --vendor takes, ``CDI_VENDOR`` the vendor part of its kinds. ``NAMINGS`` are the
        namings of its devices where a profile names none, in their order; ``OPTIONS`` what the
        configuration may say to it alone. ``MODULES`` are the kernel modules that drive its devices, the
        usual one first, and ``PCI_VENDORS`` whose numbers the devices have on the PCI bus.

        How containers ask for its devices by variables is ``VISIBLE_DEVICES``, a tuple of that name: of a
        vendor in the tree in its module ``visible``, since who reads it needs no discovery, and the other way
        round; of another package's as a further name of the vendor, which may be left out.
        """

        NAME: str
        CDI_VENDOR: str
        NAMINGS: tuple[str, ...]
        OPTIONS: tuple[Option, ...]
        MODULES: tuple[str, ...]
        PCI_VENDORS: tuple[int, ...]

        def discover(self, context: DiscoveryContext) -> Inventory:
            """Read the host; raises HostError where this vendor has nothing to offer there.

            Every vendor in the tree is asked on every host: one whose module is not loaded says so
            (``driver-not-loaded``) after a few reads, before it imports what only its own hosts need.
            """

        def edits(self, inventory: Inventory, profiles: tuple[Profile, ...]) -> tuple[Draft, ...]:
            """Compute the content of each profile's spec, and of those of other classes; pure."""

        def watches(self, context: DiscoveryContext) -> Watches:
            """Return what the daemon has to watch, whether it exists or not."""

        def missing_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
            """Read which device nodes are missing, as they would have to be made."""

        def wrong_nodes(self, context: DiscoveryContext) -> tuple[HostNode, ...]:
            """Read which device nodes are something else than they should be, as they should be."""

        def diagnostics(self, context: DiscoveryContext, inventory: Inventory | None) -> tuple[Finding, ...]:
            """Read what keeps containers from this vendor's devices although discovery finds nothing wrong.

            ``doctor`` shows it beside its own checks. INVENTORY is None where discovery failed.
            """


@frozen
class Option:
    """What the configuration may say to one vendor: ``vendor_options: {VENDOR: {NAME: value}}``.

    A value is of the kind of ``default``: a switch or a text.
    """

    name: str
    default: bool | str
    help: str


@frozen
class Watches:
    """What tells that a vendor's side of a host has changed.

    ``files`` are absolute paths of this machine, of files, of folders (each entry matters) or with ``*`` in
    the last name; ``polled`` are small files and folders of which the kernel announces nothing;
    ``subsystems`` are those of the kernel's uevents.
    """

    files: tuple[str, ...]
    polled: tuple[str, ...]
    subsystems: tuple[str, ...]


def as_written(word: str) -> tuple[str, ...]:
    """Return WORD: specs call a device as variables do."""
    return (word,)


@frozen
class VisibleDevices:
    """How containers ask for devices of one sort by a variable, and how it shows that they have some.

    ``variables`` are the variable's names: the first that is set and not empty counts. One that ends in
    ``*`` stands for all that begin so, of which only those count whose every word matches ``words``, since
    others may begin so as well. Without any, the devices can be asked for by their full names alone.
    ``kinds`` are the CDI kinds that the variable means; of several, the first that is allowed and of which
    the host has a spec. ``claimed`` are those of them by which a driver calls what it gives to claims (DRA):
    other pods' devices, which rows of ``allow`` without kinds leave out. ``names`` returns how specs may call
    what the variable calls so, the usual name first. ``has_ranges``: 0-3 stands for 0, 1, 2 and 3. The list
    is separated by commas; ``all``, ``none`` and ``void`` are what they are with NVIDIA.

    ``given_as`` matches the kinds under which a device plugin or a claim gives such devices, whoever's, and
    ``nodes`` the nodes by which they show then; a group in it is the device's number. ``words``,
    ``given_as`` and ``nodes`` are regular expressions that match the whole.
    """

    variables: tuple[str, ...]
    kinds: tuple[str, ...]
    given_as: str
    nodes: str
    names: Callable[[str], tuple[str, ...]] = as_written
    has_ranges: bool = False
    words: str = ""
    claimed: tuple[str, ...] = ()


def nothing_left_out(_: tuple[Accelerator, ...]) -> dict[str, str]:
    """Return no addresses: all devices are offered."""
    return {}


def no_profile(_accelerator: Accelerator) -> str:
    """Return no profile: a whole device is named as such."""
    return ""


def no_size(_model: str) -> None:
    """Return None: of no model the memory is known."""


@frozen
class ResourceNames:
    """What pods ask for to get devices of one sort: extended resources, as the vendor's users know them.

    It is about accelerators of ``device_class``, and where it is given, of ``kernel_driver`` alone; of
    several, the first counts. Whole ones are ``name``, partitions ``partition``, in which ``{profile}``
    stands for the profile with ``+`` as a dot, since a resource's name has none; if it is empty, ``name``.
    ``left_out`` returns the addresses of accelerators that no pod should get, and the reasons. ``memory_gb``
    returns the memory of a model, of which the kernel tells none, and None where nobody knows it.
    ``profile_of`` returns the profile of a whole accelerator that is named by one as partitions are, or "".
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
    """Return no names: none are remembered."""
    return ()


def no_links() -> tuple[KnownLinks, ...]:
    """Return no links: none are kept."""
    return ()


@frozen
class DiscoveryContext:
    """The trees of the host that a vendor reads, and what was asked for.

    ``host`` is the host's own tree (/proc, /sys), ``driver`` the tree with the driver's files,
    ``dev`` the tree whose /dev holds the nodes; search paths, where given, are absolute folders of
    the driver's tree that replace the vendor's own tables.

    ``mode`` is the kind of host (``auto``: found out). ``nvml`` says whether the vendor's
    management library may be loaded in a child process: ``auto``, ``off``, or the path of a library.
    ``compat32`` asks for 32-bit libraries; ``mps_pipe_dir`` is the folder of NVIDIA's Multi-Process
    Service, which ``mps_uid`` may own besides root, or empty. ``options`` are those that the
    configuration gives, by vendor and name. ``partition_names`` reads what partitions of GPUs were called
    when they were last named, ``known_links`` how GPUs were linked when that was last asked.
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

    def option(self, vendor: str, option: Option) -> bool | str:
        """Return the value of the OPTION of VENDOR: as configured, else its default."""
        return self.options.get(vendor, {}).get(option.name, option.default)
