"""Options of commands that discover devices, and what these options name: context, vendors, inventory."""

from __future__ import annotations

import argparse

from cdigen import config
from cdigen.cli.options import absolute, add_root_options, not_empty, outer_directory, read_input
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import ConfigError
from cdigen.model.findings import Finding
from cdigen.vendors.base import DiscoveryContext
from cdigen.vendors.registry import NAMES, VENDORS, require_distinct_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.errors import HostError
    from cdigen.model.inventory import Inventory
    from cdigen.model.known_links import KnownLinks
    from cdigen.model.partition_names import GpuPartitionNames

MAX_INVENTORY = 64 << 20


def add_discovery_options(parser: argparse.ArgumentParser, *, takes_inventory: bool = True) -> None:
    """Add the options of the commands that look at the host.

    Without TAKES_INVENTORY, the help says nothing of the option that ``refuse_inventory`` refuses.
    """
    add_root_options(parser)
    group = parser.add_argument_group("where to look")
    group.add_argument(
        "--vendor",
        metavar="NAME",
        action="append",
        choices=NAMES,
        help=f"only this vendor: {', '.join(VENDORS)}, or one that another package adds",
    )
    group.add_argument(
        "--driver-root", metavar="DIR", help="the driver's files lie below DIR (a driver container)"
    )
    group.add_argument("--dev-root", metavar="DIR", help="the device nodes lie below DIR")
    group.add_argument(
        "--library-search-path", metavar="DIR", action="append", help="look for libraries only here"
    )
    group.add_argument(
        "--binary-search-path", metavar="DIR", action="append", help="look for programs only here"
    )
    group.add_argument(
        "--config-search-path", metavar="DIR", action="append", help="look for data files only here"
    )
    group.add_argument("--mode", choices=config.MODES, help="what the host is taken for (default: auto)")
    group.add_argument(
        "--nvml",
        metavar="auto|off|PATH",
        type=not_empty,
        help="whether NVML is asked for what /proc and /sys lack",
    )
    group.add_argument(
        "--inventory",
        metavar="FILE",
        type=not_empty,
        help="an inventory ('cdigen inspect --json') instead of a host"
        if takes_inventory
        else argparse.SUPPRESS,
    )
    group.add_argument(
        "--strict", action="store_true", help="fail if any requested vendor has nothing or is not complete"
    )


def refuse_inventory(arguments: argparse.Namespace) -> None:
    """Raise ConfigError where an inventory was given to a command that is for a host that lives."""
    if arguments.inventory is not None:
        raise ConfigError(
            "--inventory is a document, and this command is about a host as it is now",
            hint="see 'cdigen generate --inventory'",
        )


def context(arguments: argparse.Namespace, host: Root, settings: config.Settings) -> DiscoveryContext:
    """Return where vendors are to look; every path lies inside the root."""
    driver_root = absolute("--driver-root", arguments.driver_root) or settings.driver_root
    driver = _below(host, driver_root, "driver root")
    dev_root = absolute("--dev-root", arguments.dev_root) or settings.dev_root
    # A driver container may hold the nodes, or leave them, or some of them, to the host.
    usual = driver if _has_gpu_nodes(driver) else host
    dev = _below(host, dev_root, "dev root") if dev_root else usual
    return DiscoveryContext(
        host=host,
        driver=driver,
        dev=dev,
        library_search_paths=_paths(
            "--library-search-path", arguments.library_search_path, settings.library_search_paths
        ),
        binary_search_paths=_paths(
            "--binary-search-path", arguments.binary_search_path, settings.binary_search_paths
        ),
        config_search_paths=_paths(
            "--config-search-path", arguments.config_search_path, settings.config_search_paths
        ),
        mode=arguments.mode or settings.mode,
        nvml=_nvml(arguments.nvml or settings.nvml, driver),
        compat32=any(profile.compat32 for profile in settings.profiles),
        mps_pipe_dir=settings.mps_pipe_dir if any(profile.mps for profile in settings.profiles) else "",
        mps_uid=settings.mps_uid,
        options=_vendor_options(settings),
        partition_names=lambda: _partition_names(host, settings),
        known_links=lambda: _known_links(host, settings),
    )


