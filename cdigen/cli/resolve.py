"""``cdigen resolve``: which devices a container would get from the NRI plugin, and why."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError

from cdigen.cli import argument_checks, options, report
from cdigen.cli.front_end_sources import sources
from cdigen.cli.image_config import read_image_config
from cdigen.frontend.host_state import read_host_state
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import is_device_name, is_kind
from cdigen.nri.decision.context import LIBRARY, cache_for, context_of
from cdigen.nri.decision.image import judged
from cdigen.nri.decision.refusal import quote
from cdigen.nri.pods import Container, ContainerMount, Pod
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cdigen.config import Settings
    from cdigen.frontend.host_state import HostSources
    from cdigen.host.root import Root
    from cdigen.nri.decision.decide import Decision
    from cdigen.nri.decision.image import Judgement

EXAMPLES = """\
  cdigen resolve --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       what a container of this namespace gets
  cdigen resolve --env NVIDIA_VISIBLE_DEVICES=0 --env NVIDIA_REQUIRE_CUDA='cuda>=12.4'
                                       with a requirement of its image
  cdigen resolve --namespace ml --annotation devices.cdigen.dev/pod=nvidia.com/gpu=0
                                       what a pod's annotation gives
  cdigen resolve --namespace ml --mount /dev/null:/var/run/nvidia-container-devices/0
                                       what a device list by volume mounts gives
  podman image inspect cuda:12.4 | cdigen resolve --namespace ml --image-config -
                                       what its image asks for and requires: variables, and
                                       the labels of nvidia-docker 1.0; exit 1: it is not met
  cdigen resolve --json --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       the same for programs; exit 1: it would be refused
"""

EXIT_REFUSED = 1


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    asked = parser.add_argument_group("the container")
    asked.add_argument("--env", metavar="KEY=VALUE", action="append", help="a variable; repeat it")
    asked.add_argument(
        "--image-config",
        metavar="FILE",
        type=options.not_empty,
        help="what 'podman image inspect' or 'docker image inspect' prints of its image (-: standard input); "
        "--env counts over its variables",
    )
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
        "--mount",
        metavar="SOURCE:PATH",
        type=_mount,
        action="append",
        help="a mount of SOURCE, a path of the host, at PATH; repeat it",
    )
    asked.add_argument("--privileged", action="store_true", help="it is privileged")
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
    sources = _sources(arguments, host, settings)
    state = read_host_state(sources, library=LIBRARY, cache=cache_for(settings))
    context = context_of(state, settings)
    container = _container(arguments)
    if arguments.image_config is None:
        decision, judgements = context.decide(_pod(arguments), container), None
    else:
        image = read_image_config(arguments.image_config)
        container = replace(container, env=(*image.requests, *container.env))
        decision, judgements = judged(
            context.decide(_pod(arguments), container),
            image,
            container.env,
            policy=context.policy,
            machine=context.machine,
        )
    if arguments.json:
        report.print_json(document(decision, judgements))
    else:
        _print(decision, arguments)
        _print_judgements(judgements or ())
    report.print_findings(state.specs.problems, arguments)
    return EXIT_REFUSED if decision.outcome == "refuse" else 0


def document(decision: Decision, judgements: Iterable[Judgement] | None = None) -> dict[str, object]:
    """Return DECISION as the JSON document of ``--json``, with the JUDGEMENTS on an image. Pure."""
    rows = [
        {"by": row.origin, "text": row.text, "met": row.is_met, "has": row.has} for row in judgements or ()
    ]
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
        **({} if judgements is None else {"requirements": rows}),
    }


def _print(decision: Decision, arguments: Namespace) -> None:
    if decision.choices:
        cells = [(choice.device, choice.token, choice.origin) for choice in decision.choices]
        report.write(sys.stdout, report.table(cells, header=("DEVICE", "ASKED FOR AS", "BY")))
    else:
        report.write(sys.stdout, f"{shown(_SAID[decision.outcome].format(decision))}\n")
    for note in decision.notes:
        report.print_note(shown(note.text), arguments)


def _print_judgements(judgements: Iterable[Judgement]) -> None:
    cells = [
        (row.origin, quote(row.text).strip("'"), "yes" if row.is_met else "no", row.has) for row in judgements
    ]
    if cells:
        header = ("REQUIRED BY", "WHAT", "MET", "THE HOST HAS")
        report.write(sys.stdout, f"\n{report.table(cells, header=header)}")


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
        mounts=tuple(arguments.mount or ()),
        devices=tuple(arguments.device_node or ()),
        cdi_devices=tuple(arguments.cdi_device or ()),
        may_use_all_devices=arguments.privileged,
    )


def _mount(text: str) -> ContainerMount:
    source, _, destination = text.partition(":")
    if not (source.startswith("/") and destination.startswith("/")):
        raise ArgumentTypeError(f"{shown(text)!r} is not SOURCE:PATH, such as /dev/null:/run/a")
    return ContainerMount(destination=destination, source=source, type="bind", options=())


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
