"""``cdigen doctor``: all that could keep ``--device`` from working on this host, and what fixes it."""

from __future__ import annotations

import os
import sys

from cdigen.cli import argument_checks, discovery_options, options, report, terminal
from cdigen.cli.restarts import command_for
from cdigen.cli.spec_options import delivery_options
from cdigen.doctor.context import Context, DoctorRequest
from cdigen.doctor.examine import causes, examine
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.pipeline.generate import GenerateOptions
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.users import find_user
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.doctor.result import CheckResult
    from cdigen.host.root import Root
    from cdigen.runtimes.users import User

EXAMPLES = """\
  cdigen doctor                                all that is wrong, the cause first, and what fixes it
  cdigen doctor --for podman --device nvidia.com/gpu=0
                                               why podman does not find this device
  cdigen doctor --for kubelet                  why pods of this node do not get their devices
  cdigen doctor --user alice                   what keeps alice's rootless containers from it
  cdigen doctor --migrate                      what of other tools is here, and the steps to cdigen
  cdigen doctor --migrate compose.yaml start.sh
                                               what to write instead in these files
  cdigen doctor --bundle report.tar.gz         pack the evidence for a bug report
"""

WRONG = 1
KUBELET = "kubelet"
_OPTIONS = ("config", "root", "driver_root", "dev_root", "mode", "nvml")
_COLOURS = {"wrong": "31", "warning": "33", "unknown": "33", "ok": "32"}
_WORD = 7
# What the status of 'cdigen kubelet' has, as far as its checks read it.
_KUBELET_PARTS = {"reason": str, "kubelet_dir": str, "stale": list, "resources": list, "problems": list}
_KUBELET_PARTS |= {"journal": list}
# Checks that tell a known issue of a runtime's release, and examine nothing.
_LIMIT = "limit-"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("what is wanted")
    group.add_argument(
        "--for",
        dest="runtimes",
        metavar="RUNTIME",
        action="append",
        choices=(*RUNTIME_NAMES, KUBELET),
        help=f"only this runtime: {', '.join(RUNTIME_NAMES)} (default: all that are installed); kubelet: "
        "a node of Kubernetes, and the runtime that its kubelet uses",
    )
    group.add_argument(
        "--device",
        metavar="NAME",
        action="append",
        type=options.not_empty,
        help="only this device, such as nvidia.com/gpu=0",
    )
    group.add_argument(
        "--user",
        metavar="NAME",
        type=options.not_empty,
        help="the rootless containers of this user (default: whoever runs the command)",
    )
    group = parser.add_argument_group("coming from another tool")
    group.add_argument(
        "--migrate",
        metavar="FILE",
        nargs="*",
        help="find what NVIDIA's, AMD's and Intel's tools have left here, and print the steps to cdigen, "
        "taking none; or how the FILEs (scripts, unit and compose files) ask for GPUs, and what to write",
    )
    group = parser.add_argument_group("a bug report")
    group.add_argument(
        "--bundle", metavar="FILE", type=options.not_empty, help="pack the evidence into FILE (tar.gz)"
    )
    group.add_argument(
        "--mask",
        action="store_true",
        help="has no effect any more: no bundle has UUIDs or the names of hosts and users",
    )
    discovery_options.add_discovery_options(parser, takes_inventory=False)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    discovery_options.refuse_inventory(arguments)
    if arguments.mask and arguments.bundle is None:
        raise ConfigError("--mask has no meaning without --bundle", hint="see 'cdigen doctor --help'")
    if arguments.migrate is not None and arguments.bundle is not None:
        raise ConfigError("--migrate and --bundle exclude each other", hint="see 'cdigen doctor --help'")
    host, settings, wrong = options.host_and_usable_settings(arguments)
    context = Context(replace(_request(arguments, host, settings), misconfigured=wrong))
    if arguments.migrate is not None:
        from cdigen.cli import migration  # noqa: PLC0415 - only where it is asked for

        return migration.run(arguments, context)
    found = examine(context)
    if arguments.bundle is not None:
        from cdigen.doctor.bundle import pack  # noqa: PLC0415 - only where it is asked for

        pack(context, found, arguments.bundle)
        report.print_note(
            f"the evidence is in {shown(arguments.bundle)}; read it before you give it away", arguments
        )
    if arguments.json:
        report.print_json([result.row() for result in found])
    else:
        report.write(sys.stdout, _text(found, arguments))
    return 0 if all(result.ok for result in found) else WRONG


