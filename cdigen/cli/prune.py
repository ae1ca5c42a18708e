"""``cdigen prune``: remove the driver views that no spec and no container uses."""

from __future__ import annotations

import sys

from cdigen.cli import argument_checks, options, report
from cdigen.host.root import shown
from cdigen.model.errors import StoreError
from cdigen.store.views.pruning import prune

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from cdigen.store.views.pruning import PrunedView

EXAMPLES = """\
  cdigen prune --dry-run               what would be removed, and why the others stay
  cdigen prune                         remove the views that nobody uses
  cdigen prune --spec-dir /srv/cdi     specs in /srv/cdi name views, too
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, only say what would be")
    options.add_root_options(parser)
    parser.add_argument(
        "--spec-dir",
        metavar="DIR",
        type=options.not_empty,
        action="append",
        help="look here as well for specs that name views, beside the default and configured directories",
    )
    options.add_output_options(parser)


def run(arguments: Namespace) -> int:
    """Run the command; returns the exit code or raises a CdigenError."""
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
        hint="run the command as root; as root, look for an immutable flag with lsattr",
    )
