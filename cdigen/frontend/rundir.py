"""The run directory of a long-running process: ``RunDirectory`` locks it, and writes files into it.

Others may remove it at any time (cleaners of /run, a careless administrator): it is made again, unless
another instance was faster.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from functools import partial

from cdigen.frontend.owner import this_owner
from cdigen.model.errors import CdigenError, StoreError
from cdigen.store import tempfiles
from cdigen.store.directory import open_existing, open_owned
from cdigen.store.lock import LOCK_FILE, LockHeld, exclusive
from cdigen.store.snapshot import take_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from cdigen.frontend.earlylog import EarlyLog

    Logger = EarlyLog | FilteringBoundLogger

RUN_DIR = "/run/cdigen"
RUN_DIRECTORY = "run directory"
STATUS_FILE = "status.json"
INVENTORY_FILE = "inventory.json"
# How long a second instance waits for the first to end.
LOCK_TIMEOUT_S = 0.5


class RunDirectory:
    """The run directory PATH of this process; each problem with it is logged once."""

    def __init__(self, path: str, logger: Logger) -> None:
        self.lock = f"{path}/{LOCK_FILE}"
        self._path = path
        self._log = logger
        self._held = ExitStack()
        self._file: tuple[int, int] | None = None
        # The problems of the last cycle, and of this one.
        self._said: set[str] = set()
        self._troubles: set[str] = set()

    def take(self, *, timeout_s: float | None = LOCK_TIMEOUT_S) -> None:
        """Make the directory and hold its lock until ``leave``; without a TIMEOUT_S wait for it, asleep.

        StoreError: it cannot be made; ``LockHeld``: another daemon has it.
        """
        while not self._try(timeout_s):
            pass

    def _try(self, timeout_s: float | None) -> bool:
        """Hold the directory's lock; returns whether it still is the one that others would find."""
        with ExitStack() as new:
            place = new.enter_context(open_owned(self._path, what=RUN_DIRECTORY))
            lock = new.enter_context(exclusive(place, timeout_s=timeout_s, owner=this_owner()))
            held = _identity(os.fstat(lock))
            if _present(self.lock) != held:
                # Directory or file were removed while we waited, and who has it has made another.
                return False
            tempfiles.sweep(place)
            # The lock that we held is no longer a file of this directory.
            self._held.close()
            self._held, self._file = new.pop_all(), held
        return True

    def leave(self) -> None:
        """Let go of the lock, if we hold it."""
        self._held.close()
        self._file = None

    def keep(self) -> None:
        """Take it again if its lock file is gone. ``LockHeld``: another daemon has taken it meanwhile."""
        if not self.is_ours():
            self._attempt(self.take)

    def is_ours(self) -> bool:
        """Return whether the lock that we hold is the one that a second daemon would find."""
        return self._file is not None and _present(self.lock) == self._file

    def show(self, *savings: Callable[[str], object]) -> bool:
        """Let each of SAVINGS, which gets the directory's path, put its file into it; returns if all did."""
        for saving in savings:
            self._attempt(partial(saving, self._path))
        if self._said and not self._troubles:
            self._log.info("status", message=f"{self._path}: all is well again")
        self._said, self._troubles = self._troubles, set()
        return not self._said

    def remove_status(self) -> None:
        """Remove the status, if it is ours."""
        if self.is_ours():
            remove_status(self._path)

    def _attempt(self, work: Callable[[], object]) -> None:
        """Do WORK; a full disk must not end the daemon, nor be logged in every cycle."""
        try:
            work()
        except LockHeld:
            raise
        except CdigenError as error:
            if error.message not in self._said | self._troubles:
                self._log.error("status", message=error.message, hint=error.hint)
            self._troubles.add(error.message)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _present(path: str) -> tuple[int, int] | None:
    """Return what identifies the file PATH; None: there is none."""
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def prepare(run_dir: str) -> None:
    """Make the run directory, and remove what a writer that was killed left there.

    StoreError: the system refused, or others may write to it.
    """
    with open_owned(run_dir, what=RUN_DIRECTORY) as place:
        tempfiles.sweep(place)


def save_status(run_dir: str, document: Mapping[str, Any]) -> None:
    """Put DOCUMENT into the run directory as the status. StoreError: the system refused."""
    text = json.dumps(document, ensure_ascii=True, indent=1)
    write_file(run_dir, STATUS_FILE, f"{text}\n".encode("ascii"), if_changed=False)


def write_file(run_dir: str, name: str, content: bytes, *, if_changed: bool = True) -> bool:
    """Write CONTENT to the file NAME, replacing whatever has that name: a link is not followed.

    Returns whether it was written; IF_CHANGED, a file with that content stays. StoreError: the system
    refused.
    """
    with open_owned(run_dir, what=RUN_DIRECTORY) as place:
        present = None
        if if_changed:
            with suppress(StoreError):  # writing it will report what is wrong
                present = take_snapshot(place, name, limit=len(content))
        if present is not None and present.content == content and present.mode == tempfiles.MODE:
            return False
        with tempfiles.staged(place, name, content) as staged:
            tempfiles.rename_into_place(staged, place, name)
    return True


def remove_status(run_dir: str) -> None:
    """Remove the status of a process that ends; other files stay, as the specs do."""
    # If that fails, readers see by the lock that no process runs.
    with suppress(StoreError, OSError), open_existing(run_dir, what=RUN_DIRECTORY) as place:
        if place is not None:
            os.unlink(STATUS_FILE, dir_fd=place.fd)