def _request(arguments: Namespace, host: Root, settings: Settings) -> DoctorRequest:
    context = discovery_options.context(arguments, host, settings)
    argument_checks.require_sources(arguments, context)
    typed = []
    for name in _OPTIONS:
        value = getattr(arguments, name)
        if value not in {None, "/"}:
            literal = name in {"config", "root"} and value != "-"
            typed += [f"--{name.replace('_', '-')}", os.path.abspath(value) if literal else value]
    return DoctorRequest(
        host=host,
        configuration=settings,
        discovery_context=context,
        generate_options=GenerateOptions(
            profiles=settings.offered_profiles, container_driver_root=settings.container_driver_root
        ),
        delivery_options=delivery_options(arguments, host, settings, write=False),
        vendors=discovery_options.vendor_names(arguments, settings),
        are_named=discovery_options.are_vendors_named(arguments, settings),
        spec_dirs=tuple(options.outer_directory(host, folder) for folder in settings.spec_dirs),
        state_dir=options.outer_directory(host, settings.state_dir),
        daemon=lambda: _daemon(host, settings),
        plugin=lambda: _plugin(host, settings),
        restart=lambda name: command_for(name, host),
        user=_user(arguments, host),
        runtimes=tuple(dict.fromkeys(name for name in arguments.runtimes or () if name != KUBELET)),
        for_kubelet=KUBELET in (arguments.runtimes or ()),
        kubelet=lambda: _kubelet(host, settings),
        devices=tuple(dict.fromkeys(arguments.device or ())),
        options=tuple(typed),
        has_default_configuration=arguments.config is None,
    )


def _user(arguments: Namespace, host: Root) -> User | None:
    own = os.geteuid()
    if arguments.user is None:
        # Users ask for their own containers, root for root's; so does everybody with --root.
        return find_user(host, str(own), os.environ) if own and host.is_this_machine else None
    user = find_user(host, arguments.user, {})
    is_own = user is not None and host.is_this_machine and user.uid == own
    return find_user(host, arguments.user, os.environ) if is_own else user


def _daemon(host: Root, settings: Settings) -> tuple[Mapping[str, Any] | None, str]:
    from cdigen.daemon import status  # noqa: PLC0415 - where it is asked for
    from cdigen.frontend import status as files  # noqa: PLC0415 - likewise

    try:
        run_dir = options.outer_directory(host, settings.daemon.run_dir)
        found = status.read(run_dir, service_of(host))
        if (owner := files.foreign_owner(run_dir)) is not None:
            problem = (
                f"what is in {shown(run_dir)} was put there by uid {owner}, and only root's daemon counts"
            )
            return None, problem
        return found, files.reason_not_running(run_dir, found) if host.is_this_machine else ""
    except CdigenError as error:
        return None, error.message


def _plugin(host: Root, settings: Settings) -> Mapping[str, Any] | None:
    from cdigen.frontend import status as files  # noqa: PLC0415 - where it is asked for
    from cdigen.nri import status  # noqa: PLC0415 - likewise

    run_dir = options.outer_directory(host, settings.nri.run_dir)
    # What a user has put there is no plugin of root's.
    return status.read(run_dir) if files.foreign_owner(run_dir) is None else None


def _kubelet(host: Root, settings: Settings) -> tuple[Mapping[str, Any] | None, str]:
    from cdigen.frontend import status as files  # noqa: PLC0415 - where it is asked for
    from cdigen.kubelet.status import SCHEMA  # noqa: PLC0415 - likewise

    run_dir = options.outer_directory(host, settings.kubelet.run_dir)
    if (owner := files.foreign_owner(run_dir)) is not None:
        return None, f"what is in {shown(run_dir)} was put there by uid {owner}, and only root's counts"
    try:
        found = files.read_status(run_dir, schema=SCHEMA, parts=_KUBELET_PARTS)
    except ValueError as error:
        return None, f"{shown(run_dir)}/status.json: {error}"
    except CdigenError as error:
        return None, error.message
    return found, files.reason_not_running(run_dir, found) if found and host.is_this_machine else ""


