"""Files that other processes cannot open until the test releases them, as on a hanging disk."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.abilities import cannot_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# fanotify(7) and <linux/fanotify.h>.
_CLASS_CONTENT, _CLOEXEC, _NONBLOCK = 0x4, 0x1, 0x2
_MARK_ADD = 0x1
_OPEN_PERM, _EVENT_ON_CHILD = 0x00010000, 0x08000000
_ALLOW = 1
_EVENT = struct.Struct("=IBBHQii")  # length, version, reserved, metadata's length, mask, file, process
_RESPONSE = struct.Struct("=iI")  # file, response


class BlockedFiles:
    """Blocks other processes when they open a file of the folder; `waiting` is set when a process blocks."""

    def __init__(self, group: int) -> None:
        self.waiting = threading.Event()
        self._group = group
        self._is_held = True
        self._files: list[int] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def release(self) -> None:
        """Unblock the waiting and all later processes."""
        with self._lock:
            self._is_held = False
            for file in self._files:
                self._allow(file)
            self._files = []

    def close(self) -> None:
        self.release()
        self._stop.set()
        self._thread.join()
        os.close(self._group)

    def _listen(self) -> None:
        while not self._stop.wait(0.01):
            try:
                data = os.read(self._group, 1 << 16)
            except BlockingIOError:
                continue
            at = 0
            while at < len(data):
                length, *_, file, process = _EVENT.unpack_from(data, at)
                at += length
                self._decide(file, process)

    def _decide(self, file: int, process: int) -> None:
        with self._lock:
            if self._is_held and process != os.getpid():
                self._files.append(file)
                self.waiting.set()
            else:
                self._allow(file)

    def _allow(self, file: int) -> None:
        os.write(self._group, _RESPONSE.pack(file, _ALLOW))
        os.close(file)


@contextmanager
def blocked(folder: Path) -> Iterator[BlockedFiles]:
    """Block other processes that open a file in FOLDER, until the end of the body or `release`."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fanotify_mark.argtypes = (
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint64,
        ctypes.c_int,
        ctypes.c_char_p,
    )
    group = libc.fanotify_init(_CLASS_CONTENT | _CLOEXEC | _NONBLOCK, os.O_RDONLY | os.O_CLOEXEC)
    if group < 0:
        cannot_run(f"fanotify_init: {os.strerror(ctypes.get_errno())}: run as root")
    if libc.fanotify_mark(group, _MARK_ADD, _OPEN_PERM | _EVENT_ON_CHILD, -1, os.fsencode(folder)) < 0:
        os.close(group)
        cannot_run(f"fanotify_mark: {os.strerror(ctypes.get_errno())}")
    made = BlockedFiles(group)
    try:
        yield made
    finally:
        made.close()
