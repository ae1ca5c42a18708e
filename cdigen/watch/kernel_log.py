"""``KernelLogSource``: what drivers write into the kernel's log, told by the program that may read it.

That is cdigen/kernellog: a service behind a socket, which starts one for each connection, or, where there
is no such socket, a child of this process, which then has to be allowed to open the log.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import struct
import sys
import threading
from contextlib import closing, suppress
from errno import EBADMSG, ENOTCONN, EPERM
from pathlib import Path

from cdigen.host.childprocess import ENVIRONMENT
from cdigen.host.root import reason, shown
from cdigen.model.errors import HostError
from cdigen.model.health import LogRecord
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

# etc/cdigen-kernel-log.socket
SOCKET = "/run/cdigen-kernel-log.sock"
LOG = "/dev/kmsg"
PROGRAM = str(Path(__file__).parents[1] / "kernellog/__main__.py")
# While as many wait to be taken, the program has to wait as well, and the log is the queue.
MOST = 1000
# A line is a record of at most 16 KiB, some of it written as two characters.
LONGEST_LINE = 1 << 16
_REASON = 100
_END_S = 0.4
_CREDENTIALS = struct.Struct("iII")  # struct ucred, unix(7)


@frozen
class Heard:
    """What the log said since the last time: its records in their order, and how many were lost unread.

    After each start of the source it begins with the oldest record that the kernel has, so records come
    again.
    """

    records: tuple[LogRecord, ...] = ()
    lost: int = 0


class KernelLogSource:
    """Tells of records of known drivers in the kernel's log; ``take`` gives them.

    They are the kernel's own: what users write into it is not among them. SOCKET_PATH is the service's, LOG
    what is opened where there is none.
    """

    name = "kernel-log"

    def __init__(self, *, socket_path: str = SOCKET, log: str = LOG) -> None:
        self._socket_path = socket_path
        self._log = log
        self._worker = Worker(self.name)
        self._lock = threading.Lock()
        self._records: list[LogRecord] = []
        self._lost = 0
        self._wake = -1

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Listen; see ``Source``. What the log has already makes a trigger, too."""
        voice = self._voice()
        try:
            wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            voice.close()
            raise
        # Before it can be needed: who takes what fills the queue has to wake the thread.
        self._wake = wake
        try:
            self._worker.start(lambda: self._work(voice, wake, put), put)
        except OSError:
            self._wake = -1
            voice.close()
            os.close(wake)
            raise

    def stop(self) -> None:
        """Stop listening; see ``Source``. What was heard can still be taken."""
        self._worker.stopping.set()
        with self._lock:
            wake, self._wake = self._wake, -1
        if wake >= 0:
            os.eventfd_write(wake, 1)
            self._worker.stop()
            os.close(wake)

    def problem(self) -> str:
        """Return why nothing is heard any more; see ``Source``."""
        return self._worker.problem()

    def take(self) -> Heard:
        """Return what was heard since the last time; any thread may call this."""
        with self._lock:
            heard = Heard(records=tuple(self._records), lost=self._lost)
            self._records, self._lost = [], 0
            # Under the lock: else it may have been closed, and be another file's.
            if len(heard.records) >= MOST and self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        return heard

    def _voice(self) -> _Voice:
        try:
            return _Service(self._socket_path)
        except OSError as error:
            refusal = f"{self._socket_path}: {reason(error)}"
        try:
            log = os.open(self._log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(
                f"the kernel's log cannot be read ({refusal}; {self._log}: {reason(error)})",
                hint="systemctl start cdigen-kernel-log.socket; in a pod: docs/fleet.md, privileged",
            ) from error
        try:
            return _Child(log)
        finally:
            os.close(log)

    def _work(self, voice: _Voice, wake: int, put: Callable[[Trigger], None]) -> None:
        with closing(voice):
            poller = select.poll()
            poller.register(wake, select.POLLIN)
            poller.register(voice.descriptor, select.POLLIN)
            begun = b""
            while not self._worker.stopping.is_set():
                if self._is_full():
                    poller.modify(voice.descriptor, 0)
                ready = dict(poller.poll())
                if wake in ready and not self._worker.stopping.is_set():
                    os.eventfd_read(wake)
                    poller.modify(voice.descriptor, select.POLLIN)
                elif voice.descriptor in ready:
                    begun = self._hear(begun, os.read(voice.descriptor, LONGEST_LINE), put)

    def _is_full(self) -> bool:
        with self._lock:
            return len(self._records) >= MOST

    def _hear(self, begun: bytes, more: bytes, put: Callable[[Trigger], None]) -> bytes:
        """Hear the lines in BEGUN and MORE, and return the beginning of another one."""
        if not more:
            raise OSError(ENOTCONN, "the reader of the kernel's log has ended")
        *lines, rest = (begun + more).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise OSError(EBADMSG, "the reader of the kernel's log does not end its line")
        records, lost = [], 0
        for line in lines:
            heard = _read(line)
            if isinstance(heard, int):
                lost += heard
            else:
                records.append(heard)
        if records or lost:
            self._add(records, lost, put)
        return rest

    def _add(self, records: list[LogRecord], lost: int, put: Callable[[Trigger], None]) -> None:
        with self._lock:
            is_first = not self._records and not self._lost
            self._records += records
            self._lost += lost
        if is_first:
            text = records[0].text if records else f"{lost} records of the kernel's log were lost"
            put(Trigger(source=self.name, reason=shown(text[:_REASON])))


def _read(line: bytes) -> LogRecord | int:
    """Return the record in LINE, or how many were lost; OSError: it is neither, or says a problem."""
    try:
        told = json.loads(line)
        if "problem" in told:
            raise OSError(ENOTCONN, shown(str(told["problem"])))
        if "lost" in told:
            return int(told["lost"])
        at_s = float(told["at"])
        if not math.isfinite(at_s):
            raise ValueError(at_s)
        return LogRecord(
            sequence=int(told["seq"]),
            at_s=at_s,
            text=shown(str(told["text"])),
            device=shown(str(told["device"])),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        said = shown(line[:_REASON].decode("utf-8", "replace"))
        raise OSError(EBADMSG, f"the reader of the kernel's log says what is no record: {said}") from error


class _Service:
    """A connection to the service, which systemd has started for it."""

    def __init__(self, path: str) -> None:
        # Without waiting: where too many wait to be connected, it is refused.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
            # Who listens: process 1 for the unit. Others could tell of errors that are none.
            credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            _, owner, _ = _CREDENTIALS.unpack(credentials)
            if owner not in {0, os.geteuid()}:
                raise PermissionError(EPERM, f"it belongs to uid {owner}")
        except OSError:
            self._socket.close()
            raise
        self.descriptor = self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class _Child:
    """The program as a child of this process, reading LOG, which is open."""

    def __init__(self, log: int) -> None:
        import subprocess  # noqa: PLC0415 - 8 ms, and with the service there is no child

        self._process: Popen[bytes] = subprocess.Popen(  # noqa: S603 - the command is our own
            (sys.executable, "-ISB", PROGRAM, "--given"),
            stdin=log,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
        )
        if self._process.stdout is None:
            raise ValueError("it was started with a pipe")
        self.descriptor = self._process.stdout.fileno()

    def close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.kill()
        with suppress(Exception):
            self._process.wait(_END_S)


if TYPE_CHECKING:
    _Voice = _Service | _Child
