"""The discovery options of commands, and the results of these options: context, vendors and inventories."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from cdigen import config
from cdigen.cli.shared import argument_checks, report
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.options import absolute, add_root_options, outer_directory, read_json
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import ConfigError, HostError
from cdigen.model.findings import finding_of
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.registry import NAMES, VENDORS, require_distinct_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Inventory
    from cdigen.model.saved import GpuPartitionNames, KnownLinks

MAX_INVENTORY = 64 << 20


def add_discovery_options(parser: argparse.ArgumentParser, *, takes_inventory: bool = True) -> None:
    """Add the options of the commands that discover the devices of the host.

    If TAKES_INVENTORY is false, the help omits --inventory, and ``refuse_inventory`` rejects this option.
    """
    add_root_options(parser)
    group = parser.add_argument_group("discovery")
    add(group, "--vendor", "--driver-root", "--dev-root")
    add(group, "--library-search-path", "--binary-search-path", "--config-search-path", "--mode", "--nvml")
    add(group, "--inventory", **({} if takes_inventory else {"help": argparse.SUPPRESS}))
    add(group, "--strict")


def refuse_inventory(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if a command that needs a running host has --inventory in ARGUMENTS."""
    if arguments.inventory is not None:
        raise ConfigError(
            "--inventory is a document, but this command reads the present state of a host",
            hint="see 'cdigen generate --inventory'",
        )


def context(arguments: argparse.Namespace, host: Root, settings: config.Settings) -> DiscoveryContext:
    """Return the context of a discovery. Every path in the context is inside the root of HOST."""
    driver_root = absolute("--driver-root", arguments.driver_root) or settings.driver_root
    driver = _below(host, driver_root, "driver root")
    dev_root = absolute("--dev-root", arguments.dev_root) or settings.dev_root
    names = vendor_names(arguments, settings)
    # A driver container can contain all device nodes, some or none. If it contains no GPU nodes, the host's
    # nodes are used.
    usual = driver if driver is not host and _has_gpu_nodes(driver, names) else host
    dev = _below(host, dev_root, "dev root") if dev_root else usual
    return DiscoveryContext(
        host=host,
        driver=driver,
        dev=dev,
        library_search_paths=_search_paths("library", arguments, settings),
        binary_search_paths=_search_paths("binary", arguments, settings),
        config_search_paths=_search_paths("config", arguments, settings),
        mode=arguments.mode or settings.mode,
        nvml=_nvml(arguments.nvml or settings.nvml, driver),
        compat32=any(profile.compat32 for profile in settings.profiles),
        mps_pipe_dir=settings.mps_pipe_dir if any(profile.mps for profile in settings.profiles) else "",
        mps_uid=settings.mps_uid,
        options=_vendor_options(settings, names),
        partition_names=lambda: _partition_names(host, settings),
        known_links=lambda: _known_links(host, settings),
        excluded=settings.devices.exclude,
    )


def _vendor_options(
    settings: config.Settings, names: tuple[str, ...]
) -> Mapping[str, Mapping[str, bool | str]]:
    """Return the configured options of the vendors NAMES.

    The result also enables the options for management kinds if ``nri.management_namespaces`` is set and
    ``nri.management_kinds`` contains the kind. ``management_namespaces`` restricts only these kinds.
    """
    if not settings.nri.management_namespaces:
        return settings.vendor_options
    from cdigen.vendors.registry import load  # noqa: PLC0415 - imports the vendors' code

    enabled: dict[str, Mapping[str, bool | str]] = {
        name: {option.name: True}
        for name in names
        for option in load(name).OPTIONS
        if option.management_kind and config.matches(option.management_kind, settings.nri.management_kinds)
    }
    configured = settings.vendor_options
    return {name: {**enabled.get(name, {}), **configured.get(name, {})} for name in {**configured, **enabled}}


def _partition_names(host: Root, settings: config.Settings) -> tuple[GpuPartitionNames, ...]:
    from cdigen.store.records.saved import PARTITION_NAMES  # noqa: PLC0415 - few hosts have partitions

    return PARTITION_NAMES.read(outer_directory(host, settings.state_dir), host)


def _known_links(host: Root, settings: config.Settings) -> tuple[KnownLinks, ...]:
    from cdigen.store.records.saved import KNOWN_LINKS  # noqa: PLC0415 - few hosts have several GPUs

    return KNOWN_LINKS.read(outer_directory(host, settings.state_dir), host)


