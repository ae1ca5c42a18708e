"""The tables of docs/health.md: NVIDIA's Xids, the events that clear them, and all other causes."""

from __future__ import annotations

import re

from cdigen.vendors.kernel.pci.health import PCI_CAUSES
from cdigen.vendors.nvidia.health.xids import ARCHIVE, CATALOG, CLEARS_WHEN, PLUGIN, XIDS
from cdigen.vendors.registry import VENDORS, health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdigen.model.health import CauseRule

_SOURCES = {"catalog": CATALOG, "older GPUs": ARCHIVE, "device plugin": PLUGIN}
_HARMS = {
    "nothing": "nothing; no action is required",
    "application": "the application on the GPU, which must be restarted",
    "gpu": "the GPU, until its driver reports that no action is required",
    "reset": "the GPU, which needs a reset",
    "reboot": "the GPU, which needs a reboot of the host",
    "service": "the GPU, which an administrator must check",
}


def page(text: str) -> str:
    """Return TEXT, the content of docs/health.md, with new tables."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n{_table(found[1])}<!-- end -->"

    return re.sub(r"<!-- table: ([a-z ]+) -->\n.*?<!-- end -->", table, text, flags=re.DOTALL)


def _table(name: str) -> str:
    if name == "xids":
        return _xids()
    if name == "harms":
        rows = [(f"`{harm}`", words, CLEARS_WHEN.get(harm, "no cause")) for harm, words in _HARMS.items()]
        return _rows(("harm", "affected", "what clears the cause"), rows)
    if name == "causes pci":
        return _causes(PCI_CAUSES)
    return _causes(_own(name.removeprefix("causes ")))


def _own(vendor: str) -> tuple[CauseRule, ...]:
    """Return the rules of VENDOR, without the rules of Xids."""
    known = health(vendor) if vendor in VENDORS else None
    rules = known.causes if known else ()
    return tuple(
        rule for rule in rules if rule not in PCI_CAUSES and not re.fullmatch(r"xid-[0-9]+", rule.cause)
    )


def _causes(rules: tuple[CauseRule, ...]) -> str:
    rows = [(f"`{rule.cause}`", rule.meaning, rule.clears_when, _linked(rule.reference)) for rule in rules]
    return _rows(("cause", "meaning", "cleared by", "source"), rows)


def _xids() -> str:
    """Return the table of Xids, with one row for Xids of the same meaning."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for xid in XIDS:
        alike.setdefault((xid.meaning, xid.harm, xid.reference), []).append(xid.number)
    names = {url: name for name, url in _SOURCES.items()}
    rows = [
        (_numbers(numbers), meaning, f"`{harm}`", f"[{names[reference]}]")
        for (meaning, harm, reference), numbers in alike.items()
    ]
    links = "".join(f"[{name}]: {url.partition(',')[0]}\n" for name, url in _SOURCES.items())
    return f"{_rows(('Xid', 'meaning', 'harm', 'source'), rows)}\n{links}"


def _numbers(numbers: list[int]) -> str:
    """Return NUMBERS with consecutive numbers as ranges: ``39-41, 85``."""
    joined: list[list[int]] = []
    for number in numbers:
        if joined and number == joined[-1][-1] + 1:
            joined[-1].append(number)
        else:
            joined.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in joined)


def _linked(text: str) -> str:
    return re.sub(r"https://[^\s,]+", r"<\g<0>>", text)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
