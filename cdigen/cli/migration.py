"""``cdigen doctor --migrate``: what of other tools is here, and the way from them to cdigen."""

from __future__ import annotations

import os
import sys

from cdigen.cli import report, terminal
from cdigen.doctor.migration.plan import migration
from cdigen.doctor.migration.usage import judge
from cdigen.doctor.result import command_line
from cdigen.host.root import Root, reason, shown
from cdigen.model.errors import StoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from cdigen.doctor.context import Context
    from cdigen.doctor.migration.result import Migration, Step
    from cdigen.doctor.migration.usage import Use

TO_DO = 1
_INDENT = "   "


def run(arguments: Namespace, context: Context) -> int:
    """Print what there is to do, of the host or of the files that were given; returns 1 if there is anything.

    Raises StoreError where a file cannot be read.
    """
    if arguments.migrate:
        uses = tuple(use for name in arguments.migrate for use in judge(name, _text(name)))
        plan = None
    else:
        uses, plan = (), migration(context)
    if arguments.json:
        report.print_json(_document(plan, uses))
    elif plan is None:
        report.write(sys.stdout, "\n".join(_use_lines(uses)) + "\n")
    else:
        report.write(sys.stdout, "\n".join(_plan_lines(plan, context)) + "\n")
    return TO_DO if uses or (plan is not None and plan.steps) else 0


def _text(name: str) -> str:
    try:
        return Root().read(os.path.abspath(name)).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise StoreError(f"{shown(name)}: {reason(error)}", hint="name a file that can be read") from error


def _document(plan: Migration | None, uses: tuple[Use, ...]) -> dict[str, object]:
    return {
        "found": [one.row() for one in plan.found] if plan else [],
        "steps": [step.row() for step in plan.steps] if plan else [],
        "stays": list(plan.stays) if plan else [],
        "uses": [use.row() for use in uses],
    }


def _use_lines(uses: tuple[Use, ...]) -> list[str]:
    if not uses:
        return ["nothing in these files needs another tool"]
    lines = []
    for use in uses:
        lines.append(f"{shown(use.file)}:{use.line}: {report.paint(shown(use.found), '1', sys.stdout)}")
        lines += _wrapped(f"write: {shown(use.write)}", _INDENT)
    return lines


def _plan_lines(plan: Migration, context: Context) -> list[str]:
    if not plan.found:
        return ["nothing of other tools was found"]
    lines = ["found"]
    for one in plan.found:
        detail = f" ({one.detail})" if one.detail else ""
        lines += _wrapped(f"{one.tool}, {one.kind}: {', '.join(one.where)}{detail}", _INDENT)
    if plan.steps:
        there = "" if context.is_live else ", on that host"
        lines += ["", f"steps, in this order{there}; each can be taken back, the last first"]
    for number, step in enumerate(plan.steps, start=1):
        lines += ["", *_step_lines(number, step)]
    if plan.stays:
        lines += ["", "stays"]
        lines += [line for text in plan.stays for line in _wrapped(text, _INDENT)]
    return lines


def _step_lines(number: int, step: Step) -> list[str]:
    lines = _wrapped(f"{number}. {step.name}: {step.why}", "")
    for word, commands, by_hand in (
        ("do", step.commands, step.by_hand),
        ("back", step.undo, step.undo_by_hand),
    ):
        if commands:
            # Not wrapped: it is to be copied.
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
