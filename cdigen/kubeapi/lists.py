"""Lists of the API server: ``ListPage`` parses a page one object at a time, ``PageSize`` limits the next.

A tenant may create pods of 1.8 MB, of which a parsed one takes 14 to 35 MB. So a page has few objects, fewer
after large ones, and of a page only one object is in memory in parsed form.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

# Objects of a page at most, and the size that pages should have. A usual pod has 10 kB.
PAGE = 10
PAGE_BYTES = 2 << 20
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


class PageSize:
    """The number of objects to request in the next page, ``limit``: MOST, and fewer after large objects."""

    def __init__(self, most: int = PAGE) -> None:
        self._allowed = most
        self.limit = self._most = most

    def received(self, page: ListPage) -> None:
        """Choose the limit by the size of the objects of the last PAGE."""
        fitting = PAGE_BYTES * max(page.count, 1) // max(page.size, 1)
        self.limit = max(1, min(fitting, self._most))

    def failed(self) -> None:
        """Halve the limit: the last page was too large, or took too long."""
        self.limit = self._most = max(1, self.limit // 2)

    def finished(self) -> None:
        """Permit whole pages again: the list was complete."""
        self._most = self._allowed


class ListPage:
    """A page of a list, CONTENT in JSON; ``metadata`` and ``count`` are complete after ``items``."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self.count = 0
        self.metadata: dict[str, Any] = {}
        # A byte for each character: as UTF-8, a single emoji would make the text four times as large.
        self._text = content.decode("latin-1")

    @property
    def next_page(self) -> str:
        """The token by which the next page is requested, "": this is the last one."""
        return str(self.metadata.get("continue") or "")

    def items(self) -> Iterator[Any]:
        """Yield each object of the list. ValueError: the content is not a list in JSON."""
        at = self._after("{", 0)
        while self._text[at : at + 1] != "}":
            name, at = self._value(at)
            at = self._after(":", at)
            if name == "items" and self._text.startswith("[", at):
                at = yield from self._items(at)
            else:
                value, at = self._value(at)
                if name == "metadata" and isinstance(value, dict):
                    self.metadata = value
            at = self._after_comma(at, "}")

    def _items(self, at: int) -> Generator[Any, None, int]:
        """Yield the values of the array at AT; returns the position after it."""
        at = self._after("[", at)
        while self._text[at : at + 1] != "]":
            found, at = self._value(at)
            self.count += 1
            yield found
            del found  # before the next one is parsed
            at = self._after_comma(at, "]")
        return self._after("]", at)

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value at AT and the position after it."""
        found, end = _decode(self._text, at)
        part = self._text[at:end]
        if not part.isascii():
            del found
            found = json.loads(part.encode("latin-1"))
        return found, self._after("", end)

    def _after(self, mark: str, at: int) -> int:
        """Return the position after MARK at AT and the space after it."""
        if not self._text.startswith(mark, at):
            raise ValueError(f"no {mark!r} at byte {at} of a list")
        space = _SPACE.match(self._text, at + len(mark))
        return space.end() if space else at

    def _after_comma(self, at: int, end: str) -> int:
        """Return the position of the next element, or that of END."""
        return at if self._text.startswith(end, at) else self._after(",", at)
