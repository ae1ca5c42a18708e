"""The lists of docs/reference/health-causes.md: the Xids by harm, and all other causes."""

from __future__ import annotations

import re
import textwrap

from cdigen.health.annotate import MARKED
from cdigen.health.clearing import LOST_RULE, next_step
from cdigen.model.health import CauseRule
from cdigen.vendors.kernel.pci.health import PCI_CAUSES
from cdigen.vendors.nvidia.health.xids import XIDS
from cdigen.vendors.registry import VENDORS, health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The actions of several causes, and their names, which the text of the page explains.
_ACTIONS = {
    "reset the device, or reboot the host": "reset",
    "load the driver again, or reboot the host": "reload",
    "wait for the end of the reset; if it does not end, reboot the host": "wait",
}
# The harms of Xids in the words of the page; the last two are not causes.
_HARMS = {
    "gpu": "no action if the driver requires none",
    "reset": "a reset",
    "reboot": "a reboot",
    "service": "repair or replacement",
    "application": "no cause, an error of the application",
    "nothing": "no cause, no error of the GPU",
}
# Marks have no rule in the code, because no event clears them.
_MARK_RULE = CauseRule(
    cause=MARKED,
    cleared_by=(),
    clears_when="'cdigen health --clear DEVICE', or another device in its place",
    meaning="An administrator marked the device.",
    reference="",
    next_step="clear the mark when its reason is gone",
)


def page(text: str) -> str:
    """Return TEXT, the content of docs/reference/health-causes.md, with new tables."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{_table(found[1])}<!-- end -->"

    return re.sub(r"<!-- table: ([a-z ]+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def _table(name: str) -> str:
    if name == "xids":
        return _xids()
    if name == "causes any":
        return _causes((LOST_RULE, _MARK_RULE))
    if name == "causes pci":
        return _causes(PCI_CAUSES)
    rules = (rule for vendor in name.split()[1:] for rule in _own(vendor))
    return _causes(tuple({rule.cause: rule for rule in rules}.values()))


def _own(vendor: str) -> tuple[CauseRule, ...]:
    """Return the rules of VENDOR, without the rules of Xids."""
    known = health(vendor) if vendor in VENDORS else None
    rules = known.causes if known else ()
    return tuple(
        rule for rule in rules if rule not in PCI_CAUSES and not re.fullmatch(r"xid-[0-9]+", rule.cause)
    )


def _causes(rules: tuple[CauseRule, ...]) -> str:
    rows = [(f"`{rule.cause}`", rule.meaning, _code(rule.clears_when), _action(rule)) for rule in rules]
    return _rows(("cause", "meaning", "cleared by", "action"), rows)


def _action(rule: CauseRule) -> str:
    step = next_step(rule)
    return _ACTIONS.get(step) or _code(step)


def _xids() -> str:
    """Return the list of Xids by their harm, first those that are causes."""
    numbers: dict[str, list[int]] = {harm: [] for harm in _HARMS}
    for xid in XIDS:
        numbers[xid.harm].append(xid.number)
    lines = [f"- {_HARMS[harm]}: {_numbers(numbers[harm])}" for harm in numbers]
    return "".join(f"{line}\n" for text in lines for line in textwrap.wrap(text, 130, subsequent_indent="  "))


def _numbers(numbers: list[int]) -> str:
    """Return NUMBERS with consecutive numbers as ranges: ``39-41, 85``."""
    joined: list[list[int]] = []
    for number in numbers:
        if joined and number == joined[-1][-1] + 1:
            joined[-1].append(number)
        else:
            joined.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in joined)


def _code(text: str) -> str:
    """Return TEXT for a cell, with the commands in quotes as code."""
    return re.sub(r"(?<!\w)'([^']+)'", r"`\1`", text).replace("|", "\\|")


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
