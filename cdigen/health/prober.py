"""``Prober``: asks each vendor's ``probe`` in a thread of its own, seldom, and soon after an error.

A probe that hangs keeps its thread, and no other is started for its vendor; the others go on.
"""

from __future__ import annotations

import threading

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.model.health import Look

# However many errors there are, the vendor's library is asked no more often: a session takes up to seconds.
FLOOR_S = 30.0
# A probe in child processes has deadlines of its own; one that takes longer than this hangs.
HANGS_AFTER_S = 120.0
# How often it is seen whether a probe has ended.
CHECK_S = 5.0


@frozen
class _Asked:
    """When a vendor's probe last began, and whether something has happened since."""

    began_s: float | None = None
    is_wanted: bool = False
    thread: threading.Thread | None = None


class Prober:
    """Runs ``ask(vendor)``, and gives ``answer`` the vendor, its look and when it began.

    Both are called in a thread of the probe. CLOCK is CLOCK_BOOTTIME. One thread calls the methods.
    """

    def __init__(
        self,
        ask: Callable[[str], Look],
        answer: Callable[[str, Look, float], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._answer = answer
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    def want(self, vendor: str) -> None:
        """Ask VENDOR soon: something has happened."""
        self._asked[vendor] = replace(self._asked.get(vendor, _Asked()), is_wanted=True)

    def turn(self, vendors: Iterable[str], awaited: Mapping[str, float], period_s: float) -> float | None:
        """Start what is due for VENDORS; returns when to call this next, None for never.

        AWAITED says from when on the answer of a vendor would clear a cause.
        """
        times = []
        now_s = self._clock()
        for vendor in vendors:
            asked = self._asked.get(vendor, _Asked())
            if asked.thread is not None and asked.thread.is_alive():
                times.append(now_s + CHECK_S)
                continue
            due_s = _due_s(asked, awaited.get(vendor), period_s)
            if due_s is None or due_s <= now_s:
                self._start(vendor, now_s)
            else:
                times.append(due_s)
        return min(times, default=None)

    def hanging(self) -> tuple[str, ...]:
        """Return the vendors whose probe has been running for too long."""
        now_s = self._clock()
        return tuple(
            vendor
            for vendor, asked in self._asked.items()
            if asked.thread is not None
            and asked.thread.is_alive()
            and asked.began_s is not None
            and now_s - asked.began_s > HANGS_AFTER_S
        )

    def _start(self, vendor: str, now_s: float) -> None:
        thread = threading.Thread(
            target=self._run, args=(vendor, now_s), name=f"cdigen-probe-{vendor}", daemon=True
        )
        self._asked[vendor] = _Asked(began_s=now_s, thread=thread)
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started now: the next turn tries again after the floor.
            self._asked[vendor] = _Asked(began_s=now_s, is_wanted=True)

    def _run(self, vendor: str, began_s: float) -> None:
        self._answer(vendor, self._ask(vendor), began_s)


def _due_s(asked: _Asked, awaited_s: float | None, period_s: float) -> float | None:
    """Return when to ask again; None: now."""
    if asked.began_s is None:
        return None
    if asked.is_wanted:
        return asked.began_s + FLOOR_S
    due_s = asked.began_s + period_s
    if awaited_s is not None and asked.began_s < awaited_s:
        due_s = min(due_s, max(awaited_s, asked.began_s + FLOOR_S))
    return due_s
