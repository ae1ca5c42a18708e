"""The command ``cdigen docker-args``: the arguments of 'docker run' that add devices to a container."""

from __future__ import annotations

import sys

from cdigen.cli.shared import argument_checks, discovery_options, options, report
from cdigen.cli.shared.option_table import add
from cdigen.model.errors import ConfigError, HostError
from cdigen.model.findings import errors, finding_of
from cdigen.pipeline.arguments import (
    InvalidChoiceError,
    named_devices,
    select_devices,
    skipped_kinds,
    withheld_errors,
)
from cdigen.pipeline.arguments import arguments as docker_arguments
from cdigen.store.views.volumes import volumes
from cdigen.topology.matrix import devices_of
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.errors import WithheldError
    from cdigen.model.inventory import Inventory

EXAMPLES = """\
  cdigen docker-args 0 1               the first two GPUs, by their CDI names, for use in
                                       docker run $(cdigen docker-args 0 1) IMAGE
  cdigen docker-args --form classic    all devices, for a Docker without CDI
  cdigen docker-args GPU-1a2b          a GPU by the beginning of its UUID
  cdigen docker-args amd.com/gpu=0 --json
                                       a GPU by a CDI name, as JSON
"""

# The maximum number of devices in a hint.
_MOST = 8


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "gpus",
        metavar="GPU",
        nargs="*",
        help="a number from 'cdigen topology' or /gpu/info, a UUID or its beginning (GPU-...), a PCI "
        "address or a CDI name (default: all)",
    )
    add(parser, "--form")
    discovery_options.add_discovery_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    inventories = _inventories(arguments, host, settings)
    numbered = [device.accelerator for device in devices_of(inventories)]
    devices = named_devices(inventories, settings.effective_profiles, numbered)
    withheld = withheld_errors(inventories, settings.effective_profiles)
    if not devices:
        found = (finding for inventory in inventories.values() for finding in errors(inventory.findings))
        report.print_findings(found, arguments)
        for error in withheld.values():
            raise error
        raise HostError(
            "this host has no usable device with a CDI name",
            hint="'cdigen list' prints the existing names",
            kind="no-gpu",
        )
    state_dir = options.outer_directory(host, settings.state_dir)
    known = volumes(state_dir, host) if arguments.form == "classic" else {}
    try:
        selected = select_devices(devices, arguments.gpus)
        result = docker_arguments(selected, arguments.form, known)
    except InvalidChoiceError as error:
        if (kind := error.word.partition("=")[0]) in withheld:
            raise withheld[kind] from None
        _warn(withheld.values(), arguments)
        names = ", ".join(dict.fromkeys(f"{one.number} ({one.name})" for one in devices[:_MOST]))
        more = ", ..." if devices[_MOST:] else ""
        raise ConfigError(str(error), hint=f"available: {names}{more}") from None
    by_kind = {word.partition("=")[0] for word in arguments.gpus if "=" in word}
    others = (device for device in selected if device.draft.kind not in by_kind)
    kinds = dict.fromkeys(kind for device in others for kind in skipped_kinds(device, withheld))
    _warn((withheld[kind] for kind in kinds), arguments)
    if arguments.json:
        report.print_json(
            {
                "form": arguments.form,
                "arguments": list(result.options()),
                "devices": list(result.devices),
                "volumes": list(result.volumes),
                "groups": list(result.groups),
            }
        )
    else:
        report.write(sys.stdout, f"{' '.join(result.options())}\n")
    return 0


def _warn(withheld: Iterable[WithheldError], arguments: Namespace) -> None:
    """Print each error in WITHHELD as a warning. The error is the reason why a kind is unavailable."""
    findings = (replace(finding_of(error, "$"), severity="warning") for error in withheld)
    report.print_findings(findings, arguments)


def _inventories(arguments: Namespace, host: Root, settings: Settings) -> dict[str, Inventory]:
    names = discovery_options.vendor_names(arguments, settings)
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)
        if arguments.form == "classic":
            raise ConfigError(
                "--inventory is a document, but the classic form needs a volume of this host",
                hint="omit --inventory, or use --form cdi",
            )
        return discovery_options.read_inventory(arguments.inventory, names)
    context = discovery_options.context(arguments, host, settings)
    return discovery_options.usable_inventories(arguments, settings, context)
