"""``FiguresOnDemand``: what the devices do, asked of the vendors when somebody wants to know, and never else.

Each vendor is asked in a thread of its own, since its library or the kernel may hang: that costs the others
nothing, and no second thread is started while one hangs. Whoever asks meanwhile waits for the same answer,
which is good for all for FRESH_S.
"""

from __future__ import annotations

import threading
import time

from cdigen.model.errors import ConfigError
from cdigen.value import frozen
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.model.figures import DeviceFigures
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.health import VendorHealth

# NVML's start can wake GPUs for seconds.
FRESH_S = 5.0
# So many threads may wait at once; whoever comes then has to take what is known.
MAX_WAITING = 2
PENDING = "there is no answer yet"


@frozen
class VendorFigures:
    """The figures of a vendor's devices, read at ``at_s`` (time.time), or the ``problem`` for which not."""

    vendor: str
    devices: tuple[DeviceFigures, ...] = ()
    problem: str = ""
    at_s: float | None = None


class FiguresOnDemand:
    """Asks the vendors of the host for figures.

    CONTEXT says where they are read, and may raise ConfigError. HEALTH finds who tells a vendor's figures; a
    vendor of which nobody can is left out of all answers.
    """

    def __init__(
        self,
        context: Callable[[], DiscoveryContext],
        *,
        health: Callable[[str], VendorHealth | None] = registry.health,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._health = health
        self._clock = clock
        # Guards what follows; notified when a vendor has answered, and at the end.
        self._changed = threading.Condition()
        self._inventories: Mapping[str, Inventory] = {}
        self._sessions: dict[str, _Session] = {}
        self._waiting = 0
        self._is_closed = False

    def show(self, inventories: Mapping[str, Inventory]) -> None:
        """Let whoever asks from now on be told of the devices of INVENTORIES."""
        with self._changed:
            self._inventories = inventories

    def ask(self, wait_s: float, *, stale_s: float = 0.0) -> tuple[VendorFigures, ...]:
        """Return the figures of each vendor, after WAIT_S at the most.

        What is younger than FRESH_S is not asked for again. A vendor that has not answered by then is told
        with its last answer if that is not older than STALE_S, else with a problem.
        """
        with self._changed:
            sessions = [
                self._session(vendor, inventory)
                for vendor, inventory in self._inventories.items()
                if inventory.accelerators and self._health(vendor) is not None
            ]
            self._wait(sessions, wait_s)
            now = self._clock()
            return tuple(session.told(now, stale_s) for session in sessions)

    def close(self) -> None:
        """Let nobody wait any longer, now or later."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _wait(self, sessions: list[_Session], wait_s: float) -> None:
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        try:
            self._changed.wait_for(
                lambda: self._is_closed or all(session.answer for session in sessions), wait_s
            )
        finally:
            self._waiting -= 1

    def _session(self, vendor: str, inventory: Inventory) -> _Session:
        """Return the session with VENDOR that is under way, or fresh, or a new one."""
        last = self._sessions.get(vendor)
        if last is not None and (last.answer is None or self._clock() - last.ended_s < FRESH_S):
            return last
        session = self._sessions[vendor] = _Session(vendor, last)
        thread = threading.Thread(
            target=self._run, args=(session, inventory), name=f"figures-{vendor}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._end(session, VendorFigures(vendor=vendor, problem=f"{error}"))
        return session

    def _run(self, session: _Session, inventory: Inventory) -> None:
        vendor = session.vendor
        health = self._health(vendor)
        try:
            devices = health.figures(self._context(), inventory) if health is not None else ()
            answer = VendorFigures(vendor=vendor, devices=devices, at_s=time.time())
        except ConfigError as error:  # a driver container that is gone
            answer = VendorFigures(vendor=vendor, problem=error.message)
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code costs no other its figures
            answer = VendorFigures(vendor=vendor, problem=f"cdigen's code failed: {error!r}")
        with self._changed:
            self._end(session, answer)

    def _end(self, session: _Session, answer: VendorFigures) -> None:
        session.answer, session.ended_s = answer, self._clock()
        session.last = None
        self._changed.notify_all()


class _Session:
    """One asking of a vendor: ``answer`` is None while it is under way; then ``last`` is the one before."""

    def __init__(self, vendor: str, last: _Session | None) -> None:
        self.vendor = vendor
        self.last = last
        self.answer: VendorFigures | None = None
        self.ended_s = 0.0

    def told(self, now: float, stale_s: float) -> VendorFigures:
        """Return the answer, or the one before if that is not older than STALE_S."""
        last = self.last
        if self.answer is not None:
            return self.answer
        if last is not None and last.answer is not None and now - last.ended_s <= stale_s:
            return last.answer
        return VendorFigures(vendor=self.vendor, problem=PENDING)
