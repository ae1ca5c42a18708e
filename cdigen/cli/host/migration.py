"""The option ``cdigen doctor --migrate``: the leftovers of other tools, and the steps to replace them."""

from __future__ import annotations

import os
import sys

from cdigen.cli.shared import report, terminal
from cdigen.doctor.migration.plan import migration
from cdigen.doctor.migration.usage import find_requests
from cdigen.doctor.result import command_line
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import StoreError
from cdigen.model.strict import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.doctor.context import Context
    from cdigen.doctor.migration.plan import Migration, MigrationStep
    from cdigen.doctor.migration.usage import LegacyRequest

TO_DO = 1
_INDENT = "   "


def run(arguments: Namespace, context: Context) -> int:
    """Print the migration steps of the host, or the legacy requests in the files of --migrate.

    Returns 1 if there are steps or requests, else 0. Raises StoreError if a file cannot be read.
    """
    if arguments.migrate:
        requests = tuple(one for name in arguments.migrate for one in find_requests(name, _text(name)))
        plan = None
    else:
        requests, plan = (), migration(context)
    if arguments.json:
        report.print_json(_document(plan, requests))
    elif plan is None:
        report.write(sys.stdout, "\n".join(_request_lines(requests)) + "\n")
    else:
        report.write(sys.stdout, "\n".join(_plan_lines(plan, context)) + "\n")
    return TO_DO if requests or (plan is not None and plan.steps) else 0


def _text(name: str) -> str:
    try:
        return Root().read(os.path.abspath(name)).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise StoreError(f"{shown(name)}: {reason(error)}", hint="name a readable file") from error


def _document(plan: Migration | None, requests: tuple[LegacyRequest, ...]) -> dict[str, object]:
    return {
        "leftovers": as_json(plan.leftovers) if plan else [],
        "steps": [step.row() for step in plan.steps] if plan else [],
        "kept": list(plan.kept) if plan else [],
        "legacy_requests": as_json(requests),
    }


def _request_lines(requests: tuple[LegacyRequest, ...]) -> list[str]:
    if not requests:
        return ["these files contain no requests for GPUs that must be replaced"]
    lines = []
    for one in requests:
        lines.append(f"{shown(one.file)}:{one.line}: {report.paint(shown(one.request), '1', sys.stdout)}")
        lines += _wrapped(f"replacement: {shown(one.replacement)}", _INDENT)
    return lines


def _plan_lines(plan: Migration, context: Context) -> list[str]:
    if not plan.leftovers:
        return ["no leftovers of other tools"]
    lines = ["leftovers"]
    for one in plan.leftovers:
        detail = f" ({one.detail})" if one.detail else ""
        lines += _wrapped(f"{one.tool}, {one.kind}: {', '.join(one.where)}{detail}", _INDENT)
    if plan.steps:
        place = "" if context.is_live else ", on that host"
        lines += ["", f"steps, in this order{place}; to undo the steps, start with the last one"]
    for number, step in enumerate(plan.steps, start=1):
        lines += ["", *_step_lines(number, step)]
    if plan.kept:
        lines += ["", "kept"]
        lines += [line for text in plan.kept for line in _wrapped(text, _INDENT)]
    return lines


def _step_lines(number: int, step: MigrationStep) -> list[str]:
    lines = _wrapped(f"{number}. {step.name}: {step.why}", "")
    for word, commands, by_hand in (
        ("do", step.commands, step.by_hand),
        ("undo", step.undo, step.undo_by_hand),
    ):
        if commands:
            # A command is not wrapped, so that users can copy it.
            command = (
                report.paint(command_line(commands), "1", sys.stdout)
                if word == "do"
                else command_line(commands)
            )
            lines.append(f"{_INDENT}{word + ':':5} {command}")
        if by_hand:
            lines += _wrapped(f"{word + ':':5} {by_hand}", _INDENT)
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return terminal.wrap_text(f"{indent}{shown(text)}", terminal.width(), indent=f"{indent}{_INDENT}")
