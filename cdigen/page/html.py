"""HTML elements: ``element`` and ``joined`` escape all text that is not ``Html``.

Only this module makes ``Html``. Unprintable characters (escape sequences, direction marks) are printed as
codes, as in all other output of cdigen.
"""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# The elements and attributes of the page. None of them runs code or fetches a file. The attribute ``style``
# is not permitted.
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
# Texts come from drivers, images and pods, and may have any content and length.
MAX_TEXT = 600


class Html(str):
    """Text that is HTML and is not escaped again. Methods of str return plain text, which is escaped."""

    __slots__ = ()


NOTHING = Html()


def element(tag: str, *children: str, **attributes: str | int | None) -> Html:
    """Return the element TAG with CHILDREN (Html or plain text), and the ATTRIBUTES that are not None.

    An underscore in an attribute's name becomes a hyphen; an underscore at the end is dropped (``class_``).
    Raises ValueError for an element or attribute that the page does not use, and for a link to another site.
    """
    if tag not in _KNOWN_TAGS:
        raise ValueError(f"not an element of the page: {tag}")
    opening = "".join([tag, *(_attribute(name, value) for name, value in attributes.items())])
    if tag in _VOID:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{joined(children)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Return PARTS in their order, separated by BETWEEN."""
    return Html(plain(between).join([part if isinstance(part, Html) else plain(part) for part in parts]))


def plain(text: str) -> Html:
    """Return the plain TEXT as HTML. A text longer than MAX_TEXT is cut, and its length is added."""
    if isinstance(text, Html):
        return text
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
    if not text.isprintable():
        text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    return Html(escape(text))


def trusted(markup: str) -> Html:
    """Return MARKUP as Html without escaping. Use it only for constants and pictures of this program."""
    return Html(markup)


def _attribute(name: str, value: str | int | None) -> str:
    name = name.removesuffix("_").replace("_", "-")
    if name not in _KNOWN_ATTRIBUTES:
        raise ValueError(f"not an attribute of the page: {name}")
    if value is None:
        return ""
    if name == "href" and not (isinstance(value, str) and value[:1] == "/" != value[1:2]):
        raise ValueError(f"a link to another site: {value}")
    return f' {name}="{plain(str(value))}"'
