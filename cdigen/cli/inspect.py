"""``cdigen inspect``: show the inventory, as text or as JSON."""

from __future__ import annotations

import sys

from cdigen.cli import argument_checks, discovery_options, options, report
from cdigen.cli.daemon_files import daemon_inventory
from cdigen.cli.spec_options import add_options as add_spec_options
from cdigen.cli.spec_options import generate_options
from cdigen.frontend.daemon_inventory import with_health
from cdigen.host import mounts
from cdigen.model.errors import ConfigError, HostError
from cdigen.model.findings import errors
from cdigen.model.inventory_json import to_document
from cdigen.pipeline import links
from cdigen.pipeline.cuda import VENDOR, CudaVersions, with_cuda
from cdigen.pipeline.fit import unknown_releases
from cdigen.pipeline.naming import require_kinds
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from cdigen.frontend.host_state import HostInventory
    from cdigen.model.inventory import Accelerator, HostNode, Inventory, Partition
    from cdigen.vendors.base import DiscoveryContext

EXAMPLES = """\
  cdigen inspect                       what is there, and what was looked for and not found
  cdigen inspect --json > host.json    for a bug report; 'generate --inventory host.json' reads it
  cdigen inspect --figures             what the devices do: memory, utilization, power, processes
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "--figures",
        action="store_true",
        help="show what the devices do instead: memory, utilization, temperature, power, processes",
    )
    add_spec_options(
        parser, note="As for generate, and checked; the inventory is the same whatever they say."
    )
    options.add_spec_dir_option(parser)
    discovery_options.add_discovery_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    spec_options = generate_options(arguments, settings)  # what generate would refuse is refused here as well
    if spec_options.target is not None:
        report.print_findings(unknown_releases(spec_options.target), arguments)
    names = discovery_options.vendor_names(arguments, settings)
    failures: dict[str, HostError] = {}
    argument_checks.note_missing_spec_directories(arguments)
    context = None
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)
        if arguments.figures:
            raise ConfigError(
                "--figures shows what devices do now, and --inventory is what a host had",
                hint="leave one of them out",
            )
        inventories = discovery_options.read_inventory(arguments.inventory, names)
    else:
        context = discovery_options.context(arguments, host, settings)
        argument_checks.require_sources(arguments, context)
        inventories, failures = discovery_options.discover(arguments, settings, context)
        known = daemon_inventory(host, settings)
        inventories = with_health(links.with_known(inventories, context), known)
        if not arguments.figures:
            inventories = _with_cuda(inventories, known, context)
    if failures and (arguments.strict or not inventories):
        report.print_findings(mounts.findings(host.outer, ()), arguments)
        raise next(iter(failures.values()))
    require_kinds(spec_options.kinds, inventories, spec_options.profiles, names=names)
    findings = [
        *(mounts.findings(host.outer, ()) if context is not None else ()),
        *(finding for inventory in inventories.values() for finding in inventory.findings),
    ]
    incomplete = errors(findings) if arguments.strict else ()
    if arguments.json and incomplete:
        pass  # the error is the document
    elif arguments.figures and context is not None:
        from cdigen.cli import figures  # noqa: PLC0415 - few ask for them

        figures.show(arguments, context, inventories, spec_options.profiles)
    elif arguments.json:
        report.print_json(to_document(inventories))
    else:
        report.write(sys.stdout, "\n".join(map(_text, inventories.values())))
    report.print_findings((*discovery_options.defects(failures), *findings), arguments)
    if incomplete:
        raise HostError(incomplete[0].message, hint=incomplete[0].hint, kind="incomplete")
    return 0


def _with_cuda(
    inventories: dict[str, Inventory], known: HostInventory, context: DiscoveryContext
) -> dict[str, Inventory]:
    """Return INVENTORIES with the CUDA of the driver: the daemon's word where that is KNOWN, else its own."""
    own, kept = inventories.get(VENDOR), known.of(VENDOR)[0]
    told = kept.driver.cuda if kept is not None else None
    if own is not None and kept is not None and told and kept.driver.version == own.driver.version:
        return with_cuda(inventories, told)
    return CudaVersions().refreshed(inventories, lambda: context)


def _text(inventory: Inventory) -> str:
    driver = inventory.driver
    flavour = f" ({driver.flavour} kernel module)" if driver.flavour else ""
    cuda = _cuda(inventory) if inventory.vendor == VENDOR else ""
    parts = [f"{inventory.vendor}: driver {driver.version}{flavour}{cuda}, {driver.architecture}\n"]
    if inventory.accelerators:
        parts += [_accelerators(inventory), _naming(inventory)]
    tables: tuple[tuple[tuple[str, ...], Sequence[tuple[str, ...]]], ...] = (
        (("PARTITION", "PROFILE", "INSTANCE", "UUID", "NODES", ""), _partition_rows(inventory)),
        (("CLASS", "DEVICE", "NODES"), _group_rows(inventory)),
        (("SHARED NODE", "NUMBERS", "MODE", "ROLE"), _node_rows(inventory)),
        (("FOUND", "SERVES", "IN THE CONTAINER", "ON THE HOST"), _file_rows(inventory)),
        (("NOT FOUND", "WOULD SERVE", "WEIGHT", "NAME", "WHY"), _missing_rows(inventory)),
    )
    parts += [report.table(rows, header=header) for header, rows in tables if rows]
    return "\n".join(parts)


