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
    from cdigen.model.inventory import HostNode, Inventory
    from cdigen.model.partition_names import GpuPartitionNames
    from cdigen.model.profile import Profile

    class Vendor(Protocol):
        """One vendor; a module with these names is enough.

        ``NAME`` is what --vendor takes, ``CDI_VENDOR`` the vendor part of its kinds. ``NAMINGS`` are the
        namings of its devices where a profile names none, in their order; ``OPTIONS`` what the
        configuration may say to it alone. ``MODULES`` are the kernel modules that drive its devices, the
        usual one first, and ``PCI_VENDORS`` whose numbers the devices have on the PCI bus.
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


NO_OPTIONS: Mapping[str, Mapping[str, bool | str]] = {}


def no_names() -> tuple[GpuPartitionNames, ...]:
    """Return no names: none are remembered."""
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
    when they were last named.
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

    def option(self, vendor: str, option: Option) -> bool | str:
        """Return the value of the OPTION of VENDOR: as configured, else its default."""
        return self.options.get(vendor, {}).get(option.name, option.default)
