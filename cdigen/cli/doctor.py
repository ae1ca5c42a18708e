"""``cdigen doctor``: all that could keep ``--device`` from working on this host, and what mends it."""

from __future__ import annotations

import os
import sys

from cdigen.cli import given, options, report, terminal
from cdigen.cli.restarts import command_for
from cdigen.cli.wishes import means
from cdigen.doctor.context import NAMES, Context, Daemon, Question
from cdigen.doctor.examine import causes, examine
from cdigen.doctor.users import find_user
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.reconcile import Wishes
from cdigen.runtimes.ownservice import service_of
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.config import Settings
    from cdigen.doctor.verdict import Verdict
    from cdigen.host.root import Root
    from cdigen.runtimes.users import User

EXAMPLES = """\
  cdigen doctor                                all that is wrong, the cause first, and what mends it
  cdigen doctor --for podman --device nvidia.com/gpu=0
                                               why podman does not find this device
  cdigen doctor --user alice                   what keeps alice's rootless containers from it
  cdigen doctor --bundle report.tar.gz --mask  pack the evidence for a bug report
"""

WRONG = 1
_OPTIONS = ("config", "root", "driver_root", "dev_root", "mode", "nvml")
_COLOURS = {"wrong": "31", "warning": "33", "unknown": "33", "ok": "32"}
_WORD = 7
# What is known of a runtime's release, and nobody has looked at.
_LIMIT = "limit-"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("what is wanted")
    group.add_argument(
        "--for",
        dest="runtimes",
        metavar="RUNTIME",
        action="append",
        choices=tuple(NAMES),
        help=f"only this runtime: {', '.join(NAMES)} (default: all that are installed)",
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
    group = parser.add_argument_group("a bug report")
    group.add_argument(
        "--bundle", metavar="FILE", type=options.not_empty, help="pack the evidence into FILE (tar.gz)"
    )
    group.add_argument(
        "--mask",
        action="store_true",
        help="replace UUIDs, serial numbers and the names of hosts and users in it",
    )
    options.add_discovery_options(parser, takes_inventory=False)
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    options.refuse_inventory(arguments)
    if arguments.mask and arguments.bundle is None:
        raise ConfigError("--mask has no meaning without --bundle", hint="see 'cdigen doctor --help'")
    host, settings, wrong = options.host_and_usable_settings(arguments)
    context = Context(replace(_question(arguments, host, settings), misconfigured=wrong))
    found = examine(context)
    if arguments.bundle is not None:
        from cdigen.doctor.bundle import pack  # noqa: PLC0415 - only where it is asked for

        pack(context, found, arguments.bundle, mask=arguments.mask)
        report.note(
            f"the evidence is in {shown(arguments.bundle)}; read it before you give it away", arguments
        )
    if arguments.json:
        report.print_json([verdict.row() for verdict in found])
    else:
        report.write(sys.stdout, _text(found, arguments))
    return 0 if all(verdict.ok for verdict in found) else WRONG


def _question(arguments: Namespace, host: Root, settings: Settings) -> Question:
    places = options.places(arguments, host, settings)
    given.require_sources(arguments, places)
    typed = []
    for name in _OPTIONS:
        value = getattr(arguments, name)
        if value not in {None, "/"}:
            literal = name in {"config", "root"} and value != "-"
            typed += [f"--{name.replace('_', '-')}", options.literal(value) if literal else value]
    return Question(
        host=host,
        configuration=settings,
        places=places,
        wishes=Wishes(profiles=settings.profiles, container_driver_root=settings.container_driver_root),
        means=means(arguments, host, settings, write=False),
        vendors=options.vendor_names(arguments, settings),
        are_named=options.are_vendors_named(arguments, settings),
        spec_dirs=tuple(options.outer_directory(host, folder) for folder in settings.spec_dirs),
        state_dir=options.outer_directory(host, settings.state_dir),
        daemon=lambda: _daemon(host, settings),
        restart=lambda name: command_for(name, host),
        user=_user(arguments, host),
        runtimes=tuple(dict.fromkeys(arguments.runtimes or ())),
        devices=tuple(dict.fromkeys(arguments.device or ())),
        options=tuple(typed),
    )


def _user(arguments: Namespace, host: Root) -> User | None:
    own = os.geteuid()
    if arguments.user is None:
        # Who is no root asks for himself; of another tree, for root.
        return find_user(host, str(own), os.environ) if own and host.is_this_machine else None
    user = find_user(host, arguments.user, {})
    is_own = user is not None and host.is_this_machine and user.uid == own
    return find_user(host, arguments.user, os.environ) if is_own else user


def _daemon(host: Root, settings: Settings) -> Daemon:
    from cdigen.service import status as files  # noqa: PLC0415 - where it is asked for

    try:
        run_dir = options.outer_directory(host, settings.daemon.run_dir)
        found = files.read(run_dir, service_of(host))
        if (owner := files.stranger(run_dir)) is not None:
            problem = (
                f"what is in {shown(run_dir)} was put there by uid {owner}, and only root's daemon counts"
            )
            return Daemon(status=None, problem=problem)
        return Daemon(status=found, problem=files.gone(run_dir, found) if host.is_this_machine else "")
    except CdigenError as error:
        return Daemon(status=None, problem=error.message)


def _text(found: tuple[Verdict, ...], arguments: Namespace) -> str:
    """Return FOUND for people: what is wrong, what is not known, each family that is well in a line."""
    wrong = [verdict for verdict in found if not verdict.ok]
    unknown = [verdict for verdict in found if verdict.ok and not verdict.is_checked]
    right = [verdict for verdict in found if verdict.ok and verdict.is_checked]
    rows = [("wrong" if verdict.severity == "error" else "warning", verdict) for verdict in wrong]
    if not arguments.quiet:
        rows += [("unknown", verdict) for verdict in unknown]
    every = arguments.verbose and not arguments.quiet
    well = {} if arguments.quiet else _well(wrong, right)
    names = [verdict.check for _, verdict in rows] + (
        [verdict.check for verdict in right] if every else [*well]
    )
    # On a narrow terminal long names have a line of their own.
    side = min(max(map(len, names), default=0), (terminal.width() or 1000) // 4)
    lines = [line for word, verdict in rows for line in _verdict(word, verdict, found, side)]
    if every:
        for topic in dict.fromkeys(verdict.topic for verdict in right):
            lines += [*([""] if lines else []), report.paint(topic, "1", sys.stdout)]
            of_topic = (verdict for verdict in right if verdict.topic == topic)
            lines += [
                line for verdict in of_topic for line in _row("ok", verdict.check, verdict.detail, side)
            ]
    elif well:
        lines += [""] if lines else []
        lines += [line for topic, text in well.items() for line in _row("ok", topic, text, side)]
        lines.append(f"{'':{_WORD}} --verbose shows every check")
    return "\n".join([*lines, *_conclusion(wrong, arguments)]) + "\n"


def _well(wrong: list[Verdict], right: list[Verdict]) -> dict[str, str]:
    """Return the families of which nothing is wrong, each with what is said of it."""
    ill = {verdict.topic for verdict in wrong}
    well = {}
    for topic in dict.fromkeys(verdict.topic for verdict in right if verdict.topic not in ill):
        is_limit = [verdict.check.startswith(_LIMIT) for verdict in right if verdict.topic == topic]
        limits = sum(is_limit)
        parts = ((len(is_limit) - limits, "check"), (limits, "known limit"))
        well[topic] = ", ".join(_counted(number, word) for number, word in parts if number)
    return well


def _conclusion(wrong: list[Verdict], arguments: Namespace) -> list[str]:
    if not wrong:
        return ["", "nothing is wrong"]
    if arguments.quiet:
        return []
    errors = sum(verdict.severity == "error" for verdict in wrong)
    parts = ((errors, "error"), (len(wrong) - errors, "warning"))
    counted = " and ".join(_counted(number, word) for number, word in parts if number)
    return ["", f"{counted}; mend the first one first, then run it again"]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _verdict(word: str, verdict: Verdict, found: tuple[Verdict, ...], side: int) -> list[str]:
    lines = _row(word, verdict.check, verdict.detail, side)
    after = dict.fromkeys(cause.check for cause in causes(verdict, found))
    if after:
        lines += _behind(f"follows from: {', '.join(after)}", side)
    if verdict.remedy:
        # Not wrapped: it is to be copied.
        lines.append(f"{_margin(side)}remedy: {report.paint(verdict.remedy, '1', sys.stdout)}")
    return lines


def _row(word: str, name: str, text: str, side: int) -> list[str]:
    painted = report.paint(f"{word:{_WORD}}", _COLOURS[word], sys.stdout)
    lines = _behind(shown(text), side)
    if len(name) > side:
        return [f"{painted} {name}", *lines]
    return [f"{painted} {name:{side}}  {lines[0][len(_margin(side)) :]}", *lines[1:]]


def _behind(text: str, side: int) -> list[str]:
    """Return TEXT in lines behind the names of checks."""
    return terminal.wrapped(f"{_margin(side)}{text}", terminal.width(), indent=_margin(side))


def _margin(side: int) -> str:
    return " " * (_WORD + side + 3)
