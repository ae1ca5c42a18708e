"""``FileSource``: files and folders that may not exist yet, be replaced, or be reached through links.

Each folder on the way to a path is watched, not recursively, for the names that matter in it
(``waypoints``). The watches are planned anew when one of the names that lead somewhere changes.

Of watchdog this uses the inotify reader (``observers.inotify_c``) and not its Observer, which has a
thread for each folder, a queue without a bound, and holds a file that was moved away back for 0.5 s
(watchdog 7.1: ``InotifyMoveEventGrouper.delay``). Nothing is queued here but in the kernel.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from errno import EACCES, EBADF, EBUSY, ELOOP, EMFILE, ENOENT, ENOSPC, ENOTDIR
from itertools import count

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyFD, Mask, WatchDescriptor

from cdigen.host.root import reason, shown
from cdigen.watch.comparison import INTERVAL_S, FolderComparison, expression
from cdigen.watch.triggers import Trigger
from cdigen.watch.waypoints import ANY, interests
from cdigen.watch.worker import JOIN_S, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.inotify_c import InotifyEvent

    from cdigen.watch.waypoints import Interest

# A folder that has come meanwhile, below one that has just been found: more levels than any path has.
_ROUNDS = 32
# While it pauses, the kernel gathers events and merges equal ones: 10,000 a second make 100 batches.
_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.2
# Planning takes a tenth of the time at most, however fast things change.
_PAUSES_PER_PLANNING = 9
# Reading the names of some folders takes microseconds.
HANGS_S = 10.0
_HANGS = "looking at the watched folders hangs"
# Gone, or replaced by a file or a link, since the ways were planned: the next plan knows it.
_VANISHED = {ENOENT, ENOTDIR, ELOOP}
_LIMITS = {
    ENOSPC: "the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)",
    EMFILE: "the limit of inotify instances (sysctl fs.inotify.max_user_instances) or of open files is"
    " reached",
}

_I = InotifyConstants
_COMES_OR_GOES = (
    _I.IN_CREATE | _I.IN_DELETE | _I.IN_MOVED_FROM | _I.IN_MOVED_TO | _I.IN_DELETE_SELF | _I.IN_MOVE_SELF
)
# Not IN_MODIFY: a file that is being written is of use when it is closed. IN_MASK_ADD, because two of
# our folders may be one (a bind mount), and the later would narrow what the earlier wants to hear.
_HOW = _I.IN_ONLYDIR | _I.IN_DONT_FOLLOW | _I.IN_MASK_ADD


class FileSource:
    """Tells when one of PATHS, or anything that decides what they mean, changes.

    PATHS are absolute paths of this machine: of files, of folders (each entry matters), or with ``*``
    in the last name. ROOTS are trees out of which no link leads (``waypoints.interests``). Not seen are
    pseudo files (/proc, /sys), and something mounted over a folder until the next ``rearm``. Folders that no
    watch is to be had for are compared every COMPARE_S.
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
        # Held while watches are planned, made and given up, by the worker or by who calls us; for ever,
        # where a file system does not answer: nobody waits for it without a bound.
        self._lock = threading.Lock()
        self._inotify: _Inotify | None = None
        self._ids = count(1)
        self._folders: dict[str, _Folder] = {}
        self._outdated = False
        self._shortage = ""
        self._planning_since: float | None = None

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Watch; see ``Source``. Folders that no watch is to be had for are a ``problem``, not an error."""
        if not self._lock.acquire(timeout=JOIN_S):
            raise OSError(EBUSY, _HANGS)
        try:
            self._put, self._folders = put, {}
            try:
                inotify = _Inotify()
            except OSError as error:
                self._compare_all(_explained(error))
                return
            self._inotify = inotify
            try:
                self._plan(inotify)
                self._worker.start(lambda: self._work(inotify), put)
            except OSError:
                self._give_up(inotify)
                raise
        except OSError as error:
            raise OSError(error.errno, _explained(error)) from error
        finally:
            self._lock.release()

    def rearm(self, paths: tuple[str, ...], *, roots: tuple[str, ...] = ()) -> None:
        """Watch PATHS in ROOTS from now on, whatever they mean now; cheap where nothing has changed.

        Whoever calls this looks at the host afterwards: it makes no trigger.
        """
        self._paths, self._roots = paths, roots
        if self._lock.acquire(timeout=JOIN_S):
            try:
                if self._inotify is not None:
                    self._plan(self._inotify)
                elif self._shortage:
                    self._compare_all(self._shortage)
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Stop watching; see ``Source``."""
        self._worker.stopping.set()
        has_lock = self._lock.acquire(timeout=JOIN_S / 2)
        try:
            self._shortage = ""
            if self._inotify is not None:
                self._give_up(self._inotify)
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

    def _give_up(self, inotify: _Inotify) -> None:
        """Close INOTIFY, whose last words are nobody's business: it says of each folder that it is gone."""
        self._inotify, self._folders = None, {}
        inotify.close()

    def _work(self, inotify: _Inotify) -> None:
        stopping = self._worker.stopping
        try:
            while not stopping.is_set():
                self._work_off(inotify.read_events(), inotify)
                stopping.wait(self._renew(inotify))
        finally:
            if not stopping.is_set():
                with self._lock:
                    inotify.interrupted()
                    self._give_up(inotify)

    def _work_off(self, events: list[InotifyEvent], inotify: _Inotify) -> None:
        if not events and not self._worker.stopping.is_set():
            # The reader swallows EBADF, and would say so again and again.
            raise OSError(EBADF, "the inotify descriptor was closed")
        for event in events:
            if event.is_queue_overflow:
                self._outdated = True
                self._put(Trigger(source=self.name, reason="events were lost: too many at once"))
            else:
                inotify.handle_event(event)

    def _renew(self, inotify: _Inotify) -> float:
        """Plan anew if something on the way to a path has changed; returns how long to pause now."""
        if not self._outdated:
            return _PAUSE_S
        began = time.monotonic()
        with self._lock:
            if self._inotify is not inotify:
                return 0.0
            for folder in self._plan(inotify):
                # What came into it before it was watched was seen by nobody.
                self._put(Trigger(source=self.name, reason=f"{shown(folder)} changed"))
        pause = (time.monotonic() - began) * _PAUSES_PER_PLANNING
        return min(max(_PAUSE_S, pause), _LONGEST_PAUSE_S)

    def _plan(self, inotify: _Inotify) -> list[str]:
        """Watch what now decides the paths' meaning, and nothing else; returns the folders that are new."""
        new: list[str] = []
        self._planning_since = time.monotonic()
        wanted: dict[str, Interest] = {}
        for _ in range(_ROUNDS):
            self._outdated = False
            wanted = interests(self._paths, self._roots)
            self._forget(inotify, [path for path in self._folders if path not in wanted])
            self._shortage = ""
            found = [path for path, interest in wanted.items() if self._watch(inotify, path, interest)]
            if not found and not self._outdated:
                break
            # What has come below them meanwhile was not announced: look once more.
            new += found
        if self._inotify is inotify:
            self._compare({path: wanted[path] for path in wanted if path not in self._folders})
        self._planning_since = None
        return new

    def _compare_all(self, why: str) -> None:
        """Compare all that matters; nothing of it is watched, and WHY is known."""
        self._shortage = why
        self._planning_since = time.monotonic()
        self._compare(interests(self._paths, self._roots))
        self._planning_since = None

    def _compare(self, folders: dict[str, Interest]) -> None:
        """Compare FOLDERS in the place of watching them."""
        self._comparison.arm(folders, self._put)

    def _watch(self, inotify: _Inotify, path: str, interest: Interest) -> bool:
        """Watch the folder PATH for INTEREST; returns whether it was not watched, or was another folder."""
        if self._inotify is not inotify:
            # Given up while this hung.
            return False
        known = self._folders.get(path)
        folder = _Folder(self, path, interest, CallbackId(next(self._ids)))
        try:
            # The kernel knows best whether PATH is still the folder that we watch: its number stays.
            folder.number = inotify.add_callback(os.fsencode(path), _mask(path, interest), folder, folder.id)
        except OSError as error:
            self._forget(inotify, [path])
            if error.errno in _VANISHED:
                self._outdated = True
            else:
                self._shortage = self._shortage or f"{shown(path)} is not watched: {_explained(error)}"
            return False
        self._forget(inotify, [path])
        self._folders[path] = folder
        if folder.number == -1:
            # The reader takes EACCES for success.
            self._forget(inotify, [path])
            self._shortage = self._shortage or f"{shown(path)} is not watched: {os.strerror(EACCES)}"
            return False
        return known is None or known.number != folder.number

    def _forget(self, inotify: _Inotify, paths: list[str]) -> None:
        gone = [folder for path in paths if (folder := self._folders.pop(path, None))]
        inotify.remove_callbacks([(folder.number, folder.id) for folder in gone])

    def note(self, path: str, *, is_way: bool) -> None:
        """Say that PATH has changed; the reader's thread calls this, without the lock."""
        if self._inotify is None:
            return
        if is_way:
            self._outdated = True
        self._put(Trigger(source=self.name, reason=f"{shown(path)} changed"))


