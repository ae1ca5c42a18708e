"""``HealthWatch``: the thread that takes in at once what tells of devices' health, between and during cycles.

A cycle may wait for a package's installation, or for a library that hangs. An error in the kernel's log is in
inventory.json all the same: this thread writes it into the inventories of the last cycle.
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

    from cdigen.health.keeper import Keeper
    from cdigen.model.health import Look
    from cdigen.watch.kernel_log import KernelLogSource
    from cdigen.watch.supervisor import Source
    from cdigen.watch.uevents import UeventSource

# Between two turns: a log that is flooded costs ten turns a second.
PAUSE_S = 0.1


class HealthWatch:
    """A source that tells of each change of devices' health, when it has given SHOW the new inventories.

    SOURCES are asked for what they have heard whenever they ``wake`` it. PROBE_S is how often vendors are
    probed, and is asked each time.
    """

    name = "health"

    def __init__(
        self,
        keeper: Keeper,
        sources: tuple[KernelLogSource, UeventSource],
        *,
        show: Callable[[], object],
        probe_s: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._log, self._uevents = sources
        self._show = show
        self._probe_s = probe_s
        self._prober = Prober(keeper.ask, self._probed, clock=boottime)
        self._worker = Worker(self.name)
        self._bell = threading.Event()

    def wake(self) -> None:
        """Let the thread look at once."""
        self._bell.set()

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Begin; see ``Source``."""
        self._worker.start(lambda: self._work(put), put)

    def stop(self) -> None:
        """End; see ``Source``."""
        self._worker.stopping.set()
        self._bell.set()
        self._worker.stop()

    def problem(self) -> str:
        """Return why nothing is taken in any more; see ``Source``."""
        return self._worker.problem()

    def _work(self, put: Callable[[Trigger], None]) -> None:
        stopping = self._worker.stopping
        wait_s: float | None = 0.0
        while not stopping.is_set():
            self._bell.wait(wait_s)
            self._bell.clear()
            if stopping.is_set():
                return
            # The first cycle has to tell which devices there are; each one wakes this thread.
            wait_s = self._turn(put) if self._keeper.is_ready else None
            stopping.wait(PAUSE_S)

    def _turn(self, put: Callable[[Trigger], None]) -> float | None:
        """Take in what there is; returns how long nothing has to be done, None for ever."""
        keeper = self._keeper
        heard = self._log.take()
        keeper.take_in(heard.records, self._uevents.take(), lost=heard.lost)
        self._tell(put)
        # After it is shown: a disk that is busy may take seconds.
        keeper.save()
        for vendor in keeper.take_suspicious():
            self._prober.want(vendor)
        probe_s = self._prober.turn(keeper.vendors(), keeper.awaited(), self._probe_s())
        keeper.hangs(self._prober.hanging())
        times = [time_s for time_s in (probe_s, keeper.due_s()) if time_s is not None]
        return max(0.0, min(times) - boottime()) if times else None

    def _tell(self, put: Callable[[Trigger], None]) -> None:
        """Show the inventories where they are others, and put a trigger for each device that is."""
        if not self._keeper.is_shown:
            self._show()
        for device in self._keeper.take_changed():
            put(Trigger(source=self.name, reason=f"the health of {device} has changed"))

    def _probed(self, vendor: str, look: Look, began_s: float) -> None:
        self._keeper.probed(vendor, look, began_s)
        self.wake()


class Heeded:
    """SOURCE, whose triggers wake WATCH at once; unless IS_QUIET they are put as well."""

    def __init__(self, source: Source, watch: HealthWatch, *, is_quiet: bool) -> None:
        self.name = source.name
        self._source = source
        self._watch = watch
        self._is_quiet = is_quiet

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Begin; see ``Source``."""

        def heed(trigger: Trigger) -> None:
            self._watch.wake()
            if not self._is_quiet:
                put(trigger)

        self._source.start(heed)

    def stop(self) -> None:
        """End; see ``Source``."""
        self._source.stop()

    def problem(self) -> str:
        """Return what prevents it from seeing all; see ``Source``."""
        return self._source.problem()
