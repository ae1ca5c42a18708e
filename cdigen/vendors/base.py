"""The vendor protocol (``Vendor``): the interface between cdigen and the code of one accelerator vendor.

All packages of cdigen read vendors through ``registry``. No package tests for a vendor's name.

docs/contributing/adding-a-vendor.md explains the protocol step by step.
"""

from __future__ import annotations

from importlib import import_module

from cdigen.value import frozen
from cdigen.vendors.context import constant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.host.root import Root
    from cdigen.model.cdi import Draft
    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, HostNode, Inventory, Partition
    from cdigen.model.profile import Profile
    from cdigen.model.saved import GpuLinks
    from cdigen.model.stats import DeviceStats
    from cdigen.vendors.context import DiscoveryContext, VendorOption
    from cdigen.vendors.health import VendorHealth
    from cdigen.vendors.labels import Label, LabelSource

    # A version such as 12.4.
    CudaVersion = str
    ReadStats = Callable[[DiscoveryContext, Inventory], tuple[DeviceStats, ...]]
    ReadLabels = Callable[[LabelSource], list[Label]]


def deferred(path: str) -> Callable[..., Any]:
    """Return a function that imports and calls the function at PATH (``cdigen.vendors.amd.edits:drafts``)."""
    module, _, name = path.partition(":")

    def call(*arguments: object) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call


@frozen
class Vendor:
    """The values and functions of one vendor. The vendor of another package is any object with these members.

    ``NAME`` is the value of --vendor. ``CDI_VENDOR`` is the vendor part of the vendor's CDI kinds.
    ``NAMINGS`` are the device namings, in this order, for profiles that set no naming. ``OPTIONS`` are the
    vendor's own configuration options. ``MODULES`` are the kernel modules that drive the vendor's devices.
    The first of them is the most common. ``PCI_VENDORS`` are the PCI vendor numbers of the devices.

    ``discover`` returns the inventory of the host, or raises HostError if the host has no device of this
    vendor. cdigen calls it on every host, for each vendor in the tree. The function must be fast if the
    vendor's kernel module is not loaded. In this case, it raises a HostError of the kind
    ``driver-not-loaded`` after a few reads, and does not import further modules.

    ``edits`` returns the drafts for the profiles and for the other device classes, without reads of the host.
    ``watches`` returns the files and uevents that the daemon watches. The files need not exist.
    ``missing_nodes`` returns the device nodes to create, with their numbers and modes. ``wrong_nodes``
    returns the correct node for each device node with wrong numbers or of a wrong type. ``diagnostics``
    returns findings about containers with this vendor's devices, except the findings of discovery. ``cdigen
    doctor`` shows these findings together with its own checks. The inventory is None if discovery failed.

    The following members are optional. A vendor in the tree defines each in a module of its package with the
    member's name (HEALTH in ``health``), so that a program imports only the members that it needs.
    ``VISIBLE_DEVICES`` are the environment variables by which containers request devices. ``RESOURCES`` are
    the extended resources by which pods request devices. ``STATS`` returns the statistics of the devices in
    an inventory, which are read on demand. ``LABELS`` returns the labels of a node.

    ``problem`` is the reason why the vendor of another package cannot be used, or "".
    """

    NAME: str
    CDI_VENDOR: str
    NAMINGS: tuple[str, ...]
    OPTIONS: tuple[VendorOption, ...]
    MODULES: tuple[str, ...]
    PCI_VENDORS: tuple[int, ...]
    discover: Callable[[DiscoveryContext], Inventory]
    edits: Callable[[Inventory, tuple[Profile, ...]], tuple[Draft, ...]]
    watches: Callable[[DiscoveryContext], Watches]
    missing_nodes: Callable[[DiscoveryContext], tuple[HostNode, ...]]
    wrong_nodes: Callable[[DiscoveryContext], tuple[HostNode, ...]]
    diagnostics: Callable[[DiscoveryContext, Inventory | None], tuple[Finding, ...]]
    VISIBLE_DEVICES: tuple[VisibleDevices, ...] = ()
    RESOURCES: tuple[ResourceNames, ...] = ()
    HEALTH: VendorHealth | None = None
    STATS: Callable[[DiscoveryContext, Inventory], tuple[DeviceStats, ...]] | None = None
    LABELS: Callable[[LabelSource], list[Label]] | None = None
    LINKS: VendorLinks | None = None
    DRIVER_API: DriverApi | None = None
    BOOT_NODES: BootNodes | None = None
    REMEDIES: DriverRemedies | None = None
    problem: str = ""


