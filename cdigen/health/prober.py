"""``Prober``: runs the ``probe`` of each vendor in a separate thread, at long intervals and after errors.

A probe that hangs keeps its thread. The vendor then gets no second probe. Probes of other vendors continue.
"""

from __future__ import annotations

import threading

from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdigen.model.health import HealthSample

# Shortest interval of probes in seconds, also during many errors. A session of a library may take seconds.
FLOOR_S = 30.0
# A probe that takes more than this number of seconds hangs. Probes in child processes have shorter deadlines.
HANGS_AFTER_S = 120.0
# Interval in seconds at which ``turn`` checks whether a running probe has ended.
CHECK_S = 5.0


@frozen
class _Schedule:
    """The start of a vendor's last probe, and whether a further probe was requested later."""

    began_s: float | None = None
    is_requested: bool = False
    thread: threading.Thread | None = None


class Prober:
    """Runs ``probe(vendor)``, and calls ``report`` with the vendor, the sample and the start time.

    Both functions run in the thread of the probe. CLOCK returns CLOCK_BOOTTIME. A single thread calls the
    methods of this class.
    """

    def __init__(
        self,
        probe: Callable[[str], HealthSample],
        report: Callable[[str, HealthSample, float], None],
        *,
        clock: Callable[[], float],
    ) -> None:
        self._probe = probe
        self._report = report
        self._clock = clock
        self._schedules: dict[str, _Schedule] = {}

    def request(self, vendor: str) -> None:
        """Request a probe of VENDOR after an event; a later ``turn`` starts the probe."""
        self._schedules[vendor] = replace(self._schedules.get(vendor, _Schedule()), is_requested=True)

    def turn(self, vendors: Iterable[str], awaited: Mapping[str, float], period_s: float) -> float | None:
        """Start the due probes of VENDORS; return the time of the next call, or None for no call.

        AWAITED has, for each vendor, the earliest time at which a probe can clear a cause. PERIOD_S is the
        interval of probes if no event requests a probe.
        """
        times = []
        now_s = self._clock()
        for vendor in vendors:
            schedule = self._schedules.get(vendor, _Schedule())
            if schedule.thread is not None and schedule.thread.is_alive():
                times.append(now_s + CHECK_S)
                continue
            due_s = _due_s(schedule, awaited.get(vendor), period_s)
            if due_s is None or due_s <= now_s:
                self._start(vendor, now_s)
            else:
                times.append(due_s)
        return min(times, default=None)

    def hanging(self) -> tuple[str, ...]:
        """Return the vendors with a probe that has run for more than ``HANGS_AFTER_S``."""
        now_s = self._clock()
        return tuple(
            vendor
            for vendor, schedule in self._schedules.items()
            if schedule.thread is not None
            and schedule.thread.is_alive()
            and schedule.began_s is not None
            and now_s - schedule.began_s > HANGS_AFTER_S
        )

    def _start(self, vendor: str, now_s: float) -> None:
        thread = threading.Thread(
            target=self._run, args=(vendor, now_s), name=f"cdigen-probe-{vendor}", daemon=True
        )
        self._schedules[vendor] = _Schedule(began_s=now_s, thread=thread)
        try:
            thread.start()
        except RuntimeError:
            # No thread can be started now. A later turn retries after ``FLOOR_S``.
            self._schedules[vendor] = _Schedule(began_s=now_s, is_requested=True)

    def _run(self, vendor: str, began_s: float) -> None:
        self._report(vendor, self._probe(vendor), began_s)


def _due_s(schedule: _Schedule, awaited_s: float | None, period_s: float) -> float | None:
    """Return the time of the next probe, or None for an immediate probe."""
    if schedule.began_s is None:
        return None
    if schedule.is_requested:
        return schedule.began_s + FLOOR_S
    due_s = schedule.began_s + period_s
    if awaited_s is not None and schedule.began_s < awaited_s:
        due_s = min(due_s, max(awaited_s, schedule.began_s + FLOOR_S))
    return due_s
