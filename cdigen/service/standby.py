"""``StandbyWaiter``: waits until it gets the lock of a run directory that another instance holds.

Its thread blocks in flock(2), which takes no CPU time. The thread gets the lock within a millisecond after
the other instance has ended for any reason. If several instances wait, the kernel gives the lock to a single
instance.
"""

from __future__ import annotations

import threading
import time

from cdigen.model.errors import CdigenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.service.rundir import Logger, RunDirectory

# Seconds before another attempt at a run directory that could not be opened.
RETRY_S = 1.0


class StandbyWaiter:
    """Waits in a thread for the lock of RUN_DIRECTORY, and then calls ON_LOCK in the same thread."""

    def __init__(self, run_directory: RunDirectory, logger: Logger, on_lock: Callable[[], object]) -> None:
        self._run_directory = run_directory
        self._log = logger
        self._on_lock = on_lock

    def start(self) -> None:
        """Start the thread. Only the end of the process stops it."""
        threading.Thread(target=self._wait, name="standby", daemon=True).start()

    def _wait(self) -> None:
        logged = ""
        while True:
            try:
                self._run_directory.take(timeout_s=None)
            except CdigenError as error:
                if error.message != logged:
                    logged = error.message
                    self._log.error("standby", message=error.message, hint=error.hint)
                time.sleep(RETRY_S)
            else:
                break
        self._on_lock()