@frozen
class BootModule:
    """A kernel module to load after the driver.

    ``name`` is the argument for modprobe(8). ``kernel_names`` are the possible names in /sys/module.
    ``is_required`` is true if containers cannot compute without the module. ``without`` is the consequence if
    a module that is not required is missing.
    """

    name: str
    kernel_names: tuple[str, ...]
    is_required: bool
    without: str = ""


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
    folders with the nodes. ``device_nodes`` is a shell pattern for the paths of the nodes of single devices.
    ``applies`` returns whether the loaded driver needs such nodes on this host. ``read`` returns the nodes.
    ``read`` raises HostError if cdigen cannot read the driver's files in /proc.
    """

    drivers: tuple[str, ...]
    modules: tuple[BootModule, ...]
    sources: tuple[str, ...]
    folders: tuple[str, ...]
    device_nodes: str
    applies: Callable[[DiscoveryContext], bool]
    read: Callable[[DiscoveryContext], NodesAtBoot]


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


def named(*prefixes: str) -> Callable[[str], tuple[str, ...]]:
    """Return a function that returns the names of a device: a word, and the word after each of PREFIXES."""
    return lambda word: (word, *(f"{prefix}{word}" for prefix in prefixes))


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
    names: Callable[[str], tuple[str, ...]] = named()
    has_ranges: bool = False
    words: str = ""
    claimed: tuple[str, ...] = ()


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
    ``memory_hint`` is the next step if no source reports the memory size.

    ``has_uuid_ids`` is set if the vendor's device plugin uses UUIDs as ids of devices, else PCI addresses.
    ``supports_mps`` is set if containers can share the devices by NVIDIA's Multi-Process Service.
    ``strategy_key`` is the key of ``kubelet:`` with the strategy for partitions; if it is empty, the strategy
    is ``mixed``. ``variable`` is the variable that ``kubelet: {environment: true}`` sets in containers.
    ``families`` are pairs of a word in ``kubelet: {families}`` and the CDI name of the device that each
    container gets in addition.

    ``claim_driver`` is the vendor's DRA driver for these devices, or "". ``claim_names`` returns the names of
    an accelerator or of its partition in this driver; a ``*`` in a name matches any text.
    """

    device_class: str
    name: str
    partition: str = ""
    kernel_driver: str = ""
    left_out: Callable[[tuple[Accelerator, ...]], Mapping[str, str]] = constant({})
    memory_gb: Callable[[str], int | None] = constant(None)
    profile_of: Callable[[Accelerator], str] = constant("")
    memory_hint: str = ""
    has_uuid_ids: bool = False
    supports_mps: bool = False
    strategy_key: str = ""
    variable: str = ""
    families: tuple[tuple[str, str], ...] = ()
    claim_driver: str = ""
    claim_names: Callable[[Accelerator, Partition | None], tuple[str, ...]] = constant(())


@frozen
class VendorLinks:
    """The source of the links between devices, and of memory sizes that the kernel does not report.

    ``min_gpus`` is the least number of usable devices for a query. ``read`` returns the links of each device,
    and whether the result is complete; None if the devices cannot be queried now. cdigen calls ``read`` after
    the specs are written, once for each load of the driver (the first of ``MODULES``) and each set of
    devices, and again after an incomplete result.
    """

    min_gpus: int
    read: Callable[[DiscoveryContext, Inventory], tuple[tuple[GpuLinks, ...], bool] | None]


@frozen
class DriverApi:
    """The newest version of CUDA that a driver supports, and the facts that images can require.

    ``read`` queries the driver and returns the version (``12.4``), or None. ``version`` returns the version
    for an inventory without a query; "" if the version is unknown. ``architecture`` returns the compute
    capability of a model (``9.0``), and ``brands`` the possible brands. If they are unknown, the results are
    empty.
    """

    read: Callable[[DiscoveryContext, Inventory], CudaVersion | None]
    version: Callable[[Inventory], str]
    architecture: Callable[[str], str]
    brands: Callable[[str], tuple[str, ...]]


@frozen
class RuleCommand:
    """The command that fixes the findings of ``rule`` that have no hint. ``why`` is its purpose."""

    rule: str
    argv: tuple[str, ...]
    why: str


@frozen
class DriverRemedies:
    """The names in the commands of ``cdigen doctor`` that repair a driver.

    ``modules`` are the driver's kernel modules; each module precedes the modules that it depends on.
    ``libraries`` are the files without which the driver is broken. ``package_words`` are words in the names
    of the Debian packages with the driver's files. ``python_module`` is a module that the vendor's
    ``diagnostics`` check. ``node_mode`` is the setting that permanently lets every user open the nodes whose
    paths begin with ``node_prefix``.

    ``rivals`` are other PCI drivers that bind the vendor's devices on hosts without the vendor's module.
    ``refusals`` are pairs of a text in the kernel log and its meaning, with the next step: the module was
    loaded, and rejected the devices. The messages begin with one of ``log_beginnings``. ``mismatch`` returns
    the reason why the installed module supports no device of a host, with the next step, or "" if no reason
    is known. ``commands`` fix the findings of the vendor's own rules.
    """

    modules: tuple[str, ...]
    libraries: tuple[str, ...]
    package_words: tuple[str, ...]
    python_module: str = ""
    node_mode: str = ""
    node_prefix: str = "/dev/"
    rivals: tuple[str, ...] = ()
    log_beginnings: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    mismatch: Callable[[Root], str] | None = None
    commands: tuple[RuleCommand, ...] = ()