def _has_gpu_nodes(root: Root, names: tuple[str, ...]) -> bool:
    """Return whether ROOT has a device node that the kernel does not create, of one of the vendors NAMES."""
    from cdigen.vendors.registry import boot_nodes  # noqa: PLC0415 - only for driver containers

    patterns = [boot.device_nodes for name in names if (boot := boot_nodes(name)) is not None]
    return any(fnmatchcase(f"/dev/{name}", pattern) for name in root.names("/dev") for pattern in patterns)


def _nvml(choice: str, driver: Root) -> str:
    """Return the NVML mode; if DRIVER is not this machine's own driver, ``auto`` becomes ``off``.

    NVML reports the devices of the running machine. Loading a library runs the library's code as root.
    """
    if choice == "auto":
        own = driver.is_this_machine and not driver.host_prefix
        return "auto" if own else "off"
    if choice != "off" and not choice.startswith("/"):
        raise ConfigError(f"--nvml {shown(choice)!r} is not auto, off or an absolute path")
    return choice


def vendor_names(arguments: argparse.Namespace, settings: config.Settings) -> tuple[str, ...]:
    """Return the vendors of --vendor, else the vendors of the configuration, else all vendors.

    Raises ConfigError if two of the vendors have the same kinds.
    """
    names = tuple(dict.fromkeys(arguments.vendor or settings.vendors or VENDORS))
    require_distinct_kinds(names)
    return names


def are_vendors_named(arguments: argparse.Namespace, settings: config.Settings) -> bool:
    """Return whether --vendor or the configuration names vendors."""
    return bool(arguments.vendor or settings.vendors)


def discover(
    arguments: argparse.Namespace, settings: config.Settings, where: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Return the inventories and the failures, each by vendor.

    If no vendors are named, the result has only the failures that are relevant on this host. Raises
    ConfigError if a path of an option does not exist.
    """
    from cdigen.pipeline import discovery  # noqa: PLC0415 - not for --help

    argument_checks.require_sources(arguments, where)
    inventories, failures = discovery.discover(vendor_names(arguments, settings), where)
    if not are_vendors_named(arguments, settings):
        failures = discovery.relevant_failures(inventories, failures, where.host)
    if not inventories and where.host.is_this_machine:
        failures = discovery.with_missing_host(failures)
    return inventories, failures


def usable_inventories(
    arguments: argparse.Namespace, settings: config.Settings, where: DiscoveryContext
) -> dict[str, Inventory]:
    """Return the inventories, and print the failures.

    Raises the first failure if there are no inventories, or if --strict is set.
    """
    inventories, failures = discover(arguments, settings, where)
    report.print_findings(findings_of(failures), arguments)
    if failures and (arguments.strict or not inventories):
        raise next(iter(failures.values()))
    return inventories


def findings_of(failures: dict[str, HostError]) -> tuple[Finding, ...]:
    """Return an error for each vendor that has devices on this host but no usable device."""
    from cdigen.pipeline.discovery import ABSENT  # noqa: PLC0415 - not for --help

    return tuple(finding_of(error, name) for name, error in failures.items() if error.kind not in ABSENT)


def read_inventory(file: str, names: tuple[str, ...]) -> dict[str, Inventory]:
    """Return the inventories of the vendors NAMES in the document FILE (``-`` is standard input)."""
    from cdigen.model.inventory_json import from_document  # noqa: PLC0415 - only for --inventory

    hint = "create the inventory with 'cdigen inspect --json'"
    inventories = from_document(read_json(file, limit=MAX_INVENTORY, hint=hint, kind="inventory"))
    if unknown := sorted(name for name in inventories if name not in NAMES):
        raise ConfigError(f"the inventory has the unknown vendor {unknown[0]!r}", hint=hint, kind="inventory")
    return {name: inventories[name] for name in names if name in inventories}


def _below(host: Root, path: str, name: str) -> Root:
    try:
        root = host.below(path)
        root.listdir("/")
    except OSError as error:
        raise ConfigError(
            f"the {name} {shown(path)} cannot be used: {reason(error)}", hint="name a folder inside the root"
        ) from error
    return root


def _search_paths(files: str, arguments: argparse.Namespace, settings: config.Settings) -> tuple[str, ...]:
    """Return the folders in which a discovery searches FILES (``library``, ``binary`` or ``config``)."""
    explicit = getattr(arguments, f"{files}_search_path")
    for path in explicit or ():
        absolute(f"--{files}-search-path", path)
    return tuple(explicit or getattr(settings, f"{files}_search_paths"))
