"""The command ``cdigen resolve``: print the devices that the NRI plugin would inject, with reasons."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError

from cdigen.cli.services.service_sources import sources
from cdigen.cli.shared import argument_checks, options, report
from cdigen.cli.shared.option_table import add
from cdigen.host.root import shown
from cdigen.model.errors import ConfigError
from cdigen.model.names import is_device_name, is_kind
from cdigen.nri.decision.context import LIBRARY, cache_for, context_of
from cdigen.nri.decision.image import ImageConfig, judge_image
from cdigen.nri.decision.request.refusal import quote
from cdigen.nri.pods import Container, ContainerMount, Pod
from cdigen.service.host_state import read_host_state
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable
    from typing import Any

    from cdigen.nri.decision.decide import InjectionDecision
    from cdigen.nri.decision.image import RequirementResult

EXAMPLES = """\
  cdigen resolve --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       the devices of a container in this namespace
  cdigen resolve --env NVIDIA_VISIBLE_DEVICES=0 --env NVIDIA_REQUIRE_CUDA='cuda>=12.4'
                                       with a requirement of the image
  cdigen resolve --namespace ml --annotation devices.cdigen.dev/pod=nvidia.com/gpu=0
                                       the devices for an annotation of the pod
  cdigen resolve --namespace ml --mount /dev/null:/var/run/nvidia-container-devices/0
                                       the devices of a device list by volume mounts
  podman image inspect cuda:12.4 | cdigen resolve --namespace ml --image-config -
                                       requests and requirements of the image: variables, and
                                       labels of nvidia-docker 1.0; exit 1: a requirement is not met
  cdigen resolve --json --namespace ml --env NVIDIA_VISIBLE_DEVICES=all
                                       JSON output; exit 1: the container is refused, or the policy
                                       ignores a request
"""

EXIT_REFUSED = 1
# The cause of a request that the policy ignores.
_NOT_PERMITTED = "not_permitted"
# The limit in bytes. For an image with a thousand layers and their history, the output has about 400 kB.
MAX_IMAGE_CONFIG = 4 << 20
_INSPECT = "podman image inspect IMAGE"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("the container")
    add(group, "--env", "--image-config", "--annotation", "--label", "--namespace", "--runtime-handler")
    add(group, "--container")
    add(group, "--mount", type=_mount)
    add(group, "--privileged")
    add(group, "--device-node", type=_device_node)
    add(group, "--cdi-device", type=_cdi_device)
    options.add_root_options(parser)
    add(parser, "--spec-dir")
    add(parser, "--run-dir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    argument_checks.require_spec_directories(arguments)
    if arguments.run_dir:
        hint = "name the folder with the daemon's inventory.json"
        argument_checks.require_folders("--run-dir", [arguments.run_dir], hint=hint)
    where = sources(arguments, host, settings, run_dir=arguments.run_dir)
    state = read_host_state(where, library=LIBRARY, cache=cache_for(settings))
    context = context_of(state, settings)
    container = _container(arguments)
    image = _read_image_config(arguments.image_config) if arguments.image_config else None
    if image is not None:
        container = replace(container, env=(*image.requests, *container.env))
    decision, results = context.decide(_pod(arguments), container), None
    is_ignored = any(ignored.cause == _NOT_PERMITTED for ignored in decision.ignored_requests)
    if image is not None:
        decision, results = judge_image(
            decision, image, container.env, policy=context.policy, host_gpus=context.host_gpus
        )
    if arguments.json:
        report.print_json(document(decision, results))
    else:
        _print(decision, arguments)
        _print_results(results or ())
    report.print_findings(state.specs.problems, arguments)
    return EXIT_REFUSED if decision.outcome == "refuse" or is_ignored else 0


def document(
    decision: InjectionDecision, results: Iterable[RequirementResult] | None = None
) -> dict[str, object]:
    """Return DECISION and the RESULTS of image requirements as the document of ``--json``. Pure."""
    rows = [
        {"source": row.origin, "text": row.text, "met": row.is_met, "host": row.host} for row in results or ()
    ]
    return {
        "outcome": decision.outcome,
        "devices": list(decision.devices),
        "cause": decision.cause,
        "reason": decision.reason,
        "chosen": [
            {"device": choice.device, "requested": choice.token, "source": choice.origin}
            for choice in decision.choices
        ],
        "ignored_requests": [
            {"cause": ignored.cause, "text": ignored.text} for ignored in decision.ignored_requests
        ],
        **({} if results is None else {"requirements": rows}),
    }


def _print(decision: InjectionDecision, arguments: Namespace) -> None:
    if decision.choices:
        cells = [(choice.device, choice.token, choice.origin) for choice in decision.choices]
        report.write(sys.stdout, report.table(cells, header=("DEVICE", "REQUESTED AS", "SOURCE")))
    else:
        report.write(sys.stdout, f"{shown(_OUTCOME_TEXTS[decision.outcome].format(decision))}\n")
    for ignored in decision.ignored_requests:
        report.print_note(shown(ignored.text), arguments)


def _print_results(results: Iterable[RequirementResult]) -> None:
    cells = [
        (row.origin, quote(row.text).strip("'"), "yes" if row.is_met else "no", row.host) for row in results
    ]
    if cells:
        header = ("REQUIRED BY", "REQUIREMENT", "MET", "HOST")
        report.write(sys.stdout, f"\n{report.table(cells, header=header)}")


_OUTCOME_TEXTS = {
    "nothing": "no devices: the container requests no device that the policy permits",
    "served": "no devices: the container already has the requested devices",
    "refuse": "refused: {0.reason} [{0.cause}]",
}


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


def _read_image_config(file: str) -> ImageConfig:
    """Return the configuration of the single image in the output FILE of ``podman image inspect``.

    Raises ConfigError if the document is invalid or does not describe exactly one image. Raises StoreError if
    the document cannot be read, or if it is larger than MAX_IMAGE_CONFIG bytes.
    """
    document = options.read_json(file, limit=MAX_IMAGE_CONFIG, hint=_INSPECT, kind="image-config")
    images = document if isinstance(document, list) else [document]
    if len(images) != 1:
        raise _wrong(f"{shown(file)}: must have one image (has {len(images)})")
    where = "[0]" if isinstance(document, list) else ""
    config = images[0].get("Config") if isinstance(images[0], dict) else None
    if not isinstance(config, dict):
        raise _wrong(f"{shown(file)}: {where}.Config is not an object")
    return ImageConfig(
        environment=_environment(config.get("Env"), f"{shown(file)}: {where}.Config.Env"),
        labels=_labels(config.get("Labels"), f"{shown(file)}: {where}.Config.Labels"),
    )


def _environment(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _wrong(f"{where} is not a list of texts")
    return tuple(value)


def _labels(value: Any, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _wrong(f"{where} is not an object of texts")
    return value


def _wrong(message: str) -> ConfigError:
    return ConfigError(message, hint=_INSPECT, kind="image-config")


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


def _mapping(option: str, values: list[str] | None) -> dict[str, str]:
    pairs = (text.partition("=") for text in _pairs(option, values))
    return {name: value for name, _, value in pairs}


def _pairs(option: str, values: list[str] | None) -> Iterable[str]:
    for text in values or ():
        if text.find("=") < 1:
            raise ConfigError(
                f"{option} {shown(text)!r} is not KEY=VALUE", hint="see 'cdigen resolve --help'"
            )
        yield text
