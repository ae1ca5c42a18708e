"""``Reading``: the records of an open /dev/kmsg with their times, and the number of lost records.

``parsed`` parses a record (Documentation/ABI/testing/dev-kmsg). A record is
``LEVEL,SEQUENCE,STAMP,FLAG[,...];TEXT``, then lines ``" NAME=value"`` about the device. The kernel escapes
backslashes and all characters except printable ASCII as a backslash with hexadecimal digits. Therefore TEXT
is a single line.
"""

from __future__ import annotations

import time
from errno import EAGAIN, EINVAL, EPIPE

from cdigen.kernellog.drivers import BEGINNINGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Sequence, timestamp in microseconds, text ("" if not relevant), the kernel's name of the device.
    Record = tuple[int, int, bytes, bytes]

# The longest record of a kernel in bytes (CONSOLE_EXT_LOG_MAX, PRINTK_MESSAGE_MAX in printk/internal.h).
LONGEST = 1 << 14
# After this number of consecutive failed reads, ``records`` reports that the file is not a kernel log.
_MAX_FAILED_READS = 100
_DEVICE = b"\n DEVICE="
# The kernel writes only printable ASCII. This table guarantees printable ASCII to the reader of the lines.
_PLAIN = bytes(byte if 32 <= byte < 127 else ord("?") for byte in range(256))


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Reading:
    """Reads records with READ(size), which behaves like ``os.read`` of a non-blocking descriptor.

    Times are CLOCK_BOOTTIME. The timestamp of a record is the time of printk's clock, which stops while the
    machine is suspended. If a record is read directly after it was written, the present time and its
    timestamp show the offset of printk's clock. Later records use this offset. Earlier records in the buffer
    use the difference of CLOCK_BOOTTIME and CLOCK_MONOTONIC at the start of the program. If such a record is
    from before a suspension, its time is too late by the duration of the suspension.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        *,
        boot_s: Callable[[], float] = _boot_s,
        awake_s: Callable[[], float] = time.monotonic,
        beginnings: tuple[bytes, ...] = BEGINNINGS,
    ) -> None:
        self._read = read
        self._boot_s = boot_s
        self._beginnings = beginnings
        # The sum of a timestamp and this offset is CLOCK_BOOTTIME.
        self._offset_s = boot_s() - awake_s()
        self._is_fresh = False
        self._last: int | None = None
        self._has_lost = False
        self.has_ended = False
        self.is_drained = False

    def set_waited(self) -> None:
        """Record that the program waited for data, so the next record is read directly after its write."""
        self._is_fresh = True

    def records(self, most: int) -> Iterator[tuple[int, float, bytes, bytes]]:
        """Yield at most MOST available records as sequence, time, text and device.

        If the text is empty, the first number is the number of lost records. Raises OSError if the log cannot
        be read.
        """
        failed, self.is_drained = 0, False
        for _ in range(most):
            try:
                raw = self._read(LONGEST)
            except OSError as error:
                if error.errno == EAGAIN:
                    self.is_drained = True
                    return
                # EPIPE: the next record was overwritten. EINVAL: the next record is longer than LONGEST.
                failed += 1
                if error.errno not in {EPIPE, EINVAL}:
                    raise
                if failed > _MAX_FAILED_READS:
                    raise OSError(EINVAL, "not a kernel log") from error
                self._has_lost = True
                continue
            if not raw:
                self.has_ended = True
                return
            failed = 0
            yield from self._parsed(raw)

    def _parsed(self, raw: bytes) -> Iterator[tuple[int, float, bytes, bytes]]:
        record = parsed(raw, self._beginnings)
        if record is None:
            return
        sequence, stamp_us, text, device = record
        stamp_s = stamp_us / 1e6
        if self._is_fresh:
            self._offset_s, self._is_fresh = self._boot_s() - stamp_s, False
        if lost := self._lost_before(sequence):
            yield lost, 0.0, b"", b""
        self._last = sequence
        if text:
            yield sequence, min(self._offset_s + stamp_s, self._boot_s()), text, device

    def _lost_before(self, sequence: int) -> int:
        has_lost, self._has_lost = self._has_lost, False
        if self._last is None:
            # The number of records before the first record is unknown.
            return int(has_lost)
        return max(sequence - self._last - 1, 0)


def parsed(raw: bytes, beginnings: tuple[bytes, ...] = BEGINNINGS) -> Record | None:
    """Return sequence, timestamp in microseconds, text and device of RAW, or None if RAW is invalid.

    The text is "" if it begins with none of BEGINNINGS, or if the kernel is not the author of the record.
    Users can write records with syslog(3), or to /dev/kmsg if root permits it. The kernel gives such records
    a facility other than 0 (``devkmsg_write``, printk.c). The text of continuations (flags ``c`` and ``+``)
    is "" as well, because a fragment of an interrupted line may begin with any text.
    """
    head, mark, body = raw.partition(b";")
    fields = head.split(b",", 4)
    if not mark or len(fields) < 4:
        return None
    try:
        level, sequence, stamp_us = int(fields[0]), int(fields[1]), int(fields[2])
    except ValueError:
        return None
    if level > 7 or level < 0 or fields[3] != b"-" or not body.startswith(beginnings):
        return sequence, stamp_us, b"", b""
    text, _, rest = body.partition(b"\n")
    device = (b"\n" + rest).partition(_DEVICE)[2].partition(b"\n")[0]
    return sequence, stamp_us, text.translate(_PLAIN), device.translate(_PLAIN)