def _vendor_options(settings: config.Settings) -> Mapping[str, Mapping[str, bool | str]]:
    """Return what is configured; the kind of administrators is also offered where they alone may have it."""
    if not settings.nri.management_namespaces:
        return settings.vendor_options
    from cdigen.vendors.nvidia.families import MANAGEMENT_KIND  # noqa: PLC0415 - only for them
    from cdigen.vendors.nvidia.options import MANAGEMENT  # noqa: PLC0415

    # A configuration with a list of its own may keep from others only what it names.
    if not config.matches(MANAGEMENT_KIND, settings.nri.management_kinds):
        return settings.vendor_options

    configured = settings.vendor_options.get("nvidia", {})
    return {**settings.vendor_options, "nvidia": {MANAGEMENT.name: True, **configured}}


def _partition_names(host: Root, settings: config.Settings) -> tuple[GpuPartitionNames, ...]:
    from cdigen.store.partition_names import read  # noqa: PLC0415 - few hosts have partitions

    return read(outer_directory(host, settings.state_dir), host)


def _known_links(host: Root, settings: config.Settings) -> tuple[KnownLinks, ...]:
    from cdigen.store.known_links import read  # noqa: PLC0415 - few hosts have several GPUs of NVIDIA's

    return read(outer_directory(host, settings.state_dir), host)


def _has_gpu_nodes(root: Root) -> bool:
    nodes = (name.removeprefix("nvidia") for name in root.names("/dev") if name.startswith("nvidia"))
    return any(number.isascii() and number.isdigit() for number in nodes)


def _nvml(wanted: str, driver: Root) -> str:
    """Return whether NVML may be asked: by itself only that of this machine's own driver.

    It answers for the machine that runs, and to load a library is to run its code as root.
    """
    if wanted == "auto":
        own = driver.is_this_machine and not driver.seen_at
        return "auto" if own else "off"
    if wanted != "off" and not wanted.startswith("/"):
        raise ConfigError(f"--nvml {shown(wanted)!r} is not auto, off or an absolute path")
    return wanted


def vendor_names(arguments: argparse.Namespace, settings: config.Settings) -> tuple[str, ...]:
    """Return the vendors to ask: those named, else those configured, else all; raises ConfigError."""
    names = tuple(dict.fromkeys(arguments.vendor or settings.vendors or VENDORS))
    require_distinct_kinds(names)
    return names


def are_vendors_named(arguments: argparse.Namespace, settings: config.Settings) -> bool:
    """Return whether somebody named the vendors to ask."""
    return bool(arguments.vendor or settings.vendors)


def discover(
    arguments: argparse.Namespace, settings: config.Settings, where: DiscoveryContext
) -> tuple[dict[str, Inventory], dict[str, HostError]]:
    """Read the inventory of each vendor to ask; of those that nobody named, what is worth telling."""
    from cdigen.pipeline import discovery  # noqa: PLC0415 - most of the commands with these options have it anyway

    inventories, failures = discovery.discover(vendor_names(arguments, settings), where)
    if not are_vendors_named(arguments, settings):
        failures = discovery.relevant_failures(inventories, failures, where.host)
    return inventories, failures


def defects(failures: dict[str, HostError]) -> tuple[Finding, ...]:
    """Return which vendors' code has failed, or wants others' nodes: told although others are served."""
    return tuple(
        Finding(severity="error", rule=error.kind, path=name, message=error.message, hint=error.hint)
        for name, error in failures.items()
        if error.kind in {"vendor-defect", "node-claimed-twice", "node-impossible"}
    )


def read_inventory(file: str, names: tuple[str, ...]) -> dict[str, Inventory]:
    """Return the inventories of the vendors NAMES in the document FILE (``-``: standard input)."""
    import json  # noqa: PLC0415 - only where a document is read

    from cdigen.model.inventory_json import from_document  # noqa: PLC0415 - likewise

    data = read_input(file, limit=MAX_INVENTORY)
    hint = "make it with 'cdigen inspect --json'"
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{shown(file)} is not JSON: {error}", hint=hint, kind="inventory") from None
    inventories = from_document(document)
    if unknown := sorted(name for name in inventories if name not in NAMES):
        raise ConfigError(
            f"the inventory holds the unknown vendor {unknown[0]!r}", hint=hint, kind="inventory"
        )
    return {name: inventories[name] for name in names if name in inventories}


def _below(host: Root, path: str, what: str) -> Root:
    try:
        root = host.below(path)
        root.listdir("/")
    except OSError as error:
        raise ConfigError(
            f"the {what} {shown(path)} cannot be used: {reason(error)}", hint="name a folder inside the root"
        ) from error
    return root


def _paths(option: str, given: list[str] | None, configured: tuple[str, ...]) -> tuple[str, ...]:
    for path in given or ():
        absolute(option, path)
    return tuple(given or configured)
