"""``FolderObserver``: a watchdog observer with one inotify instance and one thread for all folders.

It uses watchdog's extension point ``watchdog.observers.api``. It is an ``EventDispatcher`` that dispatches
the kernel's events (inotify(7)) instead of the events of a queue. The observer of watchdog 6 has an instance
and two threads for each folder, and no release reports an overflow of the kernel's queue
(docs/decisions/0021-one-inotify-instance.md).
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from errno import EBADF

from watchdog.observers.api import EventDispatcher

from cdigen.host.root import reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.api import EventQueue

# The masks and the header of an event (linux/inotify.h).
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_Q_OVERFLOW = 0x4000
_IN_ONLYDIR = 0x0100_0000
_IN_DONT_FOLLOW = 0x0200_0000
_IN_MASK_ADD = 0x2000_0000
_HEADER = struct.Struct("iIII")
# Size of some thousand events. The kernel's queue has 16,384 events (fs.inotify.max_queued_events).
_READ_BYTES = 1 << 16
_LIBC = ctypes.CDLL(None, use_errno=True)


class FolderObserver(EventDispatcher):
    """Calls REPORT for each event of a watched folder, and ENDED if the thread ends without ``stop``.

    The arguments of REPORT are the number of the watch, the mask of the event, and the name in the folder.
    The name is "" for an event of the folder itself. If the kernel's queue overflows, the mask is
    ``IN_Q_OVERFLOW`` and the number belongs to no watch. The thread calls REPORT and ENDED. ``fault`` is the
    reason why the thread has ended without ``stop``. ``stop`` also closes the descriptors of a thread that
    never started. The constructor raises OSError if no inotify instance or no descriptor is left (EMFILE).
    """

    def __init__(self, report: Callable[[int, int, str], object], ended: Callable[[], object]) -> None:
        super().__init__()
        self.name = "cdigen-inotify"
        self.fault = ""
        self._report = report
        self._ended = ended
        # Held while ``_inotify`` is in use, because the number of a closed descriptor may be reused for
        # another file. The thread reads without the lock, because the thread itself closes the descriptor.
        self._lock = threading.Lock()
        self._inotify = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            self._stop_reader, self._stop_writer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(self._inotify)
            raise
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        # ``on_thread_stop`` closes the other end of the pipe, which wakes the thread (POLLHUP).
        self._poll.register(self._stop_reader, 0)

    def watch(self, folder: str, mask: int) -> int:
        """Watch FOLDER for the events in MASK; return the number of the watch.

        All paths to a folder have the same number until the folder is removed or unmounted. The masks of all
        calls for a folder are combined. Raises OSError if FOLDER is not a readable folder, if the limit of
        watches is reached (ENOSPC), or if the thread has ended (EBADF).
        """
        how = mask | _IN_ONLYDIR | _IN_DONT_FOLLOW | _IN_MASK_ADD
        with self._lock:
            return _checked(_LIBC.inotify_add_watch(self._inotify, os.fsencode(folder), how))

    def forget(self, number: int) -> None:
        """Remove the watch NUMBER if the kernel has not already removed it."""
        with self._lock:
            _LIBC.inotify_rm_watch(self._inotify, number)

    def dispatch_events(self, event_queue: EventQueue) -> None:  # noqa: ARG002 - the kernel's queue is read
        """Wait for events, and report the events of a single read; the thread calls this."""
        self._poll.poll()
        if not self.should_keep_running():
            return
        events = os.read(self._inotify, _READ_BYTES)
        if not events:
            raise OSError(EBADF, "the inotify descriptor was closed")
        at = 0
        while at < len(events):
            number, mask, _, length = _HEADER.unpack_from(events, at)
            at += _HEADER.size + length
            self._report(number, mask, os.fsdecode(events[at - length : at].rstrip(b"\0")))

    def run(self) -> None:
        """Report events until ``stop``; the thread calls this."""
        fault = "killed"
        try:
            super().run()
        except OSError as error:
            fault = reason(error)
        finally:
            self._close()
            if self.should_keep_running():
                self.fault = fault
                self._ended()

    def on_thread_stop(self) -> None:
        """Wake the thread, which then ends and closes its descriptors; ``stop`` calls this."""
        writer, self._stop_writer = self._stop_writer, -1
        if writer < 0:
            return
        os.close(writer)
        if self.ident is None:
            self._close()

    def _close(self) -> None:
        with self._lock:
            os.close(self._inotify)
            os.close(self._stop_reader)
            self._inotify = -1


def _checked(result: int) -> int:
    """Return RESULT of a call of the C library; raise OSError if RESULT is negative."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
