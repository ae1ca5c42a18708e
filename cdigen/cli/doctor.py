"""``cdigen doctor``: all that could keep ``--device`` from working on this host, and what mends it."""

from __future__ import annotations

import os
import sys

from cdigen.cli import given, options, report
from cdigen.cli.restarts import command_for
from cdigen.cli.wishes import means
from cdigen.doctor.context import NAMES, Context, Daemon, Question
from cdigen.doctor.examine import causes, examine
from cdigen.doctor.users import find_user
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.reconcile import Wishes
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
_COLOURS = {"error": "31", "warning": "33", "info": "32"}


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
        found = files.read(run_dir)
        return Daemon(status=found, problem=files.gone(run_dir, found) if host.is_this_machine else "")
    except CdigenError as error:
        return Daemon(status=None, problem=error.message)


def _text(found: tuple[Verdict, ...], arguments: Namespace) -> str:
    wrong = [verdict for verdict in found if not verdict.ok]
    right = [] if arguments.quiet else [verdict for verdict in found if verdict.ok]
    width = max((len(verdict.check) for verdict in (*wrong, *right)), default=0)
    lines: list[str] = []
    for verdict in wrong:
        lines += _wrong(verdict, found, width)
    topic = ""
    for verdict in right:
        if verdict.topic != topic:
            topic = verdict.topic
            lines += [*([""] if lines else []), report.paint(topic, "1", sys.stdout)]
        word = report.paint(f"{'ok' if verdict.is_checked else '-':7}", _COLOURS["info"], sys.stdout)
        lines.append(f"{word} {verdict.check:{width}}  {shown(verdict.detail)}")
    errors = sum(verdict.severity == "error" for verdict in wrong)
    warnings = len(wrong) - errors
    if not wrong:
        lines += ["", "nothing is wrong"]
    elif not arguments.quiet:
        counted = [
            f"{number} {word}{'' if number == 1 else 's'}"
            for number, word in ((errors, "error"), (warnings, "warning"))
            if number
        ]
        lines += ["", f"{' and '.join(counted)}; mend the first one first, then run it again"]
    return "\n".join(lines) + "\n"


def _wrong(verdict: Verdict, found: tuple[Verdict, ...], width: int) -> list[str]:
    word = "wrong" if verdict.severity == "error" else "warning"
    head = report.paint(f"{word:7}", _COLOURS[verdict.severity], sys.stdout)
    lines = [f"{head} {verdict.check:{width}}  {shown(verdict.detail)}"]
    after = dict.fromkeys(cause.check for cause in causes(verdict, found))
    if after:
        lines.append(f"{'':7} {'':{width}}  follows from: {', '.join(after)}")
    if verdict.remedy:
        lines.append(f"{'':7} {'':{width}}  remedy: {report.paint(verdict.remedy, '1', sys.stdout)}")
    return lines
