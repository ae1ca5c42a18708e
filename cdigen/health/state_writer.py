"""``HealthStateWriter``: writes the health state to its file, and reports errors of the file.

A disk may be slow or full. A thread that saves the state does not hold the tracker's lock. So other threads
can process and show events at the same time.
"""

from __future__ import annotations

import threading

from cdigen.health import state_file
from cdigen.model.errors import StoreError
from cdigen.model.findings import finding_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.health.state import HealthState
    from cdigen.model.findings import Finding

# Seconds between saves if ``state_file.essence`` does not change, and seconds before a failed save is
# retried.
SAVE_AGAIN_S, RETRY_S = 300.0, 5.0


class HealthStateWriter:
    """Reads and writes the state file; CLOCK returns CLOCK_BOOTTIME."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._saved: HealthState | None = None
        self._tried_s = 0.0
        self._read_error: Finding | None = None
        self._save_error: Finding | None = None

    def read(self, state_dir: str, boot: str) -> HealthState:
        """Return the state of BOOT in STATE_DIR, or an empty state."""
        self._saved, self._read_error = state_file.read(state_dir, boot, self._clock())
        return self._saved

    def findings(self) -> tuple[Finding, ...]:
        """Return the errors of the file."""
        return tuple(one for one in (self._read_error, self._save_error) if one is not None)

    def save(
        self, state_dir: str, newest: Callable[[], HealthState | None], *, at_once: bool = False
    ) -> None:
        """Write the NEWEST state if it has changed and ``_wait_s`` has elapsed; with AT_ONCE, do not wait."""
        with self._lock:
            # The state is read under the lock, so no thread replaces a newer state with an older state.
            state = newest()
            if state is None or self._saved is None or state == self._saved:
                return
            if at_once or self._clock() - self._tried_s >= self._wait_s(state, self._saved):
                self._write(state_dir, state)

    def _wait_s(self, state: HealthState, saved: HealthState) -> float:
        """Return the minimum seconds between the last attempt and a save of STATE."""
        if state_file.essence(state) == state_file.essence(saved):
            return SAVE_AGAIN_S
        return RETRY_S if self._save_error is not None else 0.0

    def _write(self, state_dir: str, state: HealthState) -> None:
        self._tried_s = self._clock()
        try:
            state_file.save(state_dir, state)
        except StoreError as error:
            self._save_error = finding_of(error, f"{state_dir}/{state_file.FILE}")
        else:
            self._saved, self._read_error, self._save_error = state, None, None
