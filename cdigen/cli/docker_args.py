"""``cdigen docker-args``: the arguments of 'docker run' that give a container devices."""

from __future__ import annotations

import sys

from cdigen.cli import argument_checks, discovery_options, options, report
from cdigen.model.errors import ConfigError, HostError
from cdigen.pipeline.arguments import FORMS, InvalidChoiceError, chosen, offers
from cdigen.pipeline.arguments import arguments as docker_arguments
from cdigen.store.views.volumes import volumes
from cdigen.topology.matrix import devices_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory

EXAMPLES = """\
  cdigen docker-args 0 1               the first two GPUs, by their CDI names: for
                                       docker run $(cdigen docker-args 0 1) IMAGE
  cdigen docker-args --form classic    all devices, for a Docker that does not know CDI
  cdigen docker-args GPU-1a2b          by the beginning of a UUID
  cdigen docker-args amd.com/gpu=0 --json
                                       by a CDI name, for programs
"""

# So many devices are named in a hint.
_MOST = 8


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "gpus",
        metavar="GPU",
        nargs="*",
        help="a number as in 'cdigen topology' and /gpu/info, a UUID or how it begins (GPU-...), a PCI "
        "address or a CDI name (default: all)",
    )
    parser.add_argument(
        "--form",
        choices=FORMS,
        default="cdi",
        help="CDI names, or what engines without CDI take: nodes, groups and a volume (default: cdi)",
    )
    discovery_options.add_discovery_options(parser)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    inventories = _inventories(arguments, host, settings)
    offered = offers(inventories, settings.offered_profiles, devices_of(inventories))
    if not offered:
        raise HostError(
            "no device of this host can be given by itself",
            hint="see 'cdigen list' for the names that there are",
            kind="no-gpu",
        )
    state_dir = options.outer_directory(host, settings.state_dir)
    known = volumes(state_dir, host) if arguments.form == "classic" else {}
    try:
        wanted = docker_arguments(chosen(offered, arguments.gpus), arguments.form, known)
    except InvalidChoiceError as error:
        names = ", ".join(dict.fromkeys(f"{offer.number} ({offer.name})" for offer in offered[:_MOST]))
        raise ConfigError(str(error), hint=f"there are {names}{', ...' if offered[_MOST:] else ''}") from None
    if arguments.json:
        report.print_json(
            {
                "form": arguments.form,
                "arguments": list(wanted.options()),
                "devices": list(wanted.devices),
                "volumes": list(wanted.volumes),
                "groups": list(wanted.groups),
            }
        )
    else:
        report.write(sys.stdout, f"{' '.join(wanted.options())}\n")
    return 0


def _inventories(arguments: Namespace, host: Root, settings: Settings) -> dict[str, Inventory]:
    names = discovery_options.vendor_names(arguments, settings)
    if arguments.inventory is not None:
        argument_checks.refuse_beside_inventory(arguments)
        if arguments.form == "classic":
            raise ConfigError(
                "--inventory is a document, and the classic form names a volume of this host",
                hint="leave --inventory away, or ask for --form cdi",
            )
        return discovery_options.read_inventory(arguments.inventory, names)
    context = discovery_options.context(arguments, host, settings)
    argument_checks.require_sources(arguments, context)
    inventories, failures = discovery_options.discover(arguments, settings, context)
    report.print_findings(discovery_options.defects(failures), arguments)
    if failures and (arguments.strict or not inventories):
        raise next(iter(failures.values()))
    return inventories
