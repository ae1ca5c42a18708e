"""The command ``cdigen doctor``: find all causes that can prevent ``--device`` from working.

The command prints a remedy for each failure.
"""

from __future__ import annotations

import os
import sys

from cdigen.cli.host.restarts import command_for
from cdigen.cli.shared import argument_checks, discovery_options, options, report, terminal
from cdigen.cli.shared.option_table import add
from cdigen.cli.shared.spec_options import configured_options, delivery_options
from cdigen.doctor.context import Context, DoctorRequest
from cdigen.doctor.examine import causes, examine
from cdigen.doctor.kubernetes_node.bundled import examined_containerd
from cdigen.host.root import shown
from cdigen.model.errors import CdigenError, ConfigError
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.releases import RUNTIME_NAMES
from cdigen.runtimes.users import find_user
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.config import Settings
    from cdigen.doctor.result import CheckResult
    from cdigen.host.root import Root
    from cdigen.runtimes.users import User
    from cdigen.service.host_state import HostInventory

EXAMPLES = """\
  cdigen doctor                                all failures, causes first, with remedies
  cdigen doctor --for podman --device nvidia.com/gpu=0
                                               why podman cannot resolve this device
  cdigen doctor --for kubelet                  why pods of this node do not get their devices
  cdigen doctor --user alice                   failures of alice's rootless containers
  cdigen doctor --migrate                      leftovers of other tools, and the steps to cdigen
  cdigen doctor --migrate compose.yaml start.sh
                                               requests for GPUs in files, and their replacements
  cdigen doctor --bundle report.tar.gz         pack the evidence for a bug report
"""

FAILED = 1
KUBELET = "kubelet"
# The options that remedies repeat. All commands of cdigen have _OPTIONS. Only commands with a discovery have
# _DISCOVERY_OPTIONS.
_OPTIONS = ("config", "root")
_DISCOVERY_OPTIONS = (
    *("vendor", "driver_root", "dev_root", "mode", "nvml"),
    *("library_search_path", "binary_search_path", "config_search_path"),
)
_COLOURS = {"error": "31", "warning": "33", "skipped": "33", "ok": "32"}
_WIDTH = 7
# The prefix of the names of checks for known issues of a runtime release.
_LIMIT = "limit-"


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    group = parser.add_argument_group("scope")
    text = (
        f"check only this runtime: {', '.join(RUNTIME_NAMES)} (default: all installed runtimes); "
        "kubelet: a Kubernetes node, and the runtime of its kubelet"
    )
    add(group, "--for", choices=(*RUNTIME_NAMES, KUBELET), help=text)
    add(group, "--device", "--user")
    add(parser.add_argument_group("migration"), "--migrate")
    add(parser.add_argument_group("bug report"), "--bundle")
    discovery_options.add_discovery_options(parser, takes_inventory=False)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    discovery_options.refuse_inventory(arguments)
    if arguments.migrate is not None and arguments.bundle is not None:
        raise ConfigError("--migrate and --bundle exclude each other", hint="see 'cdigen doctor --help'")
    host, settings, wrong = options.host_and_usable_settings(arguments)
    context = Context(replace(_request(arguments, host, settings), misconfigured=wrong))
    if arguments.migrate is not None:
        from cdigen.cli.host import migration  # noqa: PLC0415 - only for --migrate

        return migration.run(arguments, context)
    found = examine(context)
    if arguments.bundle is not None:
        from cdigen.doctor.bundle import pack  # noqa: PLC0415 - only for --bundle

        pack(context, found, arguments.bundle)
        report.print_note(
            f"wrote the evidence to {shown(arguments.bundle)}; read it before you send it", arguments
        )
    if arguments.json:
        report.print_json([result.row() for result in found])
    else:
        report.write(sys.stdout, _text(found, arguments))
    return 0 if all(result.ok for result in found) else FAILED


def _unit(host: Root, runtime: str, *, for_kubelet: bool) -> str:
    """Return the unit of RUNTIME on HOST if RUNTIME is a part of a Kubernetes distribution, otherwise ""."""
    bundled = examined_containerd(host, for_kubelet=for_kubelet) if runtime == "containerd" else None
    return bundled.unit if bundled else ""


