"""``FolderComparison``: detects changes in folders that inotify cannot watch, by regular comparisons.

The limits of inotify (instances and watches, inotify(7)) are per user. Other programs may use up the limits
of root.
"""

from __future__ import annotations

import os
import stat
import threading

from cdigen.host.root import shown
from cdigen.value import frozen, replace
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cdigen.watch.path_dependencies import WatchedFolder

# Seconds between comparisons. PollSource has the same default interval (config.settings, poll_s).
INTERVAL_S = 1.25
# The maximum number of files of a folder whose status is read at each comparison. Otherwise, the nodes of
# 2,048 IMEX channels would cost 1 % of a processor.
MAX_FILES = 128


class FolderComparison:
    """Puts a trigger for the source NAME if the content of a folder has changed.

    Its thread starts when there is a folder, and runs until ``stop``. Files that appear and disappear between
    two readings are missed. In a folder with more than MAX_FILES relevant files, a change of a file's status
    or content is detected later than a new or missing name.
    """

    def __init__(self, name: str, interval_s: float = INTERVAL_S) -> None:
        self._name = name
        self._interval_s = interval_s
        self._worker = Worker(f"{name}-compared")
        self._lock = threading.Lock()
        self._folders: Mapping[str, WatchedFolder] = {}
        self._states: dict[str, _FolderState] = {}

    def arm(
        self, folders: Mapping[str, WatchedFolder], put: Callable[[Trigger], None], *, check_follows: bool
    ) -> None:
        """Compare FOLDERS from now on, and call PUT after a change.

        A new folder is compared with its present state. A folder that was already compared is compared with
        its last known state. If CHECK_FOLLOWS is set, every folder is compared with its present state,
        because the caller checks the host afterwards. Raises OSError if no thread can be started.
        """
        new = {
            path: read_state(path, folder)
            for path, folder in folders.items()
            if check_follows or path not in self._states
        }
        with self._lock:
            # A folder may have other relevant names now.
            kept = {
                path: replace(state, is_stable=False)
                for path, state in self._states.items()
                if path in folders
            }
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
                with self._lock:
                    if self._folders is not folders:
                        break
                    before = self._states[path]
                state = read_state(path, folder, before)
                with self._lock:
                    if self._folders is not folders:
                        break
                    self._states[path] = state
                if differs(state, before) and not self._worker.stopping.is_set():
                    put(Trigger(source=self._name, reason=f"{shown(path)} changed"))


@frozen
class _FolderState:
    """The state of a folder at its last comparison.

    ``times`` is the status of the folder itself, which changes with the names in the folder. ``is_stable`` is
    true if ``times`` was already the same at the comparison before, so that ``names`` are complete: two
    changes within a tick of the kernel's clock have the same time. ``files`` has the status of each file in
    ``names``, and ``next_file`` is the position of the file that is compared next.
    """

    times: tuple[int, ...]
    is_stable: bool
    names: tuple[str, ...]
    files: tuple[int, ...]
    next_file: int = 0


def read_state(path: str, folder: WatchedFolder, before: _FolderState | None = None) -> _FolderState:
    """Return the state of the relevant names in the folder PATH, and of their files.

    With BEFORE, the function reads the names only if the folder has changed, and the status of at most
    MAX_FILES files. Further calls read the other files.
    """
    try:
        status = os.stat(path)
        times = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        is_same = before is not None and before.times == times
        if before is None or not (is_same and before.is_stable):
            matters = folder.pattern().fullmatch
            listed = os.listdir(path)
            names = tuple(sorted(name for name in listed if name in folder.path_names or matters(name)))
        else:
            names = before.names
    except OSError:
        return _FolderState(times=(), is_stable=False, names=(), files=())
    if before is None or names != before.names:
        files = tuple(_file_state(f"{path}/{name}", folder) for name in names)
        return _FolderState(times=times, is_stable=is_same, names=names, files=files)
    files, start = before.files, before.next_file
    part = names[start : start + MAX_FILES]
    states = tuple(_file_state(f"{path}/{name}", folder) for name in part)
    if states != files[start : start + MAX_FILES]:
        files = (*files[:start], *states, *files[start + MAX_FILES :])
    after = start + MAX_FILES
    return _FolderState(
        times=times, is_stable=is_same, names=names, files=files, next_file=after if after < len(names) else 0
    )


def differs(state: _FolderState, before: _FolderState) -> bool:
    """Return whether the folder has appeared or vanished, or other names, or files with another status."""
    is_same_kind = bool(state.times) == bool(before.times)
    return not is_same_kind or (state.names, state.files) != (before.names, before.files)


def _file_state(path: str, folder: WatchedFolder) -> int:
    """Return a number that changes with the status of the file PATH; 0 if there is no such file."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    # The time of a file shows changed content. The time of a subfolder shows only changes of the names in
    # it, and these names are not relevant.
    has_content = folder.content and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode))
    since = (status.st_mtime_ns, status.st_ctime_ns) if has_content else ()
    return hash((status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_rdev, *since))
