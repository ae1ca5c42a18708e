"""Pass on lines of the kernel's log: ``run``.

Each line on standard output is a JSON object: ``{"seq", "at", "text", "device"}`` of a record, ``{"lost":
N}`` where N records were overwritten unread, ``{"problem": "..."}`` before an unexpected end. ``at`` is in
seconds, by CLOCK_BOOTTIME (``reading``). It begins with the oldest record that the kernel still has, and
ends when nobody reads any more.

With ``--given``, the log is open as standard input.
"""

from __future__ import annotations

import os
import select
import sys
import time

from cdigen.kernellog import reading, rights
from cdigen.kernellog.thinning import Thinning

LOG = "/dev/kmsg"
# How many records are read before their lines are written.
TURN = 256
# Between two turns of a busy log: 10,000 records a second are 200 then, and the smallest buffer has 1,300.
PAUSE_S = 0.02


class _GoneError(Exception):
    """Nobody reads the lines any more."""


def run() -> None:
    """Run the program, and end the process."""
    try:
        sys.exit(main(sys.argv[1:]))
    except _GoneError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def main(arguments: list[str]) -> int:
    """Pass on lines until the log ends; returns the exit code."""
    try:
        if arguments != ["--given"]:
            _open_at_zero()
        os.set_blocking(0, False)
        rights.shed()
        _pass_on(reading.of(0), Thinning())
    except OSError as error:
        why = f"{LOG}: {error.strerror}"
        print(f"cdigen-kernel-log: {why}", file=sys.stderr)
        _write(f'{{"problem": "{why}"}}\n'.encode())
        return 1
    return 0


def _open_at_zero() -> None:
    descriptor = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor != 0:
        os.dup2(descriptor, 0, inheritable=False)
        os.close(descriptor)


def _pass_on(log: reading.Reading, thinning: Thinning) -> None:
    poller = select.poll()
    poller.register(0, select.POLLIN)
    # Errors are always told: that the reader has closed its end is one (poll(2)).
    poller.register(1, 0)
    woken_s = 0.0
    while not log.has_ended:
        _add(log, thinning)
        _write(thinning.take(time.monotonic()))
        ready = dict(poller.poll(0))
        if log.is_drained and not ready:
            ready = dict(poller.poll(_patience_ms(thinning)))
            if 0 in ready:
                log.waited()
        if 1 in ready:
            raise _GoneError
        if log.is_drained:
            if time.monotonic() - woken_s < PAUSE_S:
                time.sleep(PAUSE_S)
            woken_s = time.monotonic()
    _write(thinning.finish())


def _patience_ms(thinning: Thinning) -> float | None:
    due_s = thinning.due_s()
    return None if due_s is None else max(due_s - time.monotonic(), 0.0) * 1000 + 1


def _add(log: reading.Reading, thinning: Thinning) -> None:
    now_s = time.monotonic()
    for number, at_s, text, device in log.records(TURN):
        if text:
            line = b'{"seq": %d, "at": %.6f, "text": "%s", "device": "%s"}\n'
            thinning.add(line % (number, at_s, _quoted(text), _quoted(device)), text, now_s)
        else:
            thinning.add_at_once(b'{"lost": %d}\n' % number)


def _quoted(text: bytes) -> bytes:
    """Return TEXT, which is printable ASCII, as JSON writes it; json itself takes 7 ms and 1 MB."""
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _write(lines: bytes) -> None:
    try:
        while lines:
            lines = lines[os.write(1, lines) :]
    except (BrokenPipeError, ConnectionResetError):
        raise _GoneError from None
