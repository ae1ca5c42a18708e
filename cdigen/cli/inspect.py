"""``cdigen inspect``: the inventory, for people or as JSON."""

from __future__ import annotations

import sys

from cdigen import reconcile
from cdigen.cli import options, report
from cdigen.model.errors import HostError
from cdigen.model.findings import errors
from cdigen.model.inventory_json import to_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.model.inventory import Inventory

EXAMPLES = """\
  cdigen inspect                       what is there, and what was looked for and not found
  cdigen inspect --json > host.json    for a bug report; 'generate --inventory host.json' reads it
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    options.add_discovery_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    names = options.vendor_names(arguments, settings)
    failures: dict[str, HostError] = {}
    if arguments.inventory is not None:
        inventories = options.recorded(arguments.inventory, names)
    else:
        inventories, failures = reconcile.discover(names, options.places(arguments, host, settings))
    if failures and (arguments.strict or not inventories):
        raise next(iter(failures.values()))
    if arguments.json:
        report.print_json(to_document(inventories))
    else:
        for inventory in inventories.values():
            report.write(sys.stdout, _text(inventory))
    for inventory in inventories.values():
        report.say(inventory.findings, arguments)
        if arguments.strict and (wrong := errors(inventory.findings)):
            raise HostError(wrong[0].message, hint=wrong[0].hint, kind="incomplete")
    return 0


def _text(inventory: Inventory) -> str:
    driver = inventory.driver
    flavour = f" ({driver.flavour} kernel module)" if driver.flavour else ""
    parts = [f"{inventory.vendor}: driver {driver.version}{flavour}, {driver.architecture}\n"]
    gpus = [
        (
            str(gpu.index),
            gpu.address,
            gpu.model or "-",
            gpu.uuid or "-",
            " ".join(node.path for node in gpu.nodes) or "-",
            "" if gpu.usable else f"left out: {gpu.problem}",
        )
        for gpu in inventory.accelerators
    ]
    header = ("INDEX", "PCI ADDRESS", "MODEL", "UUID", "NODES", "")
    parts.append(report.table(gpus, header=header))
    parts.append(
        "The index counts the driver's GPUs in the order of their PCI addresses, as nvidia-smi does.\n"
    )
    nodes = [
        (node.path, f"{node.major}:{node.minor}", f"{node.mode:04o}", node.role) for node in inventory.nodes
    ]
    parts.append(report.table(nodes, header=("SHARED NODE", "NUMBERS", "MODE", "ROLE")))
    files = [
        (
            file.kind,
            ",".join(file.capabilities) or "all",
            " ".join(file.names or file.targets),
            file.host_path,
        )
        for file in inventory.files
    ]
    parts.append(report.table(files, header=("FOUND", "SERVES", "IN THE CONTAINER", "ON THE HOST")))
    missing = [
        (thing.kind, ",".join(thing.capabilities) or "all", thing.weight, thing.name, thing.reason)
        for thing in inventory.sought
        if not thing.found
    ]
    parts.append(report.table(missing, header=("NOT FOUND", "WOULD SERVE", "WEIGHT", "NAME", "WHY")))
    return "\n".join(parts)
