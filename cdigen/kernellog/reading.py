"""``Reading``: the records of an open /dev/kmsg with their times, and the number of lost records."""

from __future__ import annotations

import os
import time
from errno import EAGAIN, EINVAL, EPIPE

from cdigen.kernellog.drivers import BEGINNINGS
from cdigen.kernellog.records import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The longest record of a kernel in bytes (CONSOLE_EXT_LOG_MAX, PRINTK_MESSAGE_MAX in printk/internal.h).
LONGEST = 1 << 14
# After this number of consecutive failed reads, ``records`` reports that the file is not a kernel log.
_MAX_FAILED_READS = 100


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


def of(descriptor: int, beginnings: tuple[bytes, ...] = BEGINNINGS) -> Reading:
    """Return a ``Reading`` of DESCRIPTOR, which is open and non-blocking."""
    return Reading(lambda size: os.read(descriptor, size), beginnings=beginnings)
