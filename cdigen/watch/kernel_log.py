"""``KernelLogSource``: receives lines of drivers in the kernel log, from a program with access to the log.

The program is cdigen/kernellog. systemd starts the program for each connection to a socket. If the connection
fails, the program is a child of this process. This process must then be permitted to open the log.
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

from cdigen import page_url
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
# Maximum number of records in the source. At this number, the source stops reading, so the program blocks,
# and the kernel log serves as the queue.
MOST = 1000
# Maximum bytes of a line. A record has at most 16 KiB. Some bytes of a record are two characters in the line.
LONGEST_LINE = 1 << 16
_REASON = 100
_END_S = 0.4
_CREDENTIALS = struct.Struct("iII")  # struct ucred, unix(7)


@frozen
class LogBatch:
    """The records of the log since the last ``take``, in their order, and the number of lost records.

    After each start of the source, the first batch begins with the oldest record that the kernel has.
    Therefore some records are returned again.
    """

    records: tuple[LogRecord, ...] = ()
    lost: int = 0


class KernelLogSource:
    """Puts a trigger for records of accelerator drivers in the kernel log; ``take`` returns the records.

    Only the kernel writes these records. Records that users write are ignored. SOCKET_PATH is the socket of
    the service. LOG is the file to open if the connection to the socket fails. DRIVERS are drivers of vendors
    of other packages; the arguments of the service name them, too.
    """

    name = "kernel-log"

    def __init__(self, *, socket_path: str = SOCKET, log: str = LOG, drivers: tuple[str, ...] = ()) -> None:
        self._socket_path = socket_path
        self._log = log
        self._drivers = drivers
        self._worker = Worker(self.name)
        self._lock = threading.Lock()
        self._records: list[LogRecord] = []
        self._lost = 0
        self._wake = -1

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start to read; see ``Source``. Records that are in the log already also cause a trigger."""
        reader = self._open_reader()
        try:
            wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            reader.close()
            raise
        # The descriptor is set before the thread starts, because ``take`` must wake the thread if the queue
        # was full.
        self._wake = wake
        try:
            self._worker.start(lambda: self._work(reader, wake, put), put)
        except OSError:
            self._wake = -1
            reader.close()
            os.close(wake)
            raise

    def stop(self) -> None:
        """Stop; see ``Source``. ``take`` still returns the received records."""
        self._worker.stopping.set()
        with self._lock:
            wake, self._wake = self._wake, -1
        if wake >= 0:
            os.eventfd_write(wake, 1)
            self._worker.stop()
            os.close(wake)

    def problem(self) -> str:
        """Return the reason why no records are received, or ""; see ``Source``."""
        return self._worker.problem()

    def take(self) -> LogBatch:
        """Return the records since the last call. Any thread may call this."""
        with self._lock:
            batch = LogBatch(records=tuple(self._records), lost=self._lost)
            self._records, self._lost = [], 0
            # The lock is held here, because another thread may close the descriptor, and its number may be
            # reused.
            if len(batch.records) >= MOST and self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        return batch

    def _open_reader(self) -> _Reader:
        try:
            return _Service(self._socket_path)
        except OSError as error:
            refusal = f"{self._socket_path}: {reason(error)}"
        try:
            log = os.open(self._log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise HostError(
                f"the kernel log cannot be read ({refusal}; {self._log}: {reason(error)})",
                hint="systemctl start cdigen-kernel-log.socket; in a privileged pod: "
                + page_url("how-to/kubernetes/daemonset"),
            ) from error
        try:
            return _Child(log, self._drivers)
        finally:
            os.close(log)

    def _work(self, reader: _Reader, wake: int, put: Callable[[Trigger], None]) -> None:
        with closing(reader):
            poller = select.poll()
            poller.register(wake, select.POLLIN)
            poller.register(reader.descriptor, select.POLLIN)
            begun = b""
            while not self._worker.stopping.is_set():
                if self._is_full():
                    poller.modify(reader.descriptor, 0)
                ready = dict(poller.poll())
                if wake in ready and not self._worker.stopping.is_set():
                    os.eventfd_read(wake)
                    poller.modify(reader.descriptor, select.POLLIN)
                elif reader.descriptor in ready:
                    begun = self._receive(begun, os.read(reader.descriptor, LONGEST_LINE), put)

    def _is_full(self) -> bool:
        with self._lock:
            return len(self._records) >= MOST

    def _receive(self, begun: bytes, more: bytes, put: Callable[[Trigger], None]) -> bytes:
        """Add the records of the lines in BEGUN and MORE; return the last, incomplete line."""
        if not more:
            raise OSError(ENOTCONN, "the reader of the kernel log has ended")
        *lines, rest = (begun + more).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise OSError(EBADMSG, "the reader of the kernel log sent a line that is too long")
        records, lost = [], 0
        for line in lines:
            parsed = _read(line)
            if isinstance(parsed, int):
                lost += parsed
            else:
                records.append(parsed)
        if records or lost:
            self._add(records, lost, put)
        return rest

    def _add(self, records: list[LogRecord], lost: int, put: Callable[[Trigger], None]) -> None:
        with self._lock:
            is_first = not self._records and not self._lost
            self._records += records
            self._lost += lost
        if is_first:
            text = records[0].text if records else f"{lost} records of the kernel log were lost"
            put(Trigger(source=self.name, reason=shown(text[:_REASON])))


def _read(line: bytes) -> LogRecord | int:
    """Return the record or the number of lost records in LINE; raise OSError for any other LINE."""
    try:
        row = json.loads(line)
        if "problem" in row:
            raise OSError(ENOTCONN, shown(str(row["problem"])))
        if "lost" in row:
            return int(row["lost"])
        at_s = float(row["at"])
        if not math.isfinite(at_s):
            raise ValueError(at_s)
        return LogRecord(
            sequence=int(row["seq"]),
            at_s=at_s,
            text=shown(str(row["text"])),
            device=shown(str(row["device"])),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        quoted = shown(line[:_REASON].decode("utf-8", "replace"))
        raise OSError(
            EBADMSG, f"the reader of the kernel log sent a line that is no record: {quoted}"
        ) from error


class _Service:
    """A connection to the service. systemd starts the program for each connection."""

    def __init__(self, path: str) -> None:
        # ``connect`` does not block. It fails if the backlog of the socket is full.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
            # If systemd listens on the socket, the peer is process 1. A process of another user could report
            # false errors.
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
    """The program as a child of this process. The program reads LOG, an open descriptor."""

    def __init__(self, log: int, drivers: tuple[str, ...]) -> None:
        import subprocess  # noqa: PLC0415 - 8 ms; with the service there is no child

        self._process: Popen[bytes] = subprocess.Popen(  # noqa: S603 - cdigen's own command
            (sys.executable, "-ISB", PROGRAM, "--stdin", *(f"--driver={name}" for name in drivers)),
            stdin=log,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
        )
        if self._process.stdout is None:
            raise ValueError("the child has no pipe for stdout")
        self.descriptor = self._process.stdout.fileno()

    def close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.kill()
        with suppress(Exception):
            self._process.wait(_END_S)


if TYPE_CHECKING:
    _Reader = _Service | _Child
