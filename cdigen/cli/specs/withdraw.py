"""The command ``cdigen withdraw``: remove the specs that cdigen wrote.

Users run this command, for example, before they remove cdigen.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager

from cdigen.cdi.reader import MAX_SIZE
from cdigen.cli.shared import argument_checks, options, report
from cdigen.cli.shared.daemon_files import run_directories
from cdigen.cli.shared.option_table import add
from cdigen.host.root import Root, shown
from cdigen.model.errors import StoreError
from cdigen.pipeline import withdraw
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.scan import scan
from cdigen.store.directory import RUN_DIRECTORY, open_existing
from cdigen.store.lock import LockHeld, exclusive
from cdigen.store.records import owned_specs
from cdigen.vendors.registry import VENDORS, prefixes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator
    from typing import Any

    from cdigen.config import Settings
    from cdigen.pipeline.publish import PublishOutcome
    from cdigen.runtimes.daemon_service import DaemonService
    from cdigen.runtimes.spec_cache import SpecFile
    from cdigen.store.records.owned_specs import OwnedSpec

EXAMPLES = """\
  cdigen withdraw --dry-run                print the specs, and whether they would be removed
  cdigen withdraw                          remove every spec that cdigen wrote
  cdigen withdraw --kind nvidia.com/gpu    remove the spec of one kind
"""

_REASON = "it is to be withdrawn"
# A daemon needs up to 2 s to end.
_LOCK_TIMEOUT_S = 2.5


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--dry-run")
    group = parser.add_argument_group("specs")
    add(group, "--kind")
    text = f"only specs of this vendor: {', '.join(VENDORS)}, or a vendor of another package"
    add(group, "--vendor", help=text)
    add(group, "--with-hook")
    add(parser, "--spec-dir")
    options.add_root_options(parser)
    add(parser, "--run-dir")


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings, wrong = options.host_and_usable_settings(arguments)
    kinds = options.kinds(arguments)
    argument_checks.require_spec_directories(arguments)
    if arguments.run_dir:
        # With a wrong folder, this command would not find the daemon. The daemon would then write the specs
        # again.
        hint = "name the daemon's run directory, or omit the option"
        argument_checks.require_folders("--run-dir", [arguments.run_dir], hint=hint)
    run_dirs = (arguments.run_dir,) if arguments.run_dir else run_directories(host, settings)
    state_dir = options.outer_directory(host, settings.state_dir)
    report.print_findings(wrong, arguments)
    with ExitStack() as exclusion:
        for run_dir in () if arguments.dry_run else run_dirs:
            exclusion.enter_context(_without_daemon(run_dir, service_of(host)))
        state, damage = owned_specs.read(state_dir)
        report.print_findings(damage, arguments)
        selected = [owned for owned in state.specs if _is_selected(owned, arguments, kinds, settings)]
        outcomes = [_withdraw(owned, state_dir, dry_run=arguments.dry_run) for owned in selected]
    others = _foreign_specs(arguments, host, settings, state, kinds)
    # cdigen's list of its own specs can contain files that another program has removed.
    found = [outcome for outcome in outcomes if outcome.result != "absent"]
    _print_rows(found, others, arguments)
    if not found:
        known = ", ".join(dict.fromkeys(owned.kind for owned in state.specs))
        hint = f"; cdigen has written {known}" if known else ""
        of = f" of {', '.join(kinds)}" if kinds else ""
        report.print_note(f"no spec{of} to withdraw{hint}", arguments)
    return report.print_errors(outcome.error for outcome in outcomes if outcome.error is not None)


@contextmanager
def _without_daemon(run_dir: str, service: DaemonService) -> Iterator[None]:
    """Prevent a start of the daemon while the body of the ``with`` statement runs.

    Raises StoreError if the daemon is running, because the daemon would write the specs again.
    """
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
                hint=f"stop the daemon first: {service.stop}",
                kind="daemon-running",
            ) from None


def _is_selected(owned: OwnedSpec, arguments: Namespace, kinds: tuple[str, ...], settings: Settings) -> bool:
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
    arguments: Namespace, host: Root, settings: Settings, state: owned_specs.State, kinds: tuple[str, ...]
) -> list[SpecFile]:
    """Return the specs of other programs for the selected kinds or vendors. cdigen does not remove them."""
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
        # The reason of a failure is printed as an error.
        cells = [(row["kind"], row["result"], row["file"]) for row in rows]
        report.write(sys.stdout, report.table(cells, header=("KIND", "RESULT", "FILE")))
    for row in rows:
        if row["result"] == "foreign":
            report.print_note(f"{shown(row['file'])} stays: cdigen did not write it", arguments)
