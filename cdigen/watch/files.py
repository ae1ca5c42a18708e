"""``FileSource``: watch files and folders that may not exist yet, be replaced, or be reached through links.

Each folder on the way to a path is watched, not recursively, for the names that matter in it (``waypoints``).
The watches are planned again when a name on the way to a path changes, or when the kernel has lost events. An
event only says which name changed: the halves of a move are two events, and neither waits for the other.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from errno import EAGAIN, EBUSY, EIO, ELOOP, EMFILE, ENOENT, ENOSPC, ENOTDIR

from cdigen.host.root import reason, shown
from cdigen.watch import inotify
from cdigen.watch.comparison import INTERVAL_S, FolderComparison, expression
from cdigen.watch.inotify import FolderObserver
from cdigen.watch.triggers import Trigger
from cdigen.watch.waypoints import ANY, interests
from cdigen.watch.worker import JOIN_S, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.watch.waypoints import Interest

# For folders that appear below a new one while it is planned: more levels than any path has.
_ROUNDS = 32
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
# Planning takes at most a tenth of the time, however fast things change.
_PAUSES_PER_PLANNING = 9
# Reading the names of some folders takes microseconds.
HANGS_S = 10.0
_HANGS = "looking at the watched folders hangs"
# Removed, or replaced by a file or a link, since the plan: the next plan will know.
_VANISHED = {ENOENT, ENOTDIR, ELOOP}
_LIMITS = {
    ENOSPC: "the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)",
    EMFILE: "the limit of inotify instances (sysctl fs.inotify.max_user_instances) or of open files is"
    " reached",
}
# The removal of a folder is an event in the folder above, and ends the watch in any case (IN_IGNORED).
_NAMES = inotify.IN_CREATE | inotify.IN_DELETE | inotify.IN_MOVED_FROM | inotify.IN_MOVED_TO


class FileSource:
    """Triggers when one of PATHS, or a folder or link on the way to it, changes.

    PATHS are absolute paths of this machine: of files, of folders (each entry matters), or with ``*`` in the
    last name. ROOTS are trees out of which no link leads (``waypoints.interests``). Not seen are pseudo files
    (/proc, /sys) and, until the next ``rearm``, a mount over a folder and the unmount of a file system that
    is mounted elsewhere too. Folders that cannot be watched are compared every COMPARE_S.
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
        # Held while watches are planned, made and removed, by the worker or a caller; for ever, if a file
        # system does not answer: so nobody waits for it without a time limit.
        self._lock = threading.Lock()
        self._observer: FolderObserver | None = None
        self._folders: dict[str, _Folder] = {}
        # The same by the number of the watch; two paths may lead to one folder (a bind mount). Each value is
        # replaced as a whole, since the observer's thread reads it without the lock.
        self._watched: dict[int, tuple[_Folder, ...]] = {}
        self._outdated = threading.Event()
        self._shortage = ""
        self._planning_since: float | None = None

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Watch; see ``Source``. Folders that cannot be watched are a ``problem``, not an error."""
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
        """Watch PATHS in ROOTS from now on, as they resolve now; cheap if nothing has changed.

        It makes no trigger, since the caller looks at the host afterwards.
        """
        self._paths, self._roots = paths, roots
        if self._lock.acquire(timeout=JOIN_S):
            try:
                if self._observer is not None:
                    self._plan(self._observer, is_looked_at=True)
                elif self._shortage:
                    self._compare_all(self._shortage)
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Stop watching; see ``Source``."""
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
        """Return what is not seen, and why; see ``Source``."""
        since = self._planning_since
        if since is not None and time.monotonic() - since > HANGS_S:
            return _HANGS
        return self._worker.problem() or self._shortage

    def note(self, number: int, mask: int, name: str) -> None:
        """Report an event if it matters; called by the observer's thread, without the lock."""
        if mask & inotify.IN_Q_OVERFLOW:
            self._outdated.set()
            self._put(Trigger(source=self.name, reason="events were lost: too many at once"))
        for folder in self._watched.get(number, ()):
            # Without a name: the folder was removed or unmounted, or its mode or owner has changed.
            is_way = not name or name in folder.interest.ways
            if is_way:
                self._outdated.set()
            if mask & folder.mask and (is_way or folder.matters(name)):
                path = os.path.join(folder.path, name) if name else folder.path
                self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))

    def _give_up(self, observer: FolderObserver) -> None:
        self._observer, self._folders, self._watched = None, {}, {}
        observer.stop()
        if observer.is_alive():
            observer.join(JOIN_S)

    def _work(self, observer: FolderObserver) -> None:
        """Plan again whenever something on the way to a path has changed."""
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
                        # Entries made before it was watched were not reported.
                        self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))
                pause = (time.monotonic() - began) * _PAUSES_PER_PLANNING
                stopping.wait(min(max(_PAUSE_S, pause), _LONGEST_PAUSE_S))
        finally:
            if not stopping.is_set():
                with self._lock:
                    if self._observer is observer:
                        self._give_up(observer)

    def _plan(self, observer: FolderObserver, *, is_looked_at: bool = False) -> list[str]:
        """Watch exactly the folders on the present ways to the paths; returns the new ones.

        IS_LOOKED_AT: a look at the host follows in any case.
        """
        new: list[str] = []
        self._planning_since = time.monotonic()
        wanted: dict[str, Interest] = {}
        for _ in range(_ROUNDS):
            self._outdated.clear()
            wanted = interests(self._paths, self._roots)
            for path in [path for path in self._folders if path not in wanted]:
                self._forget(observer, path)
            self._shortage = ""
            found = [path for path, interest in wanted.items() if self._watch(observer, path, interest)]
            if not found and not self._outdated.is_set():
                break
            # Entries made below them meanwhile were not reported: look once more.
            new += found
        if self._observer is observer:
            compared = {path: wanted[path] for path in wanted if path not in self._folders}
            self._comparison.arm(compared, self._put, is_looked_at=is_looked_at)
        self._planning_since = None
        return new

    def _compare_all(self, why: str) -> None:
        """Compare everything that matters; none of it can be watched, for the reason WHY."""
        self._shortage = why
        self._planning_since = time.monotonic()
        self._comparison.arm(interests(self._paths, self._roots), self._put, is_looked_at=True)
        self._planning_since = None

    def _watch(self, observer: FolderObserver, path: str, interest: Interest) -> bool:
        """Watch the folder PATH for INTEREST; returns whether this is a new watch or another folder."""
        if self._observer is not observer:
            # Stopped while a file system did not answer.
            return False
        known, folder = self._folders.get(path), _Folder(path, interest)
        try:
            # The kernel decides whether PATH is still the same folder: its watch has the same number then.
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
        """Return what is watched by the same number as FOLDER, by other paths."""
        return tuple(each for each in self._watched.get(folder.number, ()) if each.path != folder.path)


class _Folder:
    """A watched folder: the number of its watch, the events that it has, and what matters in it."""

    number = -1

    def __init__(self, path: str, interest: Interest) -> None:
        self.path = path
        self.interest = interest
        self.mask = _NAMES
        if interest.content:
            # IN_MODIFY is left out: a file that is being written is of use when it is closed.
            self.mask |= inotify.IN_ATTRIB | (0 if _holds_nodes(path) else inotify.IN_CLOSE_WRITE)
        pattern = "|".join(map(expression, interest.patterns)) or "(?!)"
        self._names = re.compile(pattern, re.DOTALL)

    def matters(self, name: str) -> bool:
        """Return whether NAME is one of the names that matter in themselves."""
        return ANY in self.interest.patterns or self._names.fullmatch(name) is not None


def _holds_nodes(path: str) -> bool:
    """Return whether PATH is a /dev, or inside one: a folder with a device node called null.

    All programs write to /dev/null, and nobody writes a file into such a folder.
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
    """Stands for the inbox until there is one."""
