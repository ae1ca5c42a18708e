"""The command ``cdigen inspect``: show the inventory, as text or as JSON."""

from __future__ import annotations

import sys

from cdigen.cli.shared import argument_checks, discovery_options, options, report
from cdigen.cli.shared.daemon_files import daemon_inventory
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.spec_options import add_options as add_spec_options
from cdigen.cli.shared.spec_options import generate_options
from cdigen.host import mounts
from cdigen.model.errors import ConfigError, HostError
from cdigen.model.findings import errors
from cdigen.model.inventory_json import to_document
from cdigen.pipeline import discovery
from cdigen.pipeline.driver import links
from cdigen.pipeline.driver.cuda import CudaVersions, cuda_of
from cdigen.pipeline.fit import unknown_releases
from cdigen.pipeline.naming import require_kinds
from cdigen.service.daemon_inventory import with_health
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from cdigen.model.findings import Finding
    from cdigen.model.inventory import Accelerator, HostNode, Inventory, Partition
    from cdigen.vendors.context import DiscoveryContext

EXAMPLES = """\
  cdigen inspect                       the devices and files of the host, and missing files
  cdigen inspect --json > host.json    for a bug report; 'generate --inventory host.json' reads it
  cdigen inspect --stats               statistics of the devices: memory, utilization, processes
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--stats")
    add_spec_options(parser, note="The options of generate. They are checked, but do not change the output.")
    add(parser, "--spec-dir")
    discovery_options.add_discovery_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    spec_options = generate_options(arguments, settings)  # reports invalid options, as generate does
    if spec_options.target is not None:
        report.print_findings(unknown_releases(spec_options.target), arguments)
    names = discovery_options.vendor_names(arguments, settings)
    failures: dict[str, HostError] = {}
    argument_checks.note_missing_spec_directories(arguments)
    context: DiscoveryContext | None = None
    others: list[str] = []
    defects: tuple[Finding, ...] = ()
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)
        if arguments.stats:
            raise ConfigError(
                "--stats reads the devices now, but --inventory is an earlier state of a host",
                hint="omit --stats or --inventory",
            )
        inventories = discovery_options.read_inventory(arguments.inventory, names)
    else:
        context = here = discovery_options.context(arguments, host, settings)
        inventories, failures = discovery_options.discover(arguments, settings, context)
        others = [name for name in names if name not in inventories and name not in failures]
        known = daemon_inventory(host, settings)
        inventories = with_health(links.with_known_links(inventories, context), known)
        if not arguments.stats:
            versions = CudaVersions()
            versions.store(kept for vendor in inventories if (kept := known.of(vendor)[0]) is not None)
            inventories, defects = versions.refreshed(inventories, lambda: here)
    if failures and (arguments.strict or not inventories):
        report.print_findings(mounts.findings(host.outer, ()), arguments)
        raise next(iter(failures.values()))
    require_kinds(spec_options.kinds, inventories, spec_options.profiles, names=names)
    findings = [
        *(mounts.findings(host.outer, ()) if context is not None else ()),
        *discovery.without_driver(others, host),
        *defects,
        *(finding for inventory in inventories.values() for finding in inventory.findings),
    ]
    incomplete = errors(findings) if arguments.strict else ()
    if arguments.json and incomplete:
        pass  # the raised error is the only JSON document
    elif arguments.stats and context is not None:
        from cdigen.cli.specs import stats  # noqa: PLC0415 - only with --stats

        stats.show(arguments, context, inventories, spec_options.profiles)
    elif arguments.json:
        report.print_json(to_document(inventories))
    else:
        report.write(sys.stdout, "\n".join(map(_text, inventories.values())))
    report.print_findings((*discovery_options.findings_of(failures), *findings), arguments)
    if incomplete:
        raise HostError(incomplete[0].message, hint=incomplete[0].hint, kind="incomplete")
    return 0


def _text(inventory: Inventory) -> str:
    driver = inventory.driver
    flavour = f" ({driver.flavour} kernel module)" if driver.flavour else ""
    version = cuda_of({inventory.vendor: inventory})
    cuda = f", CUDA {version}" if version else ""
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


def _accelerators(inventory: Inventory) -> str:
    """Return the table of accelerators. It omits CLASS if all are GPUs, and UUID if no naming uses UUIDs."""
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
    omitted = {"CLASS"} if {gpu.device_class for gpu in inventory.accelerators} == {"gpu"} else set()
    if "uuid" not in registry.load(inventory.vendor).NAMINGS:
        omitted.add("UUID")
    columns = [column for column, name in enumerate(header) if name not in omitted]
    return report.table(
        [tuple(row[column] for column in columns) for row in rows],
        header=tuple(header[column] for column in columns),
    )


def _number(gpu: Accelerator) -> str:
    """Return the index of GPU, or the range of the numbers (``ordinal``) of its partitions.

    Only some vendors have tools that number the partitions of all devices in one sequence.
    """
    counted = [part.ordinal for part in gpu.partitions if part.ordinal is not None]
    return f"{min(counted)}-{max(counted)}" if len(counted) > 1 else str(gpu.index)


def _naming(inventory: Inventory) -> str:
    """Return a line with the form of the CDI names of each device class."""
    classes = dict.fromkeys(gpu.device_class for gpu in inventory.accelerators)
    has_whole = not all(gpu.partitioned for gpu in inventory.accelerators)
    has_partitions = any(gpu.partitions for gpu in inventory.accelerators)
    words = [*(["INDEX"] if has_whole else []), *(["PARTITION"] if has_partitions else [])] or ["INDEX"]
    names = [f"{registry.cdi_vendor(inventory.vendor)}/{each}={' or '.join(words)}" for each in classes]
    return f"CDI names: {' and '.join(names)} ('cdigen list' prints all names).\n"


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
        (file.kind, _served(file.capabilities), file.weight, file.name, file.reason)
        for file in inventory.searched
        if not file.found
    ]


def _served(capabilities: tuple[str, ...]) -> str:
    return ",".join(capabilities) or "all"


def _paths(nodes: Iterable[HostNode]) -> str:
    # Other names of the same node (/dev/dri/by-path) add no information.
    first: dict[str, str] = {}
    for node in nodes:
        first.setdefault(node.host_path, node.path)
    return " ".join(first.values()) or "-"


def _state(gpu: Accelerator) -> str:
    if not gpu.usable:
        return _together(f"left out: {gpu.problem}", gpu)
    return _together("offered as its partitions" if gpu.partitioned else "", gpu)


def _together(state: str, device: Accelerator | Partition) -> str:
    """Return STATE and the health of DEVICE in the daemon's inventory."""
    causes = ", ".join(f"{cause.cause} since {cause.since}" for cause in device.causes)
    return "; ".join(filter(None, (state, f"unhealthy: {causes}" if causes else "")))