def _request(arguments: Namespace, host: Root, settings: Settings) -> DoctorRequest:
    context = discovery_options.context(arguments, host, settings)
    argument_checks.require_sources(arguments, context)
    for_kubelet = KUBELET in (arguments.runtimes or ())
    return DoctorRequest(
        host=host,
        configuration=settings,
        discovery_context=context,
        generate_options=configured_options(settings),
        delivery_options=delivery_options(arguments, host, settings, write=False),
        vendors=discovery_options.vendor_names(arguments, settings),
        are_named=discovery_options.are_vendors_named(arguments, settings),
        spec_dirs=tuple(options.outer_directory(host, folder) for folder in settings.spec_dirs),
        state_dir=options.outer_directory(host, settings.state_dir),
        inventory=lambda: _inventory(host, settings),
        daemon=lambda: _daemon(host, settings),
        plugin=lambda: _plugin(host, settings),
        restart=lambda name: command_for(name, host, _unit(host, name, for_kubelet=for_kubelet)),
        user=_user(arguments, host),
        runtimes=tuple(dict.fromkeys(name for name in arguments.runtimes or () if name != KUBELET)),
        for_kubelet=for_kubelet,
        kubelet=lambda: _kubelet(host, settings),
        devices=tuple(dict.fromkeys(arguments.device or ())),
        options=tuple(_typed(arguments, _OPTIONS)),
        discovery_options=tuple(_typed(arguments, _DISCOVERY_OPTIONS)),
        configuration_file=options.configuration_file(arguments),
        has_default_configuration=arguments.config is None,
    )


