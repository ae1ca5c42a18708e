"""``run`` forwards lines of the kernel log to standard output.

Each line on standard output is a JSON object:

- ``{"seq", "at", "text", "device"}`` is a record;
- ``{"lost": N}`` means that N records were overwritten before they were read;
- ``{"problem": "..."}`` precedes an unexpected end of the program.

``at`` is CLOCK_BOOTTIME in seconds (``reading``). The output begins with the oldest record in the kernel's
buffer. The program ends when the reader closes the pipe. With ``--stdin``, the program does not open the log,
because its standard input is the open log. ``--driver=NAME`` adds the lines of a driver that is not in
``drivers``.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time

from cdigen.kernellog.drivers import beginnings
from cdigen.kernellog.rate_limiter import LogRateLimiter
from cdigen.kernellog.reading import Reading

LOG = "/dev/kmsg"
# Maximum number of records that are read before their lines are written.
TURN = 256
# Seconds of pause after the program has read all records of a busy log. At 10,000 records per second, the
# kernel writes 200 records in the pause. The smallest kernel buffer contains 1,300 records.
PAUSE_S = 0.02
# The overflow user, which owns no files (Documentation/admin-guide/sysctl/fs.rst, overflowuid).
_NOBODY = 65534
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38  # prctl(2)
# More capabilities than any kernel has. The loop ends at the first unknown capability.
_CAPABILITIES = 64


class _GoneError(Exception):
    """The reader has closed the pipe."""


def run() -> None:
    """Run the program, and end the process."""
    try:
        sys.exit(main(sys.argv[1:]))
    except _GoneError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def main(arguments: list[str]) -> int:
    """Forward lines until the log ends, and return the exit code."""
    try:
        if "--stdin" not in arguments:
            _open_at_zero()
        os.set_blocking(0, False)
        _drop_privileges()
        log = Reading(lambda size: os.read(0, size), beginnings=beginnings(arguments))
        _forward(log, LogRateLimiter())
    except OSError as error:
        problem = f"{LOG}: {error.strerror}"
        print(f"cdigen-kernel-log: {problem}", file=sys.stderr)
        _write(f'{{"problem": "{problem}"}}\n'.encode())
        return 1
    return 0


def _open_at_zero() -> None:
    descriptor = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor != 0:
        os.dup2(descriptor, 0, inheritable=False)
        os.close(descriptor)


def _drop_privileges() -> None:
    """Forbid further open files and processes, and give up root.

    The read of an open /dev/kmsg requires no privilege (devkmsg_open, printk.c). Under systemd, the program
    never runs as root. If a container does not permit root to change the user, the program stays root.
    """
    if os.geteuid() == 0:
        _leave_root()
    # Descriptors 0 and 1 are open. The kernel rejects any other descriptor (getrlimit(2)).
    resource.setrlimit(resource.RLIMIT_NOFILE, (2, 2))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_root() -> None:
    import ctypes  # noqa: PLC0415 - 3 ms and 1 MB, not needed by the service

    prctl = ctypes.CDLL(None).prctl
    for capability in range(_CAPABILITIES):
        if prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    except PermissionError:
        return


def _forward(log: Reading, limiter: LogRateLimiter) -> None:
    poller = select.poll()
    poller.register(0, select.POLLIN)
    # poll always reports errors, and also that the reader has closed its end (poll(2)).
    poller.register(1, 0)
    turn_s = 0.0
    while not log.has_ended:
        _add(log, limiter)
        _write(limiter.take(time.monotonic()))
        ready = dict(poller.poll(0))
        if log.is_drained and not ready:
            ready = dict(poller.poll(_timeout_ms(limiter)))
            if 0 in ready:
                log.set_waited()
        if 1 in ready:
            raise _GoneError
        if log.is_drained:
            if time.monotonic() - turn_s < PAUSE_S:
                time.sleep(PAUSE_S)
            turn_s = time.monotonic()
    _write(limiter.finish())


def _timeout_ms(limiter: LogRateLimiter) -> float | None:
    due_s = limiter.due_s()
    return None if due_s is None else max(due_s - time.monotonic(), 0.0) * 1000 + 1


def _add(log: Reading, limiter: LogRateLimiter) -> None:
    now_s = time.monotonic()
    for number, at_s, text, device in log.records(TURN):
        if text:
            line = b'{"seq": %d, "at": %.6f, "text": "%s", "device": "%s"}\n'
            limiter.add(line % (number, at_s, _quoted(text), _quoted(device)), text, now_s)
        else:
            limiter.add_at_once(b'{"lost": %d}\n' % number)


def _quoted(text: bytes) -> bytes:
    """Return TEXT (printable ASCII) escaped for JSON. The import of json would take 7 ms and 1 MB."""
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _write(lines: bytes) -> None:
    try:
        while lines:
            lines = lines[os.write(1, lines) :]
    except (BrokenPipeError, ConnectionResetError):
        raise _GoneError from None
