"""The run directory of a long-running process: ``RunDirectory`` locks the directory and writes its files.

Other programs may remove the directory at any time (cleaners of /run, an administrator). The process then
creates the directory again if no other instance has done so.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial

from cdigen.model.errors import CdigenError, StoreError
from cdigen.service.process.instance import this_instance
from cdigen.store import tempfiles
from cdigen.store.directory import RUN_DIRECTORY, open_existing, open_owned
from cdigen.store.lock import LOCK_FILE, LockHeld, exclusive
from cdigen.store.records.state_file import json_content
from cdigen.store.snapshot import take_snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.service.process.buffered_log import Logger

RUN_DIR = "/run/cdigen"

STATUS_FILE = "status.json"
INVENTORY_FILE = "inventory.json"
# Seconds that a second instance waits for the end of the first instance.
LOCK_TIMEOUT_S = 0.5
# Seconds before another attempt at a run directory that could not be opened.
RETRY_S = 1.0


class RunDirectory:
    """The run directory PATH of this process. Each problem with the directory is logged once."""

    def __init__(self, path: str, logger: Logger) -> None:
        self.lock = f"{path}/{LOCK_FILE}"
        self._path = path
        self._log = logger
        self._held = ExitStack()
        self._file: tuple[int, int] | None = None
        # The problems of the last cycle and of the present cycle.
        self._reported: set[str] = set()
        self._problems: set[str] = set()

    def take(self, *, timeout_s: float | None = LOCK_TIMEOUT_S) -> None:
        """Create the directory and hold its lock until ``leave``. If TIMEOUT_S is None, wait without limit.

        Raises StoreError if the directory cannot be created, ``LockHeld`` if another instance holds the lock.
        """
        while not self._try(timeout_s):
            pass

    def take_later(self, on_lock: Callable[[], object]) -> None:
        """Wait for the lock in a thread, and then call ON_LOCK in the same thread; return immediately.

        The thread blocks in flock(2), which takes no CPU time, and gets the lock within a millisecond after
        the other instance has ended. If several instances wait, the kernel gives the lock to one of them.
        Only the end of the process stops the thread.
        """
        threading.Thread(target=self._wait, args=(on_lock,), name="standby", daemon=True).start()

    def _wait(self, on_lock: Callable[[], object]) -> None:
        logged = ""
        while True:
            try:
                self.take(timeout_s=None)
            except CdigenError as error:
                if error.message != logged:
                    logged = error.message
                    self._log.error("standby", message=error.message, hint=error.hint)
                time.sleep(RETRY_S)
            else:
                on_lock()
                return

    def _try(self, timeout_s: float | None) -> bool:
        """Take the lock; return whether the directory still contains the locked file."""
        with ExitStack() as new:
            directory = new.enter_context(open_owned(self._path, what=RUN_DIRECTORY))
            lock = new.enter_context(exclusive(directory, timeout_s=timeout_s, owner=this_instance()))
            held = _identity(os.fstat(lock))
            if present_identity(self.lock) != held:
                # The directory or the lock file was removed during the wait, or another instance replaced it.
                return False
            tempfiles.sweep(directory)
            # The previous lock file is no longer in this directory, so its lock has no use.
            self._held.close()
            self._held, self._file = new.pop_all(), held
        return True

    def leave(self) -> None:
        """Release the lock if this process holds it."""
        self._held.close()
        self._file = None

    def keep(self) -> None:
        """Take the lock again if its file was removed; raise ``LockHeld`` if another instance has it."""
        if not self.is_ours():
            self._attempt(self.take)

    @property
    def is_held(self) -> bool:
        """Whether this process has taken the lock. Its file may have been removed since."""
        return self._file is not None

    def is_ours(self) -> bool:
        """Return whether this process holds the lock, and the directory still contains the locked file."""
        return self.is_held and present_identity(self.lock) == self._file

    def has_status(self) -> bool:
        """Return whether this process holds the lock, and the directory has a status."""
        return self.is_ours() and os.path.lexists(f"{self._path}/{STATUS_FILE}")

    def show(self, *savings: Callable[[str], object]) -> bool:
        """Call each of SAVINGS with the directory's path to write a file; return whether all succeeded."""
        for saving in savings:
            self._attempt(partial(saving, self._path))
        if self._reported and not self._problems:
            self._log.info("status", message=f"{self._path}: the files can be written again")
        self._reported, self._problems = self._problems, set()
        return not self._reported

    def remove_status(self) -> None:
        """Remove the status if this process holds the lock. Other files and the specs stay."""
        if not self.is_ours():
            return
        # If the removal fails, readers see from the lock that no process runs.
        with suppress(StoreError, OSError), open_existing(self._path, what=RUN_DIRECTORY) as directory:
            if directory is not None:
                os.unlink(STATUS_FILE, dir_fd=directory.fd)

    def _attempt(self, work: Callable[[], object]) -> None:
        """Call WORK. A full disk does not end the daemon, and is logged once, not in every cycle."""
        try:
            work()
        except LockHeld:
            raise
        except CdigenError as error:
            if error.message not in self._reported | self._problems:
                self._log.error("status", message=error.message, hint=error.hint)
            self._problems.add(error.message)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def present_identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode of the file PATH, None if there is no file."""
    try:
        return _identity(os.lstat(path))
    except OSError:
        return None


def prepare(run_dir: str) -> None:
    """Create the run directory, and remove temporary files of a killed writer.

    Raises StoreError if the system refuses, or if other users may write to the directory.
    """
    with open_owned(run_dir, what=RUN_DIRECTORY) as directory:
        tempfiles.sweep(directory)


def save_status(run_dir: str, document: Mapping[str, Any]) -> None:
    """Write DOCUMENT to the run directory as the status; raise StoreError if the system refuses."""
    write_file(run_dir, STATUS_FILE, json_content(document), if_changed=False)


def write_file(run_dir: str, name: str, content: bytes, *, if_changed: bool = True) -> bool:
    """Write CONTENT to the file NAME in RUN_DIR; return whether the file was written.

    A present file is replaced. A link is replaced as well, and not followed. With IF_CHANGED, a file with the
    same content is not written. Raises StoreError if the system refuses.
    """
    with open_owned(run_dir, what=RUN_DIRECTORY) as directory:
        present = None
        if if_changed:
            with suppress(StoreError):  # the write below reports the problem
                present = take_snapshot(directory, name, limit=len(content))
        if present is not None and present.content == content and present.mode == tempfiles.MODE:
            return False
        with tempfiles.staged(directory, name, content) as staged:
            tempfiles.rename_into_place(staged, directory, name)
    return True
