"""The components of all parts of the page: states, times, amounts, tables, sections.

A state has a word, a colour and a mark with a separate shape. Each of the three is sufficient to recognize
the state.
"""

from __future__ import annotations

from cdigen.model.times.ages import duration
from cdigen.model.times.timestamps import timestamp
from cdigen.page.html import Html, element, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    # good: no action; wait: an action may be needed; bad: an action is needed; none: absent or unknown.
    Tone = Literal["good", "wait", "bad", "none"]
    # The cells of a row. The first cell is the header of the row.
    Row = Sequence[str]

UNKNOWN = element("span", "unknown", class_="soft stat")
# A disc, a triangle, a cross and a ring, in a square with 12 units per side.
_SHAPES = {
    "good": "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z",
    "wait": "M6 .8 11.6 11H.4z",
    "bad": "M2.5 1 6 4.5 9.5 1 11 2.5 7.5 6 11 9.5 9.5 11 6 7.5 2.5 11 1 9.5 4.5 6 1 2.5z",
    "none": "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10zm0 2a3 3 0 1 1 0 6a3 3 0 1 1 0-6z",
}
_MARKS = {
    tone: element(
        "svg", element("path", d=shape), class_=f"mark {tone}", viewBox="0 0 12 12", aria_hidden="true"
    )
    for tone, shape in _SHAPES.items()
}
_MIB, _GIB = 1 << 20, 1 << 30


def mark(tone: Tone) -> Html:
    """Return the mark of TONE. Screen readers skip the mark, because a word is next to it."""
    return _MARKS[tone]


def state(tone: Tone, name: str) -> Html:
    """Return the name of a state (NAME), with the mark of TONE."""
    return element("span", mark(tone), name, class_=f"state {tone}")


def age(at_s: float | None, now_s: float) -> Html:
    """Return the time from AT_S to NOW_S as HTML. The tooltip shows AT_S."""
    if at_s is None:
        return UNKNOWN
    stamp = timestamp(at_s)
    return element("time", duration(now_s - at_s), datetime=stamp, title=stamp)


def amount(used: int | None, total: int | None) -> Html:
    """Return USED and TOTAL bytes as HTML (None is unknown), with a bar if both amounts are known."""
    if total is None:
        return UNKNOWN if used is None else joined([size_of(used), " used"])
    if used is None:
        return joined([size_of(total), ", ", element("span", "use unknown", class_="soft")])
    percent = used * 100 // total if total > 0 else 0
    return joined([f"{_number(used, total)} of {size_of(total)}", bar(percent)])


def bar(percent: float) -> Html:
    """Return a bar that is filled to PERCENT. Screen readers skip the bar."""
    width = min(max(round(percent), 0), 100)
    inside = (
        element("rect", class_="track", width=100, height=4),
        element("rect", class_="fill", width=width, height=4),
    )
    return element(
        "svg", *inside, class_="bar", viewBox="0 0 100 4", preserveAspectRatio="none", aria_hidden="true"
    )


def size_of(count: int) -> str:
    """Return COUNT bytes in GiB or MiB."""
    return f"{_number(count, count)} {'GiB' if count >= _GIB else 'MiB'}"


def _number(count: int, total: int) -> str:
    """Return COUNT in the unit of TOTAL, without the unit."""
    return f"{count / _GIB:.1f}".removesuffix(".0") if total >= _GIB else str(count // _MIB)


def lines(*parts: str) -> Html:
    """Return the non-empty PARTS, each part in a separate line."""
    return joined([element("div", part) for part in parts if part])


def table(label: str, header: Sequence[str], groups: Iterable[Iterable[Row]], *, kind: str = "") -> Html:
    """Return a table named LABEL. On narrow screens, each row is a card, and HEADER names the cells.

    Each of GROUPS is a main row, and a row for each of its parts. KIND is the CSS class.
    """
    # Browsers drop the semantics of a table that the style shows as cards, so each element has a role.
    head = [element("th", name, scope="col", role="columnheader") for name in header]
    bodies = [
        element(
            "tbody",
            *(_row(header, row, is_part=number > 0) for number, row in enumerate(group)),
            role="rowgroup",
        )
        for group in groups
    ]
    return element(
        "table",
        element("thead", element("tr", *head, role="row"), role="rowgroup"),
        *bodies,
        role="table",
        class_=kind or None,
        aria_label=label,
    )


def _row(header: Sequence[str], row: Row, *, is_part: bool) -> Html:
    named = element("th", row[0], scope="row", role="rowheader")
    cells = [
        element("td", element("div", cell), role="cell", data_label=name, class_=None if cell else "empty")
        for name, cell in zip(header[1:], row[1:], strict=True)
    ]
    return element("tr", named, *cells, role="row", class_="part" if is_part else None)


def section(name: str, title: str, *content: str) -> Html:
    """Return a section of the page with the heading TITLE; NAME is the id of the heading."""
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def note(*content: str) -> Html:
    """Return a line of secondary text."""
    return element("p", *content, class_="note")


def code(text: str) -> Html:
    """Return TEXT as code, for text that people type or copy."""
    return element("code", text)
