"""Lists of the API server: ``ListPage`` parses one object at a time, ``PageSize`` limits the next page.

A tenant may create pods of 1.8 MB. Such a pod takes 14 to 35 MB in parsed form. So a page has few objects.
After large objects, the next page has fewer objects. Only one object of a page is in memory in parsed form.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

# The largest number of objects in a page, and the intended size of a page in bytes. A typical pod has 10 kB.
PAGE = 10
PAGE_BYTES = 2 << 20
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


class PageSize:
    """The number of objects to request in the next page.

    ``limit`` is the argument MOST or, after large objects, a smaller number.
    """

    def __init__(self, most: int = PAGE) -> None:
        self._allowed = most
        self.limit = self._most = most

    def received(self, page: ListPage) -> None:
        """Set the limit by the size of the objects in PAGE, which is the last page."""
        fitting = PAGE_BYTES * max(page.count, 1) // max(page.size, 1)
        self.limit = max(1, min(fitting, self._most))

    def failed(self) -> None:
        """Halve the limit, because the last page was too large or took too long."""
        self.limit = self._most = max(1, self.limit // 2)

    def finished(self) -> None:
        """Permit the largest number of objects (the argument MOST) again, because the list was complete."""
        self._most = self._allowed


class ListPage:
    """A page of a list, from the JSON CONTENT; ``items`` completes ``metadata`` and ``count``."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        self.count = 0
        self.metadata: dict[str, Any] = {}
        # latin-1 makes a character of each byte. A text from UTF-8 with a single emoji would need four times
        # the memory.
        self._text = content.decode("latin-1")

    @property
    def next_page(self) -> str:
        """The token of the next page, or "" for the last page."""
        return str(self.metadata.get("continue") or "")

    def items(self) -> Iterator[Any]:
        """Yield each object of the list, or raise ValueError if the content is not a list in JSON."""
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
        """Yield the values of the array at the position AT; return the position after the array."""
        at = self._after("[", at)
        while self._text[at : at + 1] != "]":
            found, at = self._value(at)
            self.count += 1
            yield found
            del found  # frees the memory for the next object
            at = self._after_comma(at, "]")
        return self._after("]", at)

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value at the position AT, and the position after the value."""
        found, end = _decode(self._text, at)
        part = self._text[at:end]
        if not part.isascii():
            del found
            found = json.loads(part.encode("latin-1"))
        return found, self._after("", end)

    def _after(self, mark: str, at: int) -> int:
        """Return the position after MARK and the white space that follows; MARK must be at position AT."""
        if not self._text.startswith(mark, at):
            raise ValueError(f"no {mark!r} at byte {at} of a list")
        space = _SPACE.match(self._text, at + len(mark))
        return space.end() if space else at

    def _after_comma(self, at: int, end: str) -> int:
        """Return the position of the next element, or AT if the text END is at the position AT."""
        return at if self._text.startswith(end, at) else self._after(",", at)
