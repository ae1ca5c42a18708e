"""``PollSource``: polls small pseudo files and the names in folders, because their changes make no event."""

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
    from hashlib import blake2b as Digest  # noqa: N812 - the type of the result of blake2b()

    # Returns the state of a path, for comparison.
    Reader = Callable[[str], bytes]

# Maximum number of compared bytes of a file. The polled pseudo files are far smaller.
MAX_BYTES = 1 << 20
# Below /proc/driver/nvidia/capabilities, gpu0/mig lists GPU instances. Only the number of their compute
# instances is relevant.
# The link count of a folder shows this number, at a quarter of the cost of listing 56 folders every second.
# 32 GPUs with 7 instances each have 1,000 entries.
MAX_DEPTH = 2
MAX_ENTRIES = 20_000
_name = attrgetter("name")
# Seconds after which a read is reported as hanging. The driver responds within milliseconds, or hangs with
# its GPU.
HANGS_S = 10.0
# Maximum seconds that a caller waits until all paths are read. Usually, this takes a hundredth of the time.
FIRST_S = 0.3


class PollSource:
    """Puts triggers when the bytes of a file or the names below a folder in PATHS change.

    Folders are listed to the depth ``MAX_DEPTH``. Folders at a greater depth are only counted, so the source
    does not detect that another folder replaces a counted folder between two readings. PATHS may appear and
    disappear. The source follows a link at one of PATHS, but no links below it. Only the source's thread
    reads the paths, so a driver that hangs blocks no other thread.
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
        self._readers = _readers(paths, ())
        self._worker = Worker(self.name)
        self._lock = threading.Lock()
        self._states: dict[str, bytes] = {}
        # Paths to read again immediately.
        self._outdated: set[str] = set()
        # The path that the thread reads now, and the start of the read.
        self._reading: tuple[str, float] | None = None
        self._wake = threading.Event()
        # Set after every path has been read since the last ``rearm``.
        self._known = threading.Event()
        self._is_awaited = False

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Read all paths once, then again at each interval; see ``Source``."""
        if self._hanging():
            raise OSError(EBUSY, self._hanging())
        with self._lock:
            self._states, self._outdated = {}, set()
            self._known.clear()
            self._wake.clear()
        self._worker.start(lambda: self._work(put), put)
        self._wait_until_read(is_more=True)

    def rearm(self, paths: tuple[str, ...], roots: tuple[str, ...] = ()) -> None:
        """Poll PATHS from now on; for the folders ROOTS, poll only their identity.

        The caller checks the host afterwards. All paths are read before the method returns. Otherwise a state
        that the check finds could change back unnoticed before the next reading. If a new path is not read
        within FIRST_S, the source puts a trigger later.
        """
        readers = _readers(paths, roots)
        with self._lock:
            same = self._readers.items() & readers.items()
            is_more = len(same) < len(readers)
            self._readers = readers
            self._states = {path: self._states[path] for path, _ in same if path in self._states}
            self._outdated = set(self._states)
            self._known.clear()
        self._wake.set()
        if is_more or not self._is_slow():
            self._wait_until_read(is_more=is_more)

    def stop(self) -> None:
        """Stop; see ``Source``."""
        self._worker.stopping.set()
        self._wake.set()
        self._worker.stop()

    def problem(self) -> str:
        """Return the reason why no paths are polled, or ""; see ``Source``."""
        return self._hanging() or self._worker.problem()

    def _hanging(self) -> str:
        reading = self._reading
        if reading is None or self._clock() - reading[1] < HANGS_S:
            return ""
        return f"reading {shown(reading[0])} hangs"

    def _is_slow(self) -> bool:
        """Return whether the present read of a path takes long."""
        reading = self._reading
        return reading is not None and self._clock() - reading[1] > FIRST_S

    def _wait_until_read(self, *, is_more: bool) -> None:
        """Wait FIRST_S at most until all paths have been read; IS_MORE is set if there are new paths."""
        if self._worker.is_running() and not self._known.wait(FIRST_S) and is_more:
            with self._lock:
                self._is_awaited = not self._known.is_set()

    def _work(self, put: Callable[[Trigger], None]) -> None:
        while not self._worker.stopping.is_set():
            self._begin(put)
            if self._wake.wait(self._interval_s):
                self._wake.clear()
                continue
            for path in self._readers:
                self._compare(path, put)
                if self._worker.stopping.is_set():
                    return

    def _begin(self, put: Callable[[Trigger], None]) -> None:
        """Read the paths that are due now; call PUT if the wait of a caller timed out."""
        while not self._worker.stopping.is_set():
            with self._lock:
                unread = (
                    path for path in self._readers if path not in self._states or path in self._outdated
                )
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
            readers = self._readers
            read = readers.get(path)
            self._outdated.discard(path)
        if read is None:
            # The path is no longer polled.
            return
        self._reading = (path, self._clock())
        try:
            digest = read(path)
        finally:
            self._reading = None
        with self._lock:
            before = self._states.get(path, digest)
            if self._readers is readers:
                self._states[path] = digest
        if digest != before and not self._worker.stopping.is_set():
            put(Trigger(source=self.name, reason=f"{shown(path)} changed"))


def _readers(paths: tuple[str, ...], roots: tuple[str, ...]) -> dict[str, Reader]:
    """Return the functions that read PATHS and ROOTS, by path."""
    return {**dict.fromkeys(roots, _identity), **dict.fromkeys(paths, _digest)}


def _identity(path: str) -> bytes:
    """Return a value that changes if another folder is mounted over the folder PATH or replaces it.

    The number of a device or a mount may be reused, but the ctime of a folder is unique. The ctime also
    changes with the names in the folder. The names in the root of a tree hardly change.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return b""
    return f"{status.st_dev} {status.st_ino} {status.st_ctime_ns}".encode()


def _digest(path: str) -> bytes:
    """Return a digest of the state of PATH: its bytes, the names below it, or the error."""
    digest = blake2b(digest_size=16)
    try:
        kind = os.stat(path).st_mode
        digest.update(stat.S_IFMT(kind).to_bytes(4, "big"))
        # No other type is opened, because opening a device or a FIFO has effects.
        if stat.S_ISDIR(kind):
            _add_names(path, digest)
        elif stat.S_ISREG(kind):
            _add_bytes(path, digest)
    except (OSError, ValueError) as error:
        digest.update((reason(error) if isinstance(error, OSError) else str(error)).encode())
    return digest.digest()


def _content(folder: str) -> list[str]:
    """Return the number of folders in FOLDER, or all its names if the number is unknown."""
    try:
        links = os.lstat(folder).st_nlink
        # The links are the folder's name, its ".", and the ".." of each folder in it. Btrfs always reports 1.
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
    """Add the names below TOP to DIGEST, folder by folder, without names that vanish during the read."""
    # The path of a folder contains a slash and a name does not, so different trees have different lines.
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