def _typed(arguments: Namespace, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the options NAMES of ARGUMENTS as words of a command line. Paths of this machine are absolute."""
    for name in names:
        values = getattr(arguments, name)
        for value in values if isinstance(values, list) else [values]:
            if value not in {None, "/"}:
                is_own_path = name in _OPTIONS and value != "-"
                yield from (f"--{name.replace('_', '-')}", os.path.abspath(value) if is_own_path else value)


def _user(arguments: Namespace, host: Root) -> User | None:
    own = os.geteuid()
    if arguments.user is None:
        # The default is the user of this process. With --root, the default is root.
        return find_user(host, str(own), os.environ) if own and host.is_this_machine else None
    user = find_user(host, arguments.user, {})
    is_own = user is not None and host.is_this_machine and user.uid == own
    return find_user(host, arguments.user, os.environ) if is_own else user


def _inventory(host: Root, settings: Settings) -> HostInventory:
    from cdigen.cli.shared.daemon_files import daemon_inventory  # noqa: PLC0415 - only for this check

    return daemon_inventory(host, settings)


def _daemon(host: Root, settings: Settings) -> tuple[Mapping[str, Any] | None, str]:
    from cdigen.cli.shared.daemon_files import running_directory  # noqa: PLC0415 - only for this check
    from cdigen.daemon import status  # noqa: PLC0415 - only for this check
    from cdigen.service import status as files  # noqa: PLC0415 - only for this check

    try:
        run_dir = running_directory(host, settings)
        found = status.read(run_dir, service_of(host))
        if (owner := files.foreign_owner(run_dir)) is not None:
            return None, f"{shown(run_dir)}: the status belongs to uid {owner}, not to root's daemon"
        return found, files.reason_not_running(run_dir, found) if host.is_this_machine else ""
    except CdigenError as error:
        return None, error.message


def _plugin(host: Root, settings: Settings) -> Mapping[str, Any] | None:
    from cdigen.nri.status import PARTS  # noqa: PLC0415 - only for this check
    from cdigen.service import status as files  # noqa: PLC0415 - only for this check

    run_dir = options.outer_directory(host, settings.nri.run_dir)
    # Only the status of root's plugin is valid.
    return files.read_service(run_dir, PARTS) if files.foreign_owner(run_dir) is None else None


def _kubelet(host: Root, settings: Settings) -> tuple[Mapping[str, Any] | None, str]:
    from cdigen.kubelet.status import PARTS  # noqa: PLC0415 - only for this check
    from cdigen.service import status as files  # noqa: PLC0415 - only for this check

    run_dir = options.outer_directory(host, settings.kubelet.run_dir)
    if (owner := files.foreign_owner(run_dir)) is not None:
        return None, f"{shown(run_dir)}: the status belongs to uid {owner}, not to root's plugin"
    try:
        found = files.read_status(run_dir, {**PARTS, "kubelet_dir": str})
    except ValueError as error:
        return None, f"{shown(run_dir)}/status.json: {error}"
    except CdigenError as error:
        return None, error.message
    return found, files.reason_not_running(run_dir, found) if found and host.is_this_machine else ""


def _text(found: tuple[CheckResult, ...], arguments: Namespace) -> str:
    """Return FOUND as text: failures, skipped checks, and one line for each topic without failures."""
    wrong = [result for result in found if not result.ok]
    skipped = [result for result in found if result.ok and not result.is_checked]
    passed = [result for result in found if result.ok and result.is_checked]
    rows: list[tuple[str, CheckResult]] = [(result.severity, result) for result in wrong]
    if not arguments.quiet:
        rows += [("skipped", result) for result in skipped]
    every = arguments.verbose and not arguments.quiet
    topics = {} if arguments.quiet else _passed_topics(wrong, passed)
    names = [result.check for _, result in rows] + (
        [result.check for result in passed] if every else [*topics]
    )
    # On a narrow terminal, a long name is on a separate line.
    side = min(max(map(len, names), default=0), (terminal.width() or 1000) // 4)
    lines = [line for word, result in rows for line in _result_lines(word, result, found, side)]
    if every:
        for topic in dict.fromkeys(result.topic for result in passed):
            lines += [*([""] if lines else []), report.paint(topic, "1", sys.stdout)]
            of_topic = (result for result in passed if result.topic == topic)
            lines += [line for result in of_topic for line in _row("ok", result.check, result.detail, side)]
    elif topics:
        lines += [""] if lines else []
        lines += [line for topic, text in topics.items() for line in _row("ok", topic, text, side)]
        lines.append(f"{'':{_WIDTH}} --verbose shows every check")
    return "\n".join([*lines, *_conclusion(wrong, arguments)]) + "\n"


def _passed_topics(wrong: list[CheckResult], passed: list[CheckResult]) -> dict[str, str]:
    """Return the number of passed checks as text, by topic. Topics with failures are omitted."""
    failed = {result.topic for result in wrong}
    topics = {}
    for topic in dict.fromkeys(result.topic for result in passed if result.topic not in failed):
        is_limit = [result.check.startswith(_LIMIT) for result in passed if result.topic == topic]
        limits = sum(is_limit)
        parts = ((len(is_limit) - limits, "check"), (limits, "known limit"))
        topics[topic] = ", ".join(_counted(number, word) for number, word in parts if number)
    return topics


def _conclusion(wrong: list[CheckResult], arguments: Namespace) -> list[str]:
    if not wrong:
        return ["", "no errors or warnings"]
    if arguments.quiet:
        return []
    errors = sum(result.severity == "error" for result in wrong)
    parts = ((errors, "error"), (len(wrong) - errors, "warning"))
    counted = " and ".join(_counted(number, word) for number, word in parts if number)
    return ["", f"{counted}; fix the first one, then run cdigen doctor again"]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _result_lines(word: str, result: CheckResult, found: tuple[CheckResult, ...], side: int) -> list[str]:
    lines = _row(word, result.check, result.detail, side)
    after = dict.fromkeys(cause.check for cause in causes(result, found))
    if after:
        lines += _indented(f"follows from: {', '.join(after)}", side)
    if result.remedy:
        # A remedy is not wrapped, so that users can copy it.
        lines.append(f"{_margin(side)}remedy: {report.paint(result.remedy, '1', sys.stdout)}")
    return lines


def _row(word: str, name: str, text: str, side: int) -> list[str]:
    painted = report.paint(f"{word:{_WIDTH}}", _COLOURS[word], sys.stdout)
    lines = _indented(shown(text), side)
    if len(name) > side:
        return [f"{painted} {name}", *lines]
    return [f"{painted} {name:{side}}  {lines[0][len(_margin(side)) :]}", *lines[1:]]


def _indented(text: str, side: int) -> list[str]:
    return terminal.wrap_text(f"{_margin(side)}{text}", terminal.width(), indent=_margin(side))


def _margin(side: int) -> str:
    return " " * (_WIDTH + side + 3)
