"""``Source``: the protocol of everything that tells when to look at the host again."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.watch.triggers import Trigger


class Source(Protocol):
    """Something that says when to look again; one thread starts and stops it, any may ask ``problem``."""

    @property
    def name(self) -> str:
        """What its triggers and its health are listed under."""

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Begin: whatever changes after this returns makes a trigger. May be called again after ``stop``.

        OSError, CdigenError: it cannot work; nothing is left running then.
        """

    def stop(self) -> None:
        """End within 1 s, whatever state it is in; no trigger comes afterwards, unless its thread hangs."""

    def problem(self) -> str:
        """Return what keeps it from seeing all that it should, in one line; empty: nothing."""
