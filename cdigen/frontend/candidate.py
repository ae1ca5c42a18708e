"""``Candidate``: waits for the place of the instance that has the run directory, and takes it.

A thread sleeps in flock(2), which costs nothing, and wakes up within a millisecond of the other's end,
however that came. Only one of several gets the lock; the others go on sleeping.
"""

from __future__ import annotations

import threading
import time

from cdigen.model.errors import CdigenError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.frontend.rundir import Logger, RunDirectory

# How soon a run directory that could not be opened is tried again.
RETRY_S = 1.0


class Candidate:
    """Waits for the place of who has RUN_DIRECTORY; TOLD is called in its thread once that is ours."""

    def __init__(self, run_directory: RunDirectory, logger: Logger, told: Callable[[], object]) -> None:
        self._run_directory = run_directory
        self._log = logger
        self._told = told

    def start(self) -> None:
        """Begin to wait; only the end of the process ends that."""
        threading.Thread(target=self._wait, name="candidate", daemon=True).start()

    def _wait(self) -> None:
        said = ""
        while True:
            try:
                self._run_directory.take(timeout_s=None)
            except CdigenError as error:
                if error.message != said:
                    said = error.message
                    self._log.error("stands by", message=error.message, hint=error.hint)
                time.sleep(RETRY_S)
            else:
                break
        self._told()