def _cuda(inventory: Inventory) -> str:
    from cdigen.vendors.nvidia.cuda import served  # noqa: PLC0415 - of this vendor alone

    version = served(inventory)
    return f", CUDA {version}" if version else ""


def _accelerators(inventory: Inventory) -> str:
    """Return the table of accelerators; the columns that would tell nothing of this host are left out."""
    rows = [
        (
            gpu.device_class,
            _number(gpu),
            gpu.address,
            gpu.model or "-",
            gpu.uuid or "-",
            _paths(gpu.nodes),
            _state(gpu),
        )
        for gpu in inventory.accelerators
    ]
    header = ("CLASS", "INDEX", "PCI ADDRESS", "MODEL", "UUID", "NODES", "")
    idle = {"CLASS"} if {gpu.device_class for gpu in inventory.accelerators} == {"gpu"} else set()
    if "uuid" not in registry.load(inventory.vendor).NAMINGS:
        idle.add("UUID")
    shown = [place for place, name in enumerate(header) if name not in idle]
    return report.table(
        [tuple(row[place] for place in shown) for row in rows], header=tuple(header[place] for place in shown)
    )


def _number(gpu: Accelerator) -> str:
    """Return the index of GPU, or where its partitions are counted among all devices, theirs."""
    counted = [part.ordinal for part in gpu.partitions if part.ordinal is not None]
    return f"{min(counted)}-{max(counted)}" if len(counted) > 1 else str(gpu.index)


def _naming(inventory: Inventory) -> str:
    """Say what the numbers are good for: names, each in the kind of its class."""
    classes = dict.fromkeys(gpu.device_class for gpu in inventory.accelerators)
    has_whole = not all(gpu.partitioned for gpu in inventory.accelerators)
    has_partitions = any(gpu.partitions for gpu in inventory.accelerators)
    words = [*(["INDEX"] if has_whole else []), *(["PARTITION"] if has_partitions else [])] or ["INDEX"]
    names = [f"{registry.cdi_vendor(inventory.vendor)}/{each}={' or '.join(words)}" for each in classes]
    return f"Devices are named {' and '.join(names)}, and more: see 'cdigen list'.\n"


def _partition_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    return [
        (
            f"{gpu.index}:{partition.label}" if partition.ordinal is None else str(partition.ordinal),
            partition.profile or "-",
            partition.instance,
            partition.uuid or "-",
            _paths(partition.nodes),
            _together("" if partition.usable else f"left out: {partition.problem}", partition),
        )
        for gpu in inventory.accelerators
        for partition in gpu.partitions
    ]


def _group_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    return [
        (group.device_class, device.name, _paths(device.nodes))
        for group in inventory.groups
        for device in group.devices
    ]


def _node_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    return [
        (node.path, f"{node.major}:{node.minor}", f"{node.mode:04o}", node.role) for node in inventory.nodes
    ]


def _file_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    return [
        (file.kind, _served(file.capabilities), " ".join(file.names or file.targets), file.host_path)
        for file in inventory.files
    ]


def _missing_rows(inventory: Inventory) -> list[tuple[str, ...]]:
    return [
        (thing.kind, _served(thing.capabilities), thing.weight, thing.name, thing.reason)
        for thing in inventory.sought
        if not thing.found
    ]


def _served(capabilities: tuple[str, ...]) -> str:
    return ",".join(capabilities) or "all"


def _paths(nodes: Iterable[HostNode]) -> str:
    # The same node under one more name (/dev/dri/by-path) tells nothing new.
    first: dict[str, str] = {}
    for node in nodes:
        first.setdefault(node.host_path, node.path)
    return " ".join(first.values()) or "-"


def _state(gpu: Accelerator) -> str:
    if not gpu.usable:
        return _together(f"left out: {gpu.problem}", gpu)
    return _together("offered as its partitions" if gpu.partitioned else "", gpu)


def _together(state: str, device: Accelerator | Partition) -> str:
    """Return STATE and what the daemon knows of the health of DEVICE."""
    causes = ", ".join(f"{cause.cause} since {cause.since}" for cause in device.causes)
    return "; ".join(filter(None, (state, f"unhealthy: {causes}" if causes else "")))
