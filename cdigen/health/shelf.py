"""``Shelf``: when the book is written to its file, and what is wrong with that.

A disk may be slow or full. Whoever saves waits for it without the keeper's lock: what is heard meanwhile is
shown all the same.
"""

from __future__ import annotations

import threading

from cdigen.health import book_file
from cdigen.model.errors import StoreError
from cdigen.model.findings import finding_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.health.book import Book
    from cdigen.model.findings import Finding

# What changes all the time is saved so often, and a save that failed is tried again so soon.
SAVE_AGAIN_S, RETRY_S = 300.0, 5.0


class Shelf:
    """Has the book's file; CLOCK is CLOCK_BOOTTIME."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._saved: Book | None = None
        self._tried_s = 0.0
        self._unread: Finding | None = None
        self._unsaved: Finding | None = None

    def read(self, state_dir: str, boot: str) -> Book:
        """Return the book of this BOOT in STATE_DIR, else an empty one."""
        self._saved, self._unread = book_file.read(state_dir, boot, self._clock())
        return self._saved

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with the file."""
        return tuple(one for one in (self._unread, self._unsaved) if one is not None)

    def save(self, state_dir: str, newest: Callable[[], Book | None], *, at_once: bool = False) -> None:
        """Write the NEWEST book where what counts in it is other than in its file, or AT ONCE if any is."""
        with self._lock:
            # Asked for here, so that of two threads none replaces a newer book by an older one.
            book = newest()
            if book is None or self._saved is None or book == self._saved:
                return
            if at_once or self._clock() - self._tried_s >= self._wait_s(book, self._saved):
                self._write(state_dir, book)

    def _wait_s(self, book: Book, saved: Book) -> float:
        """Return how long after the last try BOOK may be written."""
        if book_file.essence(book) == book_file.essence(saved):
            return SAVE_AGAIN_S
        return RETRY_S if self._unsaved is not None else 0.0

    def _write(self, state_dir: str, book: Book) -> None:
        self._tried_s = self._clock()
        try:
            book_file.save(state_dir, book)
        except StoreError as error:
            self._unsaved = finding_of(error, f"{state_dir}/{book_file.FILE}")
        else:
            self._saved, self._unread, self._unsaved = book, None, None
