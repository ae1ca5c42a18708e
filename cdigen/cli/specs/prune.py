"""The command ``cdigen prune``: remove the driver views that no spec and no container uses."""

from __future__ import annotations

import sys

from cdigen.cli.shared import argument_checks, options, report
from cdigen.cli.shared.option_table import add
from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.views.pruning import prune

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.store.views.pruning import PrunedView

EXAMPLES = """\
  cdigen prune --dry-run               print the views, and whether they would be removed
  cdigen prune                         remove all unused views
  cdigen prune --spec-dir /srv/cdi     also keep the views of specs in /srv/cdi
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    add(parser, "--dry-run")
    options.add_root_options(parser)
    text = "also keep the views of specs in DIR, in addition to the default and configured directories"
    add(parser, "--spec-dir", help=text)


def run(arguments: Namespace) -> int:
    """Run the command; return the exit code or raise a CdigenError."""
    host, settings = options.host_and_settings(arguments)
    argument_checks.require_spec_directories(arguments)
    state_dir = options.outer_directory(host, settings.state_dir)
    rows = prune(
        state_dir,
        spec_dirs=options.known_spec_directories(arguments, host, settings),
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        report.print_json(
            [
                {
                    "view": row.name,
                    "result": row.result,
                    "changed": row.result == "removed",
                    "reason": row.reason,
                }
                for row in rows
            ]
        )
    elif rows:
        cells = [(row.name, row.result, row.reason) for row in rows]
        report.write(sys.stdout, report.table(cells, header=("VIEW", "RESULT", "REASON")))
    if not any(row.result in {"removed", "removable", "failed"} for row in rows):
        report.print_note(f"nothing to remove in {shown(state_dir)}/views", arguments)
    return report.print_errors(_failure(row, state_dir) for row in rows if row.result == "failed")


def _failure(row: PrunedView, state_dir: str) -> StoreError:
    return StoreError(
        f"the view {shown(state_dir)}/views/{row.name} {row.reason}",
        hint="run the command as root; if this fails, check the immutable flag with lsattr",
    )