class _Folder:
    """A watched folder: what the reader calls for each of its events."""

    def __init__(self, source: FileSource, path: str, interest: Interest, id_: CallbackId) -> None:
        self.id = id_
        self.number = WatchDescriptor(-1)
        self._source = source
        self._path = path
        self._ways = {os.fsencode(name) for name in interest.ways}
        self._any = ANY in interest.patterns
        self._names = re.compile(os.fsencode("|".join(map(expression, interest.patterns))) or b"(?!)")

    def on_event(self, event: InotifyEvent) -> None:
        if not event.name:
            # About the folder itself: moved, removed, unmounted, or given to somebody else.
            self._source.note(self._path, is_way=True)
        elif (is_way := event.name in self._ways) or self._any or self._names.fullmatch(event.name):
            self._source.note(os.path.join(self._path, os.fsdecode(event.name)), is_way=is_way)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        if wd == self.number:
            self._source.note(self._path, is_way=True)

    def on_queue_overflow(self) -> None:
        """Do nothing: FileSource has seen it."""


class _Inotify(InotifyFD):
    """watchdog's reader, read by the source's own thread: its thread is never started."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted()

    def interrupted(self) -> None:
        """Say that nobody is in ``read_events``: ``close`` leaves the closing to a read that goes on."""
        with self._lock:
            self._is_reading = False


def _mask(path: str, interest: Interest) -> Mask:
    mask = _COMES_OR_GOES | _HOW
    if interest.content:
        mask |= _I.IN_ATTRIB
        # Every end of a program that has written to /dev/null would be an event, and nothing is ever
        # written into a folder of device nodes.
        if not _holds_nodes(path):
            mask |= _I.IN_CLOSE_WRITE
    return Mask(mask)


def _holds_nodes(path: str) -> bool:
    """Return whether PATH is a /dev, or lies in one: a folder with a device node that is called null."""
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
    """Stand for the inbox until there is one."""
