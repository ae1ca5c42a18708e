"""``HealthWatch``: a thread that handles health events immediately, between and during cycles.

A cycle may wait for the installation of a package, or for a library that hangs. The thread does not wait for
the cycle. After each health change, for example after an error in the kernel log, the thread writes
inventory.json. All facts in the file except health are from the last cycle.
"""

from __future__ import annotations

import threading

from cdigen.health.prober import Prober
from cdigen.host.clocks import boottime
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.health.tracker import HealthTracker
    from cdigen.model.health import HealthSample
    from cdigen.watch.kernel_log import KernelLogSource
    from cdigen.watch.supervisor import Source
    from cdigen.watch.uevents import UeventSource

# Pause in seconds after the thread has handled events. Even if the kernel log is flooded, the thread handles
# events at most ten times per second.
PAUSE_S = 0.1


class HealthWatch:
    """A source of triggers (reasons for a cycle). It puts a trigger for each change of a device's health.

    The thread reads SOURCES after each ``wake``. It calls SHOW to write the inventories before it puts the
    triggers. PROBE_S returns the interval of the vendors' probes in seconds.
    """

    name = "health"

    def __init__(
        self,
        tracker: HealthTracker,
        sources: tuple[KernelLogSource, UeventSource],
        *,
        show: Callable[[], object],
        probe_s: Callable[[], float],
    ) -> None:
        self._tracker = tracker
        self._log, self._uevents = sources
        self._show = show
        self._probe_s = probe_s
        self._prober = Prober(tracker.probe, self._probed, clock=boottime)
        self._worker = Worker(self.name)
        self._wake_event = threading.Event()

    def wake(self) -> None:
        """Make the thread read the sources immediately."""
        self._wake_event.set()

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start the thread; see ``Source``."""
        self._worker.start(lambda: self._work(put), put)

    def stop(self) -> None:
        """Stop the thread; see ``Source``."""
        self._worker.stopping.set()
        self._wake_event.set()
        self._worker.stop()

    def problem(self) -> str:
        """Return the reason why the thread handles no health events, or ""; see ``Source``."""
        return self._worker.problem()

    def _work(self, put: Callable[[Trigger], None]) -> None:
        stopping = self._worker.stopping
        wait_s: float | None = 0.0
        while not stopping.is_set():
            self._wake_event.wait(wait_s)
            self._wake_event.clear()
            if stopping.is_set():
                return
            # Devices are unknown before the first cycle. Each cycle wakes this thread.
            wait_s = self._turn(put) if self._tracker.is_ready else None
            stopping.wait(PAUSE_S)

    def _turn(self, put: Callable[[Trigger], None]) -> float | None:
        """Handle the present events; return the seconds until the next call, or None to wait for ``wake``."""
        tracker = self._tracker
        batch = self._log.take()
        tracker.take_in(batch.records, self._uevents.take(), lost=batch.lost)
        self._report(put)
        # The state is saved after the inventories, because a write to a busy disk may take seconds.
        tracker.save()
        for vendor in tracker.take_suspicious():
            self._prober.request(vendor)
        probe_s = self._prober.turn(tracker.vendors(), tracker.awaited(), self._probe_s())
        tracker.set_hanging(self._prober.hanging())
        times = [time_s for time_s in (probe_s, tracker.due_s()) if time_s is not None]
        return max(0.0, min(times) - boottime()) if times else None

    def _report(self, put: Callable[[Trigger], None]) -> None:
        """Write the inventories if they have changed, and put a trigger for each changed device."""
        if not self._tracker.is_shown:
            self._show()
        for device in self._tracker.take_changed():
            put(Trigger(source=self.name, reason=f"the health of {device} has changed"))

    def _probed(self, vendor: str, sample: HealthSample, began_s: float) -> None:
        self._tracker.probed(vendor, sample, began_s)
        self.wake()


class NotifyingSource:
    """Wraps SOURCE. Each trigger of SOURCE wakes WATCH. With IS_QUIET, the trigger has no other effect."""

    def __init__(self, source: Source, watch: HealthWatch, *, is_quiet: bool) -> None:
        self.name = source.name
        self._source = source
        self._watch = watch
        self._is_quiet = is_quiet

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start the wrapped source; see ``Source``."""

        def notify(trigger: Trigger) -> None:
            self._watch.wake()
            if not self._is_quiet:
                put(trigger)

        self._source.start(notify)

    def stop(self) -> None:
        """Stop the wrapped source; see ``Source``."""
        self._source.stop()

    def problem(self) -> str:
        """Return the reason why the wrapped source misses changes, or ""; see ``Source``."""
        return self._source.problem()
