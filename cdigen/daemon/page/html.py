"""HTML from elements: ``element``, ``joined``; every text in them is escaped, unless it is ``Html`` already.

Only this module makes ``Html``. What is no text for people (escape sequences, what turns the direction of
text) is shown by its code, so a host's names are seen as they are.
"""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The elements and attributes that the page has. None of them runs, fetches, or styles.
_VOID = frozenset({"meta"})
_TAGS = """
    a body code dd div dl dt footer h1 h2 head header html li main meta p path rect section span strong
    style svg table tbody td th thead time title tr ul
"""
_ATTRIBUTES = """
    aria-hidden aria-label aria-labelledby charset class content d data-label datetime height href id lang
    name preserveAspectRatio role scope tabindex title viewBox width
"""
_KNOWN_TAGS, _KNOWN_ATTRIBUTES = frozenset(_TAGS.split()), frozenset(_ATTRIBUTES.split())
# Texts come from drivers, images and pods, and may be anything.
MAX_TEXT = 600


class Html(str):
    """Text that is HTML. What is made of it by str's own methods is plain text again, and is escaped."""

    __slots__ = ()


NOTHING = Html()


def element(tag: str, *children: str, **attributes: str | int | None) -> Html:
    """Return the element TAG with CHILDREN, each Html or plain text, and ATTRIBUTES that are not None.

    An underscore in an attribute's name stands for a hyphen, one at its end for nothing (``class_``).
    ValueError: the page has no such element or attribute, or it is a link to elsewhere.
    """
    if tag not in _KNOWN_TAGS:
        raise ValueError(f"no element of the page: {tag}")
    opening = "".join([tag, *(_attribute(name, value) for name, value in attributes.items())])
    if tag in _VOID:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Return PARTS one after the other, with BETWEEN between them."""
    return Html(plain(between).join([part if isinstance(part, Html) else plain(part) for part in parts]))


def plain(text: str) -> Html:
    """Return the plain TEXT as HTML; longer than MAX_TEXT it is cut, and says so."""
    if isinstance(text, Html):
        return text
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
    if not text.isprintable():
        text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return Html(escape(text))


def trusted(markup: str) -> Html:
    """Return MARKUP as it is: of the program's own constants, and what it has drawn and escaped itself."""
    return Html(markup)


def _attribute(name: str, value: str | int | None) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if name not in _KNOWN_ATTRIBUTES:
        raise ValueError(f"no attribute of the page: {name}")
    if value is None:
        return ""
    if name == "href" and not (isinstance(value, str) and value[:1] == "/" != value[1:2]):
        raise ValueError(f"a link to elsewhere: {value}")
    return f' {name}="{plain(str(value))}"'
