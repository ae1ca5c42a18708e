"""``FileSource``: watch files and folders that may not exist yet, be replaced, or be reached through links.

Each folder on the way to a path is watched, not recursively, for the names that matter in it (``waypoints``).
The watches are planned again when a name on the way to a path changes. watchdog's Observer does the watching,
by its public interface: a move of a file to a folder that is not watched is reported half a second later,
after watchdog has waited for the other half of the move; it does not report that the kernel's queue
overflowed, so lost events are made up for at the next resync. Its release 6 takes an inotify instance for
each folder, 7 one for all.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from errno import EACCES, EAGAIN, EBUSY, ELOOP, EMFILE, ENOENT, ENOSPC, ENOTDIR

from watchdog import events
from watchdog.observers import Observer

from cdigen.host.root import reason, shown
from cdigen.watch.comparison import INTERVAL_S, FolderComparison, expression
from cdigen.watch.triggers import Trigger
from cdigen.watch.waypoints import ANY, interests
from cdigen.watch.worker import JOIN_S, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch
    from watchdog.utils import BaseThread

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
    EAGAIN: "no thread can be started",
}

_NAMES: list[type[FileSystemEvent]] = [
    events.FileCreatedEvent,
    events.DirCreatedEvent,
    events.FileDeletedEvent,
    events.DirDeletedEvent,
    events.FileMovedEvent,
    events.DirMovedEvent,
]
# Also that a file was written and closed, or that its mode or owner changed. The latter has events of its own
# since watchdog 7, but the kernel is asked for it only by FileModifiedEvent; that event reports each write(2)
# as well, which ``note`` drops: in an installation they would come without a pause. No DirModifiedEvent:
# watchdog makes one or two for each of the others.
_CONTENT = [
    *_NAMES,
    events.FileClosedEvent,
    events.FileModifiedEvent,
    *(getattr(events, name) for name in ("FileAttribEvent", "DirAttribEvent") if hasattr(events, name)),
]


class FileSource:
    """Triggers when one of PATHS, or a folder or link on the way to it, changes.

    PATHS are absolute paths of this machine: of files, of folders (each entry matters), or with ``*`` in the
    last name. ROOTS are trees out of which no link leads (``waypoints.interests``). Not seen are pseudo files
    (/proc, /sys), and something mounted over a folder, or unmounted, until the next ``rearm``. Folders that
    cannot be watched, and modes and owners in folders of device nodes, are compared every COMPARE_S.
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
        self._observer: BaseObserver | None = None
        self._folders: dict[str, _Folder] = {}
        # Paths at which something was replaced since the last plan: watches at and below them are made anew.
        self._replaced: set[str] = set()
        self._outdated = threading.Event()
        self._shortage = ""
        self._planning_since: float | None = None

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Watch; see ``Source``. Folders that cannot be watched are a ``problem``, not an error."""
        if not self._lock.acquire(timeout=JOIN_S):
            raise OSError(EBUSY, _HANGS)
        try:
            self._put, self._folders, self._replaced = put, {}, set()
            try:
                # watchdog 7 takes an inotify instance here, 6 one for each folder.
                self._observer = observer = Observer()
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
            raise OSError(EAGAIN, f"{_LIMITS[EAGAIN]} ({error})") from error
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
        observer = self._observer
        if observer is not None and any(map(_has_failed, (observer, *observer.emitters))):
            return "a thread of watchdog's has ended"
        return self._worker.problem() or self._shortage

    def note(self, here: str, event: FileSystemEvent) -> None:
        """Report EVENT in the folder HERE if it matters; called by watchdog's thread, without the lock."""
        if event.event_type == events.EVENT_TYPE_MODIFIED and _was_written(os.fsdecode(event.src_path)):
            return
        folder = self._folders.get(here)
        is_replaced = event.event_type in _REPLACING
        for path in {os.fsdecode(event.src_path), os.fsdecode(event.dest_path)} - {""}:
            if path == here:
                # About the folder itself; a change in it has an event of its own as well.
                if is_replaced:
                    self._replan(path)
            elif folder is not None:
                name = os.path.basename(path)
                if (is_way := name in folder.interest.ways) and is_replaced:
                    self._replan(path)
                if is_way or folder.matters(name):
                    self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))

    def _replan(self, path: str) -> None:
        self._replaced.add(path)
        self._outdated.set()

    def _give_up(self, observer: BaseObserver) -> None:
        self._observer, self._folders = None, {}
        # Also one whose thread has ended, or never began: watchdog 7's has a second thread and a descriptor.
        observer.stop()
        if observer.is_alive():
            observer.join(JOIN_S)

    def _work(self, observer: BaseObserver) -> None:
        """Plan again whenever something on the way to a path has changed."""
        stopping = self._worker.stopping
        try:
            while not stopping.is_set():
                self._outdated.wait()
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
                    self._give_up(observer)

    def _plan(self, observer: BaseObserver, *, is_looked_at: bool = False) -> list[str]:
        """Watch exactly the folders on the present ways to the paths; returns the new ones.

        IS_LOOKED_AT: a look at the host follows in any case.
        """
        new: list[str] = []
        self._planning_since = time.monotonic()
        wanted: dict[str, Interest] = {}
        for _ in range(_ROUNDS):
            self._outdated.clear()
            replaced, self._replaced = self._replaced, set()
            wanted = interests(self._paths, self._roots)
            for path in [path for path in self._folders if path not in wanted or _is_below(path, replaced)]:
                self._forget(observer, path)
            self._shortage = ""
            found = [path for path, interest in wanted.items() if self._watch(observer, path, interest)]
            if not found and not self._outdated.is_set():
                break
            # Entries made below them meanwhile were not reported: look once more.
            new += found
        compared = {path: wanted[path] for path in wanted if _is_compared(self._folders.get(path))}
        self._comparison.arm(compared, self._put, is_looked_at=is_looked_at)
        self._planning_since = None
        return new

    def _compare_all(self, why: str) -> None:
        """Compare everything that matters; none of it can be watched, for the reason WHY."""
        self._shortage = why
        self._planning_since = time.monotonic()
        self._comparison.arm(interests(self._paths, self._roots), self._put, is_looked_at=True)
        self._planning_since = None

    def _watch(self, observer: BaseObserver, path: str, interest: Interest) -> bool:
        """Watch the folder PATH for INTEREST; returns whether this is a new watch or another folder."""
        known = self._folders.get(path)
        try:
            there = os.lstat(path)
            identity = (there.st_dev, there.st_ino)
            has_content = self._hears_content(path, identity, interest) and not _holds_nodes(path)
            if known is not None and known.identity == identity and known.has_content == has_content:
                known.expect(interest)
                return False
            self._forget(observer, path)
            # watchdog takes EACCES of inotify_add_watch for success.
            if not os.access(path, os.R_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
            folder = _Folder(identity, interest, has_content=has_content)
            self._folders[path] = folder
            folder.watch = observer.schedule(
                _Handler(self, path), path, event_filter=_CONTENT if has_content else _NAMES
            )
        except (OSError, RuntimeError) as error:
            # Removed for good, or watchdog would take a folder that replaces it for watched.
            self._forget(observer, path)
            if isinstance(error, OSError) and error.errno in _VANISHED:
                self._outdated.set()
            else:
                self._shortage = self._shortage or f"{shown(path)} is not watched: {_explained(error)}"
            return False
        return known is None or known.identity != identity

    def _hears_content(self, path: str, identity: tuple[int, int], interest: Interest) -> bool:
        """Return whether content matters in the folder PATH: for INTEREST, or by another path (a bind mount).

        For watchdog 7 both are one kernel watch, with the event mask of the later one.
        """
        return interest.content or any(
            other.has_content and other.identity == identity
            for way, other in self._folders.items()
            if way != path
        )

    def _forget(self, observer: BaseObserver, path: str) -> None:
        folder = self._folders.pop(path, None)
        if folder is not None and folder.watch is not None:
            observer.unschedule(folder.watch)


def _was_written(path: str) -> bool:
    """Return whether the last change to a file was to its content: a change of mode does not change mtime."""
    try:
        there = os.lstat(path)
    except OSError:
        return True
    return there.st_mtime_ns == there.st_ctime_ns


_REPLACING = {events.EVENT_TYPE_CREATED, events.EVENT_TYPE_DELETED, events.EVENT_TYPE_MOVED}


class _Handler(events.FileSystemEventHandler):
    """Passes the events of the folder PATH to SOURCE."""

    def __init__(self, source: FileSource, path: str) -> None:
        self._source = source
        self._path = path

    def on_any_event(self, event: FileSystemEvent) -> None:
        self._source.note(self._path, event)


class _Folder:
    """A watched folder: its identity, and what matters in it."""

    def __init__(self, identity: tuple[int, int], interest: Interest, *, has_content: bool) -> None:
        self.identity = identity
        self.has_content = has_content
        self.watch: ObservedWatch | None = None
        self.expect(interest)

    def expect(self, interest: Interest) -> None:
        """Let INTEREST be what matters in it."""
        self.interest = interest
        pattern = "|".join(map(expression, interest.patterns)) or "(?!)"
        self._names = re.compile(pattern, re.DOTALL)

    def matters(self, name: str) -> bool:
        """Return whether NAME is one of the names that matter in themselves."""
        return ANY in self.interest.patterns or self._names.fullmatch(name) is not None


def _has_failed(thread: BaseThread) -> bool:
    """Return whether THREAD has ended, except because its folder was removed, which makes an event."""
    return not thread.is_alive() and thread.should_keep_running()


def _is_below(path: str, replaced: set[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in replaced)


def _is_compared(folder: _Folder | None) -> bool:
    """Return whether watching does not report everything that matters in FOLDER."""
    return folder is None or (folder.interest.content and not folder.has_content)


def _holds_nodes(path: str) -> bool:
    """Return whether PATH is a /dev, or inside one: a folder with a device node called null.

    watchdog reports mode changes only together with every write, and all programs write to /dev/null.
    """
    while path != "/":
        try:
            if stat.S_ISCHR(os.lstat(f"{path}/null").st_mode):
                return True
        except OSError:
            pass
        path = os.path.dirname(path)
    return False


def _explained(error: Exception) -> str:
    if isinstance(error, OSError):
        return _LIMITS.get(error.errno or 0) or reason(error)
    return f"{_LIMITS[EAGAIN]} ({error})"


def _nowhere(_: Trigger) -> None:
    """Stands for the inbox until there is one."""
