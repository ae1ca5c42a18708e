"""JSON log lines on stderr: ``make_logger``, and ``capture_libraries`` for the messages of libraries.

Times are in UTC. structlog is used without its global configuration. The console part of structlog imports
rich if rich is installed. The import takes 45 ms and 6 MB, for colours that no log line has. Therefore this
module hides rich from structlog.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import select
import sys
import threading
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from cdigen.service.process.buffered_log import Logger


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Make imports of the module NAME fail in the body (None in sys.modules: "The import system", 5.3.1)."""
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # as the import system documents
    try:
        yield
    finally:
        if hidden:
            del sys.modules[name]


with _without("rich"):
    import structlog

# Seconds. A reader of the log reads a line within microseconds, or has stopped reading.
WAIT_S = 0.2


class _Lines:
    """Writes lines to a descriptor and never blocks, even if no process reads them.

    A line that cannot be written within WAIT_S is dropped. The following lines are dropped immediately until
    the descriptor is writable again. Then a line reports the number of dropped lines.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._dropped = 0
        # Whether the last line was cut. The next line must then begin with a line break.
        self._is_torn = False

    def msg(self, line: str) -> None:
        # The thread that holds the lock waits for the reader. A thread that ends the process must not wait
        # without a limit.
        if not self._lock.acquire(timeout=2 * WAIT_S):
            self._dropped += 1
            return
        try:
            if self._dropped and self._write(_losses(self._dropped), 0.0):
                self._dropped = 0
            if self._dropped or not self._write(line, WAIT_S):
                self._dropped += 1
        finally:
            self._lock.release()

    # structlog calls the method with the name of the level.
    debug = info = warning = error = critical = msg

    def _write(self, line: str, wait_s: float) -> bool:
        """Write LINE within WAIT_S seconds; return whether the whole line was written."""
        data = f"{line}\n".encode("utf-8", "replace")
        if self._is_torn:
            data = b"\n" + data
        has_begun = False
        until_s = time.monotonic() + wait_s
        try:
            while data:
                # A pipe that poll reports as writable accepts PIPE_BUF bytes without blocking (poll(2)).
                if not self._poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
                    break
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
                has_begun, self._is_torn = True, False
        except OSError:
            # No process reads the descriptor, or the disk is full.
            pass
        self._is_torn = self._is_torn or (has_begun and bool(data))
        return not data


def _losses(lines: int) -> str:
    timestamp = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
    row = {
        "timestamp": timestamp,
        "level": "warning",
        "event": "log_dropped",
        "message": "log lines were dropped because stderr was not read",
        "lines": lines,
    }
    return json.dumps(row)


def make_logger(*, verbose: bool = False, fd: int = 2) -> FilteringBoundLogger:
    """Return a logger that writes JSON lines to the descriptor FD. Level debug is written only if VERBOSE."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _Lines(fd),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _ordered,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        cache_logger_on_first_use=True,
    )
    return logger


def capture_libraries(logger: FilteringBoundLogger) -> None:
    """Send warnings and errors of libraries to LOGGER, so that stderr has a single format."""
    root = logging.getLogger()
    root.handlers[:] = [_Bridge(logger)]
    root.setLevel(logging.WARNING)


def log_sources(
    logger: Logger, now: tuple[tuple[str, str], ...], before: tuple[tuple[str, str], ...]
) -> None:
    """Log each event source whose problem has changed since BEFORE."""
    known = dict(before)
    for name, problem in now:
        if problem and problem != known.get(name, ""):
            logger.warning("source", source=name, message=problem)
        elif known.get(name, "") and not problem:
            logger.info("source", source=name, message=f"the event source {name} works again")


def _ordered(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the event with the most important keys first."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


class _Bridge(logging.Handler):
    """Passes the messages of libraries to LOGGER."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno, logging.WARNING), logging.ERROR) // 10 * 10
        facts: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        self._logger.log(level, record.getMessage(), logger=record.name, **facts)
