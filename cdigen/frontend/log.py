"""Log JSON lines to stderr, times in UTC: ``make_logger`` makes the logger, ``take_over`` for libraries too.

structlog is used without its global configuration. Its console part imports rich where that is installed,
45 ms and 6 MB for colours that no line of ours has, so rich is hidden from it.
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


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let imports of the module NAME fail (None in sys.modules: "The import system", 5.3.1)."""
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # what the import system documents
    try:
        yield
    finally:
        if hidden:
            del sys.modules[name]


with _without("rich"):
    import structlog

# Waitress warns of every client that it sheds.
_LEAST_LEVEL = {"waitress": logging.ERROR}
# Whoever reads the log takes a line within microseconds, or has stopped reading.
WAIT_S = 0.2


class _Lines:
    """Writes lines to a descriptor and never blocks: nobody may be reading them.

    A line that cannot be written within WAIT_S is dropped, and so are the next ones at once, until there is
    room again: their number is then logged in a line of its own.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._dropped = 0
        # The last line was cut: the next one must not be appended to it.
        self._is_torn = False

    def msg(self, line: str) -> None:
        # The lock's holder waits for the reader; a thread that ends the process must not wait for it.
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

    # structlog calls the method by the name of the level.
    debug = info = warning = error = critical = msg

    def _write(self, line: str, wait_s: float) -> bool:
        """Write LINE, waiting for room for WAIT_S at most; returns whether all of it was taken."""
        data = f"{line}\n".encode("utf-8", "replace")
        if self._is_torn:
            data = b"\n" + data
        has_begun = False
        until_s = time.monotonic() + wait_s
        try:
            while data:
                # A pipe with any room takes this many bytes without blocking (poll(2), PIPE_BUF).
                if not self._poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
                    break
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
                has_begun, self._is_torn = True, False
        except OSError:
            # No reader, or a full disk.
            pass
        self._is_torn = self._is_torn or (has_begun and bool(data))
        return not data


def _losses(lines: int) -> str:
    timestamp = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
    said = {"timestamp": timestamp, "level": "warning", "event": "log lines were dropped", "lines": lines}
    return json.dumps(said)


def make_logger(*, verbose: bool = False, fd: int = 2) -> FilteringBoundLogger:
    """Return a logger that writes JSON lines to the descriptor FD; only with VERBOSE those of level debug."""
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


def take_over(logger: FilteringBoundLogger) -> None:
    """Bring what libraries log (warnings and above) into LOGGER, so that stderr holds one form of line."""
    root = logging.getLogger()
    root.handlers[:] = [_Bridge(logger)]
    root.setLevel(logging.WARNING)
    for name, level in _LEAST_LEVEL.items():
        logging.getLogger(name).setLevel(level)


def log_sources(
    logger: FilteringBoundLogger, now: tuple[tuple[str, str], ...], before: tuple[tuple[str, str], ...]
) -> None:
    """Log each source of events whose problem has changed since BEFORE."""
    known = dict(before)
    for name, problem in now:
        if problem and problem != known.get(name, ""):
            logger.warning("source", source=name, message=problem)
        elif known.get(name, "") and not problem:
            logger.info("source", source=name, message="works again")


def _ordered(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put the most important keys first."""
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


class _Bridge(logging.Handler):
    """Passes a library's message to our logger."""

    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno, logging.WARNING), logging.ERROR) // 10 * 10
        facts: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        self._logger.log(level, record.getMessage(), logger=record.name, **facts)
