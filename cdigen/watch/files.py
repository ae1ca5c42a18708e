"""``FileSource``: watches files and folders that may be missing, replaced or reached through links.

The source watches each folder that the resolution of a path depends on, for the relevant names in the folder
(``path_dependencies``). It does not watch recursively. It plans the watches again if a component of a path or
of a link target changes, or if the kernel has lost events. An event contains only the changed name. A move
makes two independent events.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from errno import EAGAIN, EBUSY, EIO, ELOOP, EMFILE, ENOENT, ENOSPC, ENOTDIR

from cdigen.host.root import reason, shown
from cdigen.watch import inotify
from cdigen.watch.comparison import INTERVAL_S, FolderComparison
from cdigen.watch.inotify import FolderObserver
from cdigen.watch.path_dependencies import watched_folders
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import JOIN_S, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.watch.path_dependencies import WatchedFolder

# Maximum number of rounds of a planning. The planning is repeated while folders appear below new folders. No
# path has as many levels.
_ROUNDS = 32
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
# Planning takes at most a tenth of the time, even if folders change all the time.
_PAUSES_PER_PLANNING = 9
# Seconds after which a read is reported as hanging. Reading the names of some folders takes microseconds.
HANGS_S = 10.0
_HANGS = "reading the watched folders hangs"
# Errors for a folder that was removed after the planning, or replaced by a file or a link. The next planning
# detects the change.
_VANISHED = {ENOENT, ENOTDIR, ELOOP}
_LIMITS = {
    ENOSPC: "the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)",
    EMFILE: "the limit of inotify instances (sysctl fs.inotify.max_user_instances) or of open files is"
    " reached",
}
# The removal of a folder is an event in its parent folder. The removal always ends the watch (IN_IGNORED).
_NAMES = inotify.IN_CREATE | inotify.IN_DELETE | inotify.IN_MOVED_FROM | inotify.IN_MOVED_TO


class FileSource:
    """Puts a trigger if one of PATHS changes, or if a folder or link on the way to it changes.

    PATHS are absolute paths of this machine: paths of files, paths of folders with all their entries, or
    paths with ``*`` in the last name. No link leads out of the trees ROOTS
    (``path_dependencies.watched_folders``). The source does not detect changes of pseudo files (/proc, /sys).
    Until the next ``rearm``, the source does not detect a mount over a folder, or the unmount of a file
    system that is also mounted elsewhere. Folders that cannot be watched are compared every COMPARE_S
    seconds.
    """

    name = "files"

    def __init__(
        self, paths: tuple[str, ...] = (), *, roots: tuple[str, ...] = (), compare_s: float = INTERVAL_S
    ) -> None:
        self._paths = paths
        self._roots = roots
        self._put: Callable[[Trigger], None] = _nowhere
        self._worker = Worker(self.name)
        self._comparison = FolderComparison(self.name, compare_s)
        # A thread holds this lock while it plans, creates and removes watches. A file system that does not
        # respond blocks this thread without limit, so all other threads wait for the lock with a timeout.
        self._lock = threading.Lock()
        self._observer: FolderObserver | None = None
        self._folders: dict[str, _Folder] = {}
        # The folders of ``_folders`` by the number of the watch. Two paths may lead to one folder (a bind
        # mount). Each value is replaced as a whole, because the observer's thread reads it without the lock.
        self._watched: dict[int, tuple[_Folder, ...]] = {}
        self._outdated = threading.Event()
        self._shortage = ""
        self._planning_since: float | None = None

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start; see ``Source``. Folders that cannot be watched are a ``problem``, not an error."""
        if not self._lock.acquire(timeout=JOIN_S):
            raise OSError(EBUSY, _HANGS)
        try:
            self._put, self._folders, self._watched = put, {}, {}
            try:
                self._observer = observer = FolderObserver(self.note, self._outdated.set)
            except OSError as error:
                self._compare_all(_explained(error))
                return
            try:
                observer.start()
                self._plan(observer)
                self._worker.start(lambda: self._work(observer), put)
            except (OSError, RuntimeError):
                self._give_up(observer)
                raise
        except RuntimeError as error:
            raise OSError(EAGAIN, f"no thread can be started ({error})") from error
        except OSError as error:
            raise OSError(error.errno, _explained(error)) from error
        finally:
            self._lock.release()

    def rearm(self, paths: tuple[str, ...], *, roots: tuple[str, ...] = ()) -> None:
        """Watch PATHS from now on, and follow their present links within ROOTS; fast if nothing has changed.

        The method puts no trigger, because the caller checks the host afterwards.
        """
        self._paths, self._roots = paths, roots
        if self._lock.acquire(timeout=JOIN_S):
            try:
                if self._observer is not None:
                    self._plan(self._observer, check_follows=True)
                elif self._shortage:
                    self._compare_all(self._shortage)
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Stop; see ``Source``."""
        self._worker.stopping.set()
        self._outdated.set()
        has_lock = self._lock.acquire(timeout=JOIN_S / 2)
        try:
            self._shortage = ""
            if self._observer is not None:
                self._give_up(self._observer)
        finally:
            if has_lock:
                self._lock.release()
        self._comparison.stop(JOIN_S / 2)
        self._worker.stop()

    def problem(self) -> str:
        """Return the reason why changes are missed, or ""; see ``Source``."""
        since = self._planning_since
        if since is not None and time.monotonic() - since > HANGS_S:
            return _HANGS
        return self._worker.problem() or self._shortage

    def note(self, number: int, mask: int, name: str) -> None:
        """Put a trigger for a relevant event. The observer's thread calls this without the lock."""
        if mask & inotify.IN_Q_OVERFLOW:
            self._outdated.set()
            self._put(Trigger(source=self.name, reason="events were lost: too many at once"))
        for folder in self._watched.get(number, ()):
            # An event has no name if the folder was removed or unmounted, or its mode or owner has changed.
            is_on_path = not name or name in folder.watched.path_names
            if is_on_path:
                self._outdated.set()
            if mask & folder.mask and (is_on_path or folder.matters(name)):
                path = os.path.join(folder.path, name) if name else folder.path
                self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))

    def _give_up(self, observer: FolderObserver) -> None:
        self._observer, self._folders, self._watched = None, {}, {}
        observer.stop()
        if observer.is_alive():
            observer.join(JOIN_S)

    def _work(self, observer: FolderObserver) -> None:
        """Plan the watches again after each change of a component of a path or of a link target."""
        stopping = self._worker.stopping
        try:
            while not stopping.is_set():
                self._outdated.wait()
                if observer.fault:
                    raise OSError(EIO, f"the inotify thread has ended: {observer.fault}")
                began = time.monotonic()
                with self._lock:
                    if self._observer is not observer:
                        return
                    for path in self._plan(observer):
                        # The kernel does not report entries that were made before the watch.
                        self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))
                pause = (time.monotonic() - began) * _PAUSES_PER_PLANNING
                stopping.wait(min(max(_PAUSE_S, pause), _LONGEST_PAUSE_S))
        finally:
            if not stopping.is_set():
                with self._lock:
                    if self._observer is observer:
                        self._give_up(observer)

    def _plan(self, observer: FolderObserver, *, check_follows: bool = False) -> list[str]:
        """Watch exactly the folders that the resolution of the paths uses now; return the new folders.

        CHECK_FOLLOWS is set if the caller checks the host afterwards in any case.
        """
        new: list[str] = []
        self._planning_since = time.monotonic()
        folders: dict[str, WatchedFolder] = {}
        for _ in range(_ROUNDS):
            self._outdated.clear()
            folders = watched_folders(self._paths, self._roots)
            for path in [path for path in self._folders if path not in folders]:
                self._forget(observer, path)
            self._shortage = ""
            found = [path for path, watched in folders.items() if self._watch(observer, path, watched)]
            if not found and not self._outdated.is_set():
                break
            # The kernel did not report entries that were made in these folders before the watch, so the
            # watches are planned again.
            new += found
        if self._observer is observer:
            compared = {path: folders[path] for path in folders if path not in self._folders}
            self._comparison.arm(compared, self._put, check_follows=check_follows)
        self._planning_since = None
        return new

    def _compare_all(self, why: str) -> None:
        """Compare all relevant folders. WHY is the reason why no folder can be watched."""
        self._shortage = why
        self._planning_since = time.monotonic()
        self._comparison.arm(watched_folders(self._paths, self._roots), self._put, check_follows=True)
        self._planning_since = None

    def _watch(self, observer: FolderObserver, path: str, watched: WatchedFolder) -> bool:
        """Watch the names WATCHED in the folder PATH; return whether the watch or the folder is new."""
        if self._observer is not observer:
            # The source was stopped while this thread waited for a file system that did not respond.
            return False
        known, folder = self._folders.get(path), _Folder(path, watched)
        try:
            # If PATH still leads to the folder that is watched, the kernel returns the number of that watch.
            folder.number = observer.watch(path, folder.mask)
        except OSError as error:
            self._forget(observer, path)
            if error.errno in _VANISHED:
                self._outdated.set()
            else:
                self._shortage = self._shortage or f"{shown(path)} is not watched: {_explained(error)}"
            return False
        is_new = known is None or known.number != folder.number
        if is_new:
            self._forget(observer, path)
        self._folders[path] = folder
        self._watched[folder.number] = (*self._others(folder), folder)
        return is_new

    def _forget(self, observer: FolderObserver, path: str) -> None:
        folder = self._folders.pop(path, None)
        if folder is None:
            return
        if others := self._others(folder):
            self._watched[folder.number] = others
        else:
            self._watched.pop(folder.number, None)
            observer.forget(folder.number)

    def _others(self, folder: _Folder) -> tuple[_Folder, ...]:
        """Return the folders with other paths that have the same watch number as FOLDER."""
        return tuple(each for each in self._watched.get(folder.number, ()) if each.path != folder.path)


class _Folder:
    """A watched folder: the number and the mask of its watch, and the relevant names in the folder."""

    number = -1

    def __init__(self, path: str, watched: WatchedFolder) -> None:
        self.path = path
        self.watched = watched
        self.mask = _NAMES
        if watched.content:
            # IN_MODIFY is left out, because a written file is useful only after it is closed.
            self.mask |= inotify.IN_ATTRIB | (0 if _holds_nodes(path) else inotify.IN_CLOSE_WRITE)
        self.matters = watched.pattern().fullmatch


def _holds_nodes(path: str) -> bool:
    """Return whether PATH is a /dev or a folder in a /dev.

    A /dev is a folder with a device node called null. Writes to such a folder are not watched, because all
    programs write to /dev/null, and no program writes a regular file there.
    """
    while path != "/":
        try:
            if stat.S_ISCHR(os.lstat(f"{path}/null").st_mode):
                return True
        except OSError:
            pass
        path = os.path.dirname(path)
    return False


def _explained(error: OSError) -> str:
    return _LIMITS.get(error.errno or 0) or reason(error)


def _nowhere(_: Trigger) -> None:
    """Drop the trigger. This is the default before ``start``."""
