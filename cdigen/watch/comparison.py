"""``FolderComparison``: detects changes in folders that inotify cannot watch, by regular comparisons.

The limits of inotify (instances and watches, inotify(7)) are per user. Other programs may use up the limits
of root.
"""

from __future__ import annotations

import os
import stat
import threading
from hashlib import blake2b

from cdigen.host.root import shown
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.watch.path_dependencies import WatchedFolder

# Seconds between comparisons. PollSource has the same default interval (config.settings, poll_s).
INTERVAL_S = 1.25


class FolderComparison:
    """Puts a trigger for the source NAME if the content of a folder has changed.

    Its thread starts when there is a folder, and runs until ``stop``. Files that appear and disappear between
    two readings are missed.
    """

    def __init__(self, name: str, interval_s: float = INTERVAL_S) -> None:
        self._name = name
        self._interval_s = interval_s
        self._worker = Worker(f"{name}-compared")
        self._lock = threading.Lock()
        self._folders: Mapping[str, WatchedFolder] = {}
        self._states: dict[str, bytes] = {}

    def arm(
        self, folders: Mapping[str, WatchedFolder], put: Callable[[Trigger], None], *, check_follows: bool
    ) -> None:
        """Compare FOLDERS from now on, and call PUT after a change.

        A new folder is compared with its present state. A folder that was already compared is compared with
        its last known state. If CHECK_FOLLOWS is set, every folder is compared with its present state,
        because the caller checks the host afterwards. Raises OSError if no thread can be started.
        """
        new = {
            path: _state(path, folder)
            for path, folder in folders.items()
            if check_follows or path not in self._states
        }
        with self._lock:
            kept = {path: state for path, state in self._states.items() if path in folders}
            self._folders, self._states = folders, kept | new
        if folders and (not self._worker.is_running() or self._worker.stopping.is_set()):
            self._worker.start(lambda: self._work(put), put)

    def stop(self, within_s: float) -> None:
        """Stop the comparison; wait at most WITHIN_S seconds for a file system that does not respond."""
        self._worker.stop(within_s)
        with self._lock:
            self._folders, self._states = {}, {}

    def _work(self, put: Callable[[Trigger], None]) -> None:
        while not self._worker.stopping.wait(self._interval_s):
            folders = self._folders
            for path, folder in folders.items():
                state = _state(path, folder)
                with self._lock:
                    if self._folders is not folders:
                        break
                    before, self._states[path] = self._states[path], state
                if state != before and not self._worker.stopping.is_set():
                    put(Trigger(source=self._name, reason=f"{shown(path)} changed"))


def _state(path: str, folder: WatchedFolder) -> bytes:
    """Return a digest of the relevant names in the folder PATH, and of the status of their files."""
    digest = blake2b(digest_size=16)
    matters = folder.pattern().fullmatch
    try:
        names = sorted(name for name in os.listdir(path) if name in folder.path_names or matters(name))
    except OSError:
        return b""
    for name in names:
        try:
            status = os.lstat(f"{path}/{name}")
        except OSError:
            continue
        # The time of a file shows changed content. The time of a subfolder shows only changes of the names in
        # it, and these names are not relevant.
        has_content = folder.content and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))
        since = (status.st_mtime_ns, status.st_ctime_ns) if has_content else ()
        facts = (name, status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_rdev, *since)
        digest.update(os.fsencode("\0".join(map(str, facts)) + "\n"))
    return digest.digest()