def _text(found: tuple[CheckResult, ...], arguments: Namespace) -> str:
    """Return FOUND as text: what is wrong, what is not known, and a line for each family without failures."""
    wrong = [result for result in found if not result.ok]
    unknown = [result for result in found if result.ok and not result.is_checked]
    right = [result for result in found if result.ok and result.is_checked]
    rows = [("wrong" if result.severity == "error" else "warning", result) for result in wrong]
    if not arguments.quiet:
        rows += [("unknown", result) for result in unknown]
    every = arguments.verbose and not arguments.quiet
    well = {} if arguments.quiet else _passed_topics(wrong, right)
    names = [result.check for _, result in rows] + ([result.check for result in right] if every else [*well])
    # On a narrow terminal long names have a line of their own.
    side = min(max(map(len, names), default=0), (terminal.width() or 1000) // 4)
    lines = [line for word, result in rows for line in _result_lines(word, result, found, side)]
    if every:
        for topic in dict.fromkeys(result.topic for result in right):
            lines += [*([""] if lines else []), report.paint(topic, "1", sys.stdout)]
            of_topic = (result for result in right if result.topic == topic)
            lines += [line for result in of_topic for line in _row("ok", result.check, result.detail, side)]
    elif well:
        lines += [""] if lines else []
        lines += [line for topic, text in well.items() for line in _row("ok", topic, text, side)]
        lines.append(f"{'':{_WORD}} --verbose shows every check")
    return "\n".join([*lines, *_conclusion(wrong, arguments)]) + "\n"


def _passed_topics(wrong: list[CheckResult], right: list[CheckResult]) -> dict[str, str]:
    """Return the families without failures, each with the number of its checks."""
    failed = {result.topic for result in wrong}
    well = {}
    for topic in dict.fromkeys(result.topic for result in right if result.topic not in failed):
        is_limit = [result.check.startswith(_LIMIT) for result in right if result.topic == topic]
        limits = sum(is_limit)
        parts = ((len(is_limit) - limits, "check"), (limits, "known limit"))
        well[topic] = ", ".join(_counted(number, word) for number, word in parts if number)
    return well


def _conclusion(wrong: list[CheckResult], arguments: Namespace) -> list[str]:
    if not wrong:
        return ["", "nothing is wrong"]
    if arguments.quiet:
        return []
    errors = sum(result.severity == "error" for result in wrong)
    parts = ((errors, "error"), (len(wrong) - errors, "warning"))
    counted = " and ".join(_counted(number, word) for number, word in parts if number)
    return ["", f"{counted}; fix the first one, then run it again"]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _result_lines(word: str, result: CheckResult, found: tuple[CheckResult, ...], side: int) -> list[str]:
    lines = _row(word, result.check, result.detail, side)
    after = dict.fromkeys(cause.check for cause in causes(result, found))
    if after:
        lines += _indented(f"follows from: {', '.join(after)}", side)
    if result.remedy:
        # Not wrapped: it is to be copied.
        lines.append(f"{_margin(side)}remedy: {report.paint(result.remedy, '1', sys.stdout)}")
    return lines


def _row(word: str, name: str, text: str, side: int) -> list[str]:
    painted = report.paint(f"{word:{_WORD}}", _COLOURS[word], sys.stdout)
    lines = _indented(shown(text), side)
    if len(name) > side:
        return [f"{painted} {name}", *lines]
    return [f"{painted} {name:{side}}  {lines[0][len(_margin(side)) :]}", *lines[1:]]


def _indented(text: str, side: int) -> list[str]:
    """Return TEXT in lines that begin where the details of checks do."""
    return terminal.wrap_text(f"{_margin(side)}{text}", terminal.width(), indent=_margin(side))


def _margin(side: int) -> str:
    return " " * (_WORD + side + 3)
