"""``cdigen withdraw``: remove the specs that cdigen wrote, as before an uninstall."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext

from cdigen.cdi.reader import MAX_SIZE
from cdigen.cli import argument_checks, options, report
from cdigen.frontend.rundir import RUN_DIRECTORY
from cdigen.host.root import Root, shown
from cdigen.model.errors import StoreError
from cdigen.pipeline import withdraw
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.scan import scan
from cdigen.store import state as states
from cdigen.store.directory import open_existing
from cdigen.store.lock import LockHeld, exclusive
from cdigen.vendors.registry import NAMES, VENDORS, prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from cdigen.config import Settings
    from cdigen.pipeline.publish import PublishOutcome
    from cdigen.runtimes.daemon_service import DaemonService
    from cdigen.runtimes.spec_cache import SpecFile
    from cdigen.store.state import OwnedSpec

EXAMPLES = """\
  cdigen withdraw --dry-run                what would be removed, and what stays
  cdigen withdraw                          remove every spec that cdigen wrote
  cdigen withdraw --kind nvidia.com/gpu    of one kind
"""

_REASON = "it was to be withdrawn"
# A daemon that is about to end is gone within 2 s.
_LOCK_TIMEOUT_S = 2.5


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, only say what would be")
    group = parser.add_argument_group("which specs")
    group.add_argument(
        "--kind", metavar="KIND", action="append", help="only this kind, such as nvidia.com/gpu"
    )
    group.add_argument(
        "--vendor",
        metavar="NAME",
        action="append",
        choices=NAMES,
        help=f"only this vendor's: {', '.join(VENDORS)}, or one that another package adds",
    )
    group.add_argument(
        "--with-hook",
        action="store_true",
        help="only specs that run cdigen's start-up hook: without it no container starts with them",
    )
    options.add_spec_dir_option(parser)
    options.add_root_options(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=options.not_empty, help="where the daemon would keep its status"
    )
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    kinds = options.kinds(arguments)
    argument_checks.require_spec_directories(arguments)
    if arguments.run_dir:
        # Where the daemon would not be seen, it would write the specs again.
        hint = "name the daemon's own, or leave it away"
        argument_checks.require_folders("--run-dir", [arguments.run_dir], hint=hint)
    run_dir = arguments.run_dir or options.outer_directory(host, settings.daemon.run_dir)
    state_dir = options.outer_directory(host, settings.state_dir)
    report.print_findings(wrong, arguments)
    alone: AbstractContextManager[None] = (
        nullcontext() if arguments.dry_run else _without_daemon(run_dir, service_of(host))
    )
    with alone:
        state, damage = states.read(state_dir)
        report.print_findings(damage, arguments)
        wanted = [owned for owned in state.specs if _is_wanted(owned, arguments, kinds, settings)]
        outcomes = [_withdraw(owned, state_dir, dry_run=arguments.dry_run) for owned in wanted]
    others = _foreign_specs(arguments, host, settings, state, kinds)
    # A record outlives a file that somebody removed.
    met = [outcome for outcome in outcomes if outcome.result != "absent"]
    _print_rows(met, others, arguments)
    if not met:
        known = ", ".join(dict.fromkeys(owned.kind for owned in state.specs))
        hint = f"; it has written {known}" if known else ""
        of = f" of {', '.join(kinds)}" if kinds else ""
        report.print_note(f"there is no such spec of cdigen's{of} to withdraw{hint}", arguments)
    return report.print_errors(outcome.error for outcome in outcomes if outcome.error is not None)


@contextmanager
def _without_daemon(run_dir: str, service: DaemonService) -> Iterator[None]:
    """Keep the daemon from starting while the body runs. StoreError: it runs, and would write them again."""
    with open_existing(os.path.abspath(run_dir), what=RUN_DIRECTORY) as place:
        if place is None:
            yield
            return
        try:
            with exclusive(place, timeout_s=_LOCK_TIMEOUT_S):
                yield
        except LockHeld as held:
            raise StoreError(
                f"the cdigen daemon runs and would write the specs again ({held.message})",
                hint=f"stop it first: {service.stop}",
                kind="daemon-running",
            ) from None


def _is_wanted(owned: OwnedSpec, arguments: Namespace, kinds: tuple[str, ...], settings: Settings) -> bool:
    folders = [os.path.realpath(folder) for folder in arguments.spec_dir or ()]
    return (
        (not kinds or owned.kind in kinds)
        and (not arguments.vendor or owned.kind.startswith(prefixes(arguments.vendor)))
        and (not folders or os.path.dirname(owned.path) in folders)
        and (not arguments.with_hook or _names(owned.path, settings.hook))
    )


def _names(file: str, hook: str) -> bool:
    try:
        return os.fsencode(hook) in Root().read(file, limit=MAX_SIZE)
    except OSError:
        return False


def _withdraw(owned: OwnedSpec, state_dir: str, *, dry_run: bool) -> PublishOutcome:
    spec = withdraw.StaleSpec(name=owned.name, kind=owned.kind, reason=_REASON)
    return withdraw.withdraw_spec(spec, os.path.dirname(owned.path), state_dir, dry_run=dry_run)


def _foreign_specs(
    arguments: Namespace, host: Root, settings: Settings, state: states.State, kinds: tuple[str, ...]
) -> list[SpecFile]:
    """Return the specs of the same vendors that others wrote, and that stay."""
    ours = {owned.path for owned in state.specs}
    begins = prefixes(arguments.vendor or VENDORS)
    return [
        spec
        for spec in scan(options.spec_directories(arguments, host, settings)).defining
        if (spec.kind in kinds if kinds else spec.kind.startswith(begins))
        and os.path.join(os.path.realpath(spec.directory), os.path.basename(spec.path)) not in ours
        and (not arguments.with_hook or _names(spec.path, settings.hook))
    ]


def _print_rows(outcomes: list[PublishOutcome], others: list[SpecFile], arguments: Namespace) -> None:
    words = {"withdrawn": "withdrawable" if arguments.dry_run else "withdrawn"}
    rows: list[dict[str, Any]] = [
        {
            "kind": outcome.kind,
            "file": outcome.file,
            "result": words.get(outcome.result, outcome.result),
            "changed": outcome.result == "withdrawn" and not arguments.dry_run,
            "reason": outcome.error.message if outcome.error is not None else "",
        }
        for outcome in outcomes
    ]
    rows += [
        {
            "kind": spec.kind,
            "file": spec.path,
            "result": "foreign",
            "changed": False,
            "reason": "cdigen did not write it",
        }
        for spec in others
    ]
    if arguments.json:
        report.print_json(rows)
    elif rows:
        # Why one was refused is an error, and said as such.
        cells = [(row["kind"], row["result"], row["file"]) for row in rows]
        report.write(sys.stdout, report.table(cells, header=("KIND", "RESULT", "FILE")))
    for row in rows:
        if row["result"] == "foreign":
            report.print_note(f"{shown(row['file'])} stays: cdigen did not write it", arguments)
