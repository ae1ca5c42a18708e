"""``cdigen resolve``: which devices a container would get from the NRI plugin, and why."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError

from cdigen.cli import argument_checks, options, report
from cdigen.cli.nri import sources
from cdigen.frontend.host_state import read_host_state
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import is_device_name, is_kind
from cdigen.nri.decision.context import LIBRARY, context_of
from cdigen.nri.pods import Container, Pod
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostSources
    from cdigen.host.root import Root
    from cdigen.nri.decision.decide import Decision

EXAMPLES = """\
  cdigen resolve --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       what a container of this namespace gets
  cdigen resolve --env NVIDIA_VISIBLE_DEVICES=0 --env NVIDIA_REQUIRE_CUDA='cuda>=12.4'
                                       with a requirement of its image
  cdigen resolve --namespace ml --annotation devices.cdigen.dev/pod=nvidia.com/gpu=0
                                       what a pod's annotation gives
  cdigen resolve --json --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       the same for programs; exit 1: it would be refused
"""

EXIT_REFUSED = 1


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    asked = parser.add_argument_group("the container")
    asked.add_argument("--env", metavar="KEY=VALUE", action="append", help="a variable; repeat it")
    asked.add_argument(
        "--annotation", metavar="KEY=VALUE", action="append", help="an annotation of its pod; repeat it"
    )
    asked.add_argument("--label", metavar="KEY=VALUE", action="append", help="a label of its pod; repeat it")
    asked.add_argument(
        "--namespace",
        metavar="NAME",
        type=options.not_empty,
        default="default",
        help="the pod's (default: default)",
    )
    asked.add_argument("--runtime-handler", metavar="NAME", default="", help="the pod's (default: none)")
    asked.add_argument("--container", metavar="NAME", default="", help="the container's own name")
    asked.add_argument(
        "--device-node",
        metavar="PATH",
        type=_device_node,
        action="append",
        help="a device node that it has already; repeat it",
    )
    asked.add_argument(
        "--cdi-device",
        metavar="NAME",
        type=_cdi_device,
        action="append",
        help="a CDI device that it has already; repeat it",
    )
    options.add_root_options(parser)
    options.add_spec_dir_option(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where the daemon keeps its inventory"
    )
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    argument_checks.require_spec_directories(arguments)
    if arguments.run_dir:
        hint = "name the folder that holds the daemon's inventory.json"
        argument_checks.require_folders("--run-dir", [arguments.run_dir], hint=hint)
    state = read_host_state(_sources(arguments, host, settings), library=LIBRARY)
    context = context_of(state, settings)
    decision = context.decide(_pod(arguments), _container(arguments))
    if arguments.json:
        report.print_json(document(decision))
    else:
        _print(decision, arguments)
    report.print_findings(state.specs.problems, arguments)
    return EXIT_REFUSED if decision.outcome == "refuse" else 0


def document(decision: Decision) -> dict[str, object]:
    """Return DECISION as the JSON document of ``--json``. Pure."""
    return {
        "outcome": decision.outcome,
        "devices": list(decision.devices),
        "cause": decision.cause,
        "reason": decision.reason,
        "chosen": [
            {"device": choice.device, "asked": choice.token, "by": choice.origin}
            for choice in decision.choices
        ],
        "notes": [{"cause": note.cause, "text": note.text} for note in decision.notes],
    }


def _print(decision: Decision, arguments: Namespace) -> None:
    if decision.choices:
        cells = [(choice.device, choice.token, choice.origin) for choice in decision.choices]
        report.write(sys.stdout, report.table(cells, header=("DEVICE", "ASKED FOR AS", "BY")))
    else:
        report.write(sys.stdout, f"{shown(_SAID[decision.outcome].format(decision))}\n")
    for note in decision.notes:
        report.print_note(shown(note.text), arguments)


_SAID = {
    "nothing": "no devices: the container asks for nothing that counts",
    "served": "no devices: the container has them already",
    "refuse": "refused: {0.reason} [{0.cause}]",
}


def _sources(arguments: Namespace, host: Root, settings: Settings) -> HostSources:
    """Return where the plugin would look, with the inventory of the run directory that was given."""
    found = sources(arguments, host, settings)
    if arguments.run_dir:
        return replace(found, runs="/", run_dir=os.path.abspath(arguments.run_dir))
    return found


def _pod(arguments: Namespace) -> Pod:
    return Pod(
        id="",
        name="",
        namespace=arguments.namespace,
        runtime_handler=arguments.runtime_handler,
        labels=_mapping("--label", arguments.label),
        annotations=_mapping("--annotation", arguments.annotation),
    )


def _container(arguments: Namespace) -> Container:
    return Container(
        id="",
        pod_id="",
        name=arguments.container,
        annotations={},
        env=tuple(_pairs("--env", arguments.env)),
        mounts=(),
        devices=tuple(arguments.device_node or ()),
        cdi_devices=tuple(arguments.cdi_device or ()),
    )


def _device_node(text: str) -> str:
    if not text.startswith("/"):
        raise ArgumentTypeError(f"{shown(text)!r} is not an absolute path, such as /dev/nvidia0")
    return text


def _cdi_device(text: str) -> str:
    kind, _, name = text.partition("=")
    if not (is_kind(kind) and is_device_name(name)):
        raise ArgumentTypeError(f"{shown(text)!r} is not the name of a device, such as nvidia.com/gpu=0")
    return text


def _mapping(option: str, argument_checks: list[str] | None) -> dict[str, str]:
    pairs = (text.partition("=") for text in _pairs(option, argument_checks))
    return {name: value for name, _, value in pairs}


def _pairs(option: str, argument_checks: list[str] | None) -> Iterable[str]:
    for text in argument_checks or ():
        if text.find("=") < 1:
            raise ConfigError(
                f"{option} {shown(text)!r} is not KEY=VALUE", hint="see 'cdigen resolve --help'"
            )
        yield text
