"""``PollSource``: poll what makes no events: small pseudo files, and the names in folders."""

from __future__ import annotations

import os
import stat
import threading
import time
from errno import EBUSY
from hashlib import blake2b
from operator import attrgetter

from cdigen.host.root import reason, shown
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import blake2b as Digest  # noqa: N812 - the type of what blake2b() gives

    # Returns the state of a path, to compare.
    Reader = Callable[[str], bytes]

# Pseudo files worth polling are far smaller; the rest is not compared.
MAX_BYTES = 1 << 20
# Below capabilities, gpu0/mig lists GPU instances; of the compute instances in these only their number
# matters: a folder's link count gives it at a quarter of the cost of listing 56 folders every second. 32 GPUs
# with 7 instances each give 1,000 entries.
MAX_DEPTH = 2
MAX_ENTRIES = 20_000
_name = attrgetter("name")
# The driver answers within milliseconds, or hangs with its GPU.
HANGS_S = 10.0
# A hundred times what reading everything takes.
FIRST_S = 0.3


class PollSource:
    """Triggers when the bytes of a file, or the names below a folder, of PATHS change.

    Folders are listed to the depth ``MAX_DEPTH``, and the folders below are counted: if one replaces another
    there between two readings, that is not seen. PATHS may be absent, and come and go. Links are
    followed to what PATHS name, not below it. Everything is read by the source's own thread: a driver that
    hangs blocks no other thread.
    """

    name = "poll"

    def __init__(
        self,
        paths: tuple[str, ...] = (),
        interval_s: float = 2.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._wanted = _readers(paths, ())
        self._worker = Worker(self.name)
        self._lock = threading.Lock()
        self._seen: dict[str, bytes] = {}
        # Paths to read again at once.
        self._outdated: set[str] = set()
        # Which path is being read, and since when.
        self._reading: tuple[str, float] | None = None
        self._wake = threading.Event()
        # Set while every wanted path has been read since the last ``rearm``.
        self._known = threading.Event()
        self._is_awaited = False

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Read once, then again every interval; see ``Source``."""
        if self._hanging():
            raise OSError(EBUSY, self._hanging())
        with self._lock:
            self._seen, self._outdated = {}, set()
            self._known.clear()
            self._wake.clear()
        self._worker.start(lambda: self._work(put), put)
        self._settle(is_more=True)

    def rearm(self, paths: tuple[str, ...], roots: tuple[str, ...] = ()) -> None:
        """Poll PATHS from now on, and of the folders ROOTS only their identity.

        The caller looks at the host afterwards. All paths have been read by then: another source may have
        caused that look, and what it finds may change back before the next reading. A new path that was not
        read in time makes a trigger as soon as it is.
        """
        wanted = _readers(paths, roots)
        with self._lock:
            same = self._wanted.items() & wanted.items()
            is_more = len(same) < len(wanted)
            self._wanted = wanted
            self._seen = {path: self._seen[path] for path, _ in same if path in self._seen}
            self._outdated = set(self._seen)
            self._known.clear()
        self._wake.set()
        if is_more or not self._is_slow():
            self._settle(is_more=is_more)

    def stop(self) -> None:
        """Stop polling; see ``Source``."""
        self._worker.stopping.set()
        self._wake.set()
        self._worker.stop()

    def problem(self) -> str:
        """Return why nothing is polled; see ``Source``."""
        return self._hanging() or self._worker.problem()

    def _hanging(self) -> str:
        reading = self._reading
        if reading is None or self._clock() - reading[1] < HANGS_S:
            return ""
        return f"reading {shown(reading[0])} hangs"

    def _is_slow(self) -> bool:
        """Return whether a path takes long to read at this moment."""
        reading = self._reading
        return reading is not None and self._clock() - reading[1] > FIRST_S

    def _settle(self, *, is_more: bool) -> None:
        """Wait until all paths have been read, but not for one that hangs; IS_MORE: there are new ones."""
        if self._worker.is_running() and not self._known.wait(FIRST_S) and is_more:
            with self._lock:
                self._is_awaited = not self._known.is_set()

    def _work(self, put: Callable[[Trigger], None]) -> None:
        while not self._worker.stopping.is_set():
            self._begin(put)
            if self._wake.wait(self._interval_s):
                self._wake.clear()
                continue
            for path in self._wanted:
                self._compare(path, put)
                if self._worker.stopping.is_set():
                    return

    def _begin(self, put: Callable[[Trigger], None]) -> None:
        """Read what has to be read at once; call PUT if a caller has given up waiting for a new path."""
        while not self._worker.stopping.is_set():
            with self._lock:
                unread = (path for path in self._wanted if path not in self._seen or path in self._outdated)
                new = next(unread, None)
                if new is None:
                    self._known.set()
                    is_late, self._is_awaited = self._is_awaited, False
                    break
            self._compare(new, put)
        else:
            return
        if is_late:
            put(Trigger(source=self.name, reason="the first reading took long"))

    def _compare(self, path: str, put: Callable[[Trigger], None]) -> None:
        with self._lock:
            wanted = self._wanted
            read = wanted.get(path)
            self._outdated.discard(path)
        if read is None:
            # Dropped meanwhile.
            return
        self._reading = (path, self._clock())
        try:
            digest = read(path)
        finally:
            self._reading = None
        with self._lock:
            before = self._seen.get(path, digest)
            if self._wanted is wanted:
                self._seen[path] = digest
        if digest != before and not self._worker.stopping.is_set():
            put(Trigger(source=self.name, reason=f"{shown(path)} changed"))


def _readers(paths: tuple[str, ...], roots: tuple[str, ...]) -> dict[str, Reader]:
    """Return how each of PATHS and ROOTS is read."""
    return {**dict.fromkeys(roots, _identity), **dict.fromkeys(paths, _digest)}


def _identity(path: str) -> bytes:
    """Return what distinguishes the folder PATH from one that is mounted over it or replaces it.

    The numbers of a device and a mount are reused as soon as they are free; a folder's ctime is not. It also
    changes with the names in the folder, but those of a tree's root hardly change.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return b""
    return f"{status.st_dev} {status.st_ino} {status.st_ctime_ns}".encode()


def _digest(path: str) -> bytes:
    """Return the state of PATH: its bytes, the names below it, or why there are none."""
    digest = blake2b(digest_size=16)
    try:
        kind = os.stat(path).st_mode
        digest.update(stat.S_IFMT(kind).to_bytes(4, "big"))
        # Nothing else is opened: opening a device or a FIFO has effects.
        if stat.S_ISDIR(kind):
            _add_names(path, digest)
        elif stat.S_ISREG(kind):
            _add_bytes(path, digest)
    except (OSError, ValueError) as error:
        digest.update((reason(error) if isinstance(error, OSError) else str(error)).encode())
    return digest.digest()


def _content(folder: str) -> list[str]:
    """Return the state of FOLDER's entries: the number of folders in it, or all names."""
    try:
        links = os.lstat(folder).st_nlink
        # Links: its own name, its "." and the ".." of each folder in it; Btrfs does not count (always 1).
        return [str(links)] if links > 1 else sorted(os.listdir(folder))
    except OSError:
        return []


def _add_bytes(path: str, digest: Digest) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        left = MAX_BYTES
        while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
            digest.update(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)


def _add_names(top: str, digest: Digest) -> None:
    """Add the names below TOP to DIGEST, folder by folder; what vanishes while it is listed is left out."""
    # A folder's path has a slash and a name has none, so two trees never give the same lines.
    lines: list[str] = []
    pending = [(top, 0)]
    while pending and len(lines) < MAX_ENTRIES:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as listing:
                found = sorted(listing, key=_name)
        except OSError:
            continue
        lines.append(f"{folder}/")
        for entry in found:
            lines.append(entry.name)
            if not entry.is_dir(follow_symlinks=False):
                continue
            if depth < MAX_DEPTH:
                pending.append((entry.path, depth + 1))
            else:
                lines += _content(entry.path)
    digest.update(os.fsencode("\0".join(lines)))
