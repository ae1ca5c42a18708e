"""``cdigen resolve``: which devices a container with such a wish would get from the NRI plugin, and why."""

from __future__ import annotations

import os
import sys

from cdigen.cli import options, report
from cdigen.host.root import Root, shown
from cdigen.model.errors import ConfigError
from cdigen.nri.decide import decide
from cdigen.nri.machine import Machine, read
from cdigen.nri.pods import Container, Pod
from cdigen.nri.policy import policy_of
from cdigen.nri.select import Names
from cdigen.runtimes.resolve import Shelf
from cdigen.runtimes.users import ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable

    from cdigen.config import Settings
    from cdigen.nri.decide import Decision
    from cdigen.runtimes.resolve import View

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
# That of containerd 2.1 and CRI-O 1.33, the first that take CDI devices from a plugin, or nearly so.
LIBRARY = "1.0.1"
INVENTORY = "inventory.json"
RUNNING_DRIVER = "/sys/module/nvidia/version"
_MAX_VERSION = 256


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    asked = parser.add_argument_group("the container")
    asked.add_argument("--env", metavar="KEY=VALUE", action="append", help="a variable; repeat it")
    asked.add_argument(
        "--annotation", metavar="KEY=VALUE", action="append", help="an annotation of its pod; repeat it"
    )
    asked.add_argument("--label", metavar="KEY=VALUE", action="append", help="a label of its pod; repeat it")
    asked.add_argument("--namespace", metavar="NAME", default="default", help="the pod's (default: default)")
    asked.add_argument("--runtime-handler", metavar="NAME", default="", help="the pod's (default: none)")
    asked.add_argument("--container", metavar="NAME", default="", help="the container's own name")
    asked.add_argument(
        "--device-node", metavar="PATH", action="append", help="a device node that it has already; repeat it"
    )
    asked.add_argument(
        "--cdi-device", metavar="NAME", action="append", help="a CDI device that it has already; repeat it"
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
    view = _view(arguments, host, settings)
    names = Names((device for device, _ in view.devices), lambda name: view.resolve(name).reason)
    decision = decide(
        _pod(arguments),
        _container(arguments),
        policy=policy_of(settings),
        names=names,
        machine=_machine(arguments, host, settings),
    )
    if arguments.json:
        report.print_json(document(decision))
    else:
        _print(decision, arguments)
    report.say(view.problems, arguments)
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
        report.note(shown(note.text), arguments)


_SAID = {
    "nothing": "no devices: the container asks for nothing that counts",
    "served": "no devices: the container has them already",
    "refuse": "refused: {0.reason} [{0.cause}]",
}


def _view(arguments: Namespace, host: Root, settings: Settings) -> View:
    # Directories that were given are paths of this machine, others lie in the root.
    if arguments.spec_dir:
        directories = tuple(os.path.abspath(directory) for directory in arguments.spec_dir)
        return Shelf(Root("/")).view(directories, library=LIBRARY, reader=ROOT)
    return Shelf(host).view(settings.spec_dirs, library=LIBRARY, reader=ROOT)


def _machine(arguments: Namespace, host: Root, settings: Settings) -> Machine:
    place, folder = (
        (Root("/"), os.path.abspath(arguments.run_dir))
        if arguments.run_dir
        else (host, settings.daemon.run_dir)
    )
    try:
        content = place.read(f"{folder}/{INVENTORY}", limit=options.MAX_INVENTORY)
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        return Machine(problem=f"{shown(folder)}/{INVENTORY} cannot be read: {error.strerror}")
    return read(content, running_driver=_running_driver(host))


def _running_driver(host: Root) -> str:
    try:
        return host.read(RUNNING_DRIVER, limit=_MAX_VERSION).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _pod(arguments: Namespace) -> Pod:
    return Pod(
        id="",
        name="",
        namespace=arguments.namespace,
        uid="",
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


def _mapping(option: str, given: list[str] | None) -> dict[str, str]:
    pairs = (text.partition("=") for text in _pairs(option, given))
    return {name: value for name, _, value in pairs}


def _pairs(option: str, given: list[str] | None) -> Iterable[str]:
    for text in given or ():
        if text.find("=") < 1:
            raise ConfigError(
                f"{option} {shown(text)!r} is not KEY=VALUE", hint="see 'cdigen resolve --help'"
            )
        yield text
