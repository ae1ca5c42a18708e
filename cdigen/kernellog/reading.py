"""``Reading``: the records of an open /dev/kmsg, those that were lost, and when each was written."""

from __future__ import annotations

import os
import time
from errno import EAGAIN, EINVAL, EPIPE

from cdigen.kernellog.drivers import BEGINNINGS
from cdigen.kernellog.records import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Longer ones the kernel does not make: CONSOLE_EXT_LOG_MAX, PRINTK_MESSAGE_MAX (printk/internal.h).
LONGEST = 1 << 14
# Records that do not fit one after the other: no kernel's log.
_PATIENCE = 100


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Reading:
    """Reads records with READ, which takes a number of bytes, as ``os.read`` of a descriptor without waiting.

    Times are those of CLOCK_BOOTTIME. A record's stamp is of a clock of printk's own, which stands still
    while the machine is suspended. So a record that is read as it is written tells what its stamp means,
    and the next ones are counted from there; those that had been there before are counted by what
    CLOCK_MONOTONIC lacks now. Of these, records from before a suspension appear later than they were, by
    the length of it.
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
        # What has to be added to a stamp.
        self._asleep_s = boot_s() - awake_s()
        self._is_fresh = False
        self._last: int | None = None
        self._has_lost = False
        self.has_ended = False
        self.is_drained = False

    def waited(self) -> None:
        """Tell that nothing was there to be read, and that the next record is being written now."""
        self._is_fresh = True

    def records(self, most: int) -> Iterator[tuple[int, float, bytes, bytes]]:
        """Give what there is: sequence, time, text and device; at most MOST are read.

        With an empty text, the first number is how many records were lost. OSError: the log cannot be read.
        """
        refused, self.is_drained = 0, False
        for _ in range(most):
            try:
                raw = self._read(LONGEST)
            except OSError as error:
                if error.errno == EAGAIN:
                    self.is_drained = True
                    return
                # EPIPE: the next record was overwritten; EINVAL: it is longer than any. Both are passed
                # over.
                refused += 1
                if error.errno not in {EPIPE, EINVAL}:
                    raise
                if refused > _PATIENCE:
                    raise OSError(EINVAL, "no kernel's log") from error
                self._has_lost = True
                continue
            if not raw:
                self.has_ended = True
                return
            refused = 0
            yield from self._told(raw)

    def _told(self, raw: bytes) -> Iterator[tuple[int, float, bytes, bytes]]:
        record = parsed(raw, self._beginnings)
        if record is None:
            return
        sequence, stamp_us, text, device = record
        stamp_s = stamp_us / 1e6
        if self._is_fresh:
            self._asleep_s, self._is_fresh = self._boot_s() - stamp_s, False
        if lost := self._lost_before(sequence):
            yield lost, 0.0, b"", b""
        self._last = sequence
        if text:
            yield sequence, min(self._asleep_s + stamp_s, self._boot_s()), text, device

    def _lost_before(self, sequence: int) -> int:
        has_lost, self._has_lost = self._has_lost, False
        if self._last is None:
            # How many there were before the first one cannot be known.
            return int(has_lost)
        return max(sequence - self._last - 1, 0)


def of(descriptor: int, beginnings: tuple[bytes, ...] = BEGINNINGS) -> Reading:
    """Return the reading of DESCRIPTOR, which is open and does not wait."""
    return Reading(lambda size: os.read(descriptor, size), beginnings=beginnings)
