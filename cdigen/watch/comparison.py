"""``FolderComparison``: compare every second or so the folders that cannot be watched.

Limits of inotify (instances, watches: inotify(7)) are per user, and root's may be used up by other programs.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from hashlib import blake2b

from cdigen.host.root import shown
from cdigen.watch.triggers import Trigger
from cdigen.watch.waypoints import ANY
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.watch.waypoints import Interest

# As the poll of kernel state without events (config.settings, poll_s).
INTERVAL_S = 1.25


class FolderComparison:
    """Triggers for the source NAME when something in one of its folders has changed.

    Its thread lives from the first folder until ``stop``. Files that come and go between two readings are not
    seen.
    """

    def __init__(self, name: str, interval_s: float = INTERVAL_S) -> None:
        self._name = name
        self._interval_s = interval_s
        self._worker = Worker(f"{name}-compared")
        self._lock = threading.Lock()
        self._folders: Mapping[str, Interest] = {}
        self._seen: dict[str, bytes] = {}

    def arm(
        self, folders: Mapping[str, Interest], put: Callable[[Trigger], None], *, is_looked_at: bool
    ) -> None:
        """Compare FOLDERS from now on, and call PUT; new ones are compared with their present state.

        IS_LOOKED_AT: so are the others, since the caller looks at the host afterwards. OSError: no thread can
        be started.
        """
        new = {
            path: _state(path, interest)
            for path, interest in folders.items()
            if is_looked_at or path not in self._seen
        }
        with self._lock:
            kept = {path: state for path, state in self._seen.items() if path in folders}
            self._folders, self._seen = folders, kept | new
        if folders and (not self._worker.is_running() or self._worker.stopping.is_set()):
            self._worker.start(lambda: self._work(put), put)

    def stop(self, within_s: float) -> None:
        """Stop comparing; waits at most WITHIN_S for a file system that does not answer."""
        self._worker.stop(within_s)
        with self._lock:
            self._folders, self._seen = {}, {}

    def _work(self, put: Callable[[Trigger], None]) -> None:
        while not self._worker.stopping.wait(self._interval_s):
            folders = self._folders
            for path, interest in folders.items():
                state = _state(path, interest)
                with self._lock:
                    if self._folders is not folders:
                        break
                    before, self._seen[path] = self._seen[path], state
                if state != before and not self._worker.stopping.is_set():
                    put(Trigger(source=self._name, reason=f"{shown(path)} changed"))


def _state(folder: str, interest: Interest) -> bytes:
    """Return the state of FOLDER to compare: the names, which files they are, and their times."""
    digest = blake2b(digest_size=16)
    matters = re.compile("|".join(expression(pattern) for pattern in interest.patterns) or "(?!)").fullmatch
    is_all = ANY in interest.patterns
    try:
        names = sorted(
            name for name in os.listdir(folder) if is_all or name in interest.ways or matters(name)
        )
    except OSError:
        return b""
    for name in names:
        try:
            status = os.lstat(f"{folder}/{name}")
        except OSError:
            continue
        # A file's time shows changed content; a folder's only new names in it, which do not matter here.
        has_content = interest.content and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))
        since = (status.st_mtime_ns, status.st_ctime_ns) if has_content else ()
        facts = (name, status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_rdev, *since)
        digest.update(os.fsencode("\0".join(map(str, facts)) + "\n"))
    return digest.digest()


def expression(pattern: str) -> str:
    """Return PATTERN as a regular expression of names."""
    return ".*".join(re.escape(part) for part in pattern.split(ANY))
