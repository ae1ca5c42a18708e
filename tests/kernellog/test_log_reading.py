"""Reading returns the records in their order, with the number of lost records and the time of each record."""

import errno
from collections.abc import Callable

import pytest
from support.daemon.kernel_records import AMDGPU, XID, record

from cdigen.kernellog.drivers import BEGINNINGS, beginnings
from cdigen.kernellog.reading import LONGEST, Reading

# The present CLOCK_BOOTTIME. CLOCK_MONOTONIC is 1000 s, because the machine was suspended.
NOW_S = 90_000.0


class Log:
    """A log with a result for each read, and EAGAIN for later reads."""

    def __init__(self, *results: bytes | int) -> None:
        self.results = list(results)

    def read(self, size: int) -> bytes:
        assert size == LONGEST
        result = self.results.pop(0) if self.results else errno.EAGAIN
        if isinstance(result, int):
            raise OSError(result, "")
        return result


def reading(log: Log, *, now: Callable[[], float] = lambda: NOW_S, awake_s: float = 1000.0) -> Reading:
    return Reading(log.read, boot_s=now, awake_s=lambda: awake_s)


def read_all(*results: bytes | int) -> list[tuple[int, bytes]]:
    """Return (sequence, text) for each record in RESULTS, and (number, b"") for lost records."""
    return [(number, text) for number, _, text, _ in reading(Log(*results)).records(len(results))]


def test_a_driver_that_an_argument_names_is_known_by_the_beginning_of_its_lines() -> None:
    found = beginnings(["--stdin", "--driver=acme_npu", "--driver="])
    assert found == (*BEGINNINGS, b"acme_npu ")
    line = record("acme_npu 0000:41:00.0: engine 3 hung", 3)
    for known, texts in ((BEGINNINGS, []), (found, [b"acme_npu 0000:41:00.0: engine 3 hung"])):
        log = Reading(Log(line).read, boot_s=lambda: NOW_S, awake_s=lambda: 1.0, beginnings=known)
        assert [text for _, _, text, _ in log.records(1)] == texts


def test_a_gap_in_the_sequence_is_reported_before_the_next_record() -> None:
    found = read_all(record(XID[0], 10), record(XID[1], 11), record(AMDGPU, 14))
    assert found == [
        (10, XID[0].encode()),
        (11, XID[1].encode()),
        (2, b""),
        (14, AMDGPU.encode()),
    ]


def test_an_ignored_record_is_no_gap_but_a_gap_before_an_ignored_record_is_reported() -> None:
    assert read_all(record(XID[0], 10), record("usb", 11), record("x", 12, level=12), record("usb", 20)) == [
        (10, XID[0].encode()),
        (7, b""),
    ]


def test_the_next_record_shows_the_number_of_overwritten_records() -> None:
    assert read_all(record("usb", 3), errno.EPIPE, record(XID[0], 103)) == [(99, b""), (103, XID[0].encode())]


def test_overwritten_records_before_the_first_record_are_reported_as_one_lost_record() -> None:
    assert read_all(errno.EPIPE, record(XID[0], 103)) == [(1, b""), (103, XID[0].encode())]


def test_a_record_that_is_too_long_is_reported_as_lost() -> None:
    assert read_all(record("usb", 3), errno.EINVAL, record(XID[0], 5)) == [(1, b""), (5, XID[0].encode())]


def test_an_invalid_record_is_reported_as_lost() -> None:
    assert read_all(record("usb", 3), b"nonsense", record(XID[0], 5)) == [(1, b""), (5, XID[0].encode())]


def test_a_repeated_record_is_no_gap() -> None:
    assert read_all(record(XID[0], 5), record(XID[0], 5)) == [(5, XID[0].encode())] * 2


def test_a_file_that_fails_every_read_is_not_a_log() -> None:
    with pytest.raises(OSError, match="not a kernel log"):
        read_all(*[errno.EINVAL] * 200)
    with pytest.raises(OSError, match="not a kernel log"):
        list(reading(Log(*[errno.EPIPE] * 200)).records(200))


def test_records_are_read_even_if_other_records_are_overwritten_before_each_read() -> None:
    results = [each for number in range(200) for each in (record(XID[0], 9 * number), errno.EPIPE)]
    assert [number for number, text in read_all(*results) if text] == [9 * number for number in range(200)]


def test_an_unexpected_error_ends_the_reading() -> None:
    with pytest.raises(OSError, match=f"{errno.EIO}"):
        read_all(record(XID[0], 5), errno.EIO)


def test_no_more_than_the_requested_records_are_read() -> None:
    log = Log(*[record(XID[0], number) for number in range(10)])
    begun = reading(log)
    assert len(list(begun.records(3))) == 3
    assert not begun.is_drained
    assert len(list(begun.records(30))) == 7


def test_a_log_without_further_data_is_drained_and_a_log_at_its_end_of_file_has_ended() -> None:
    log = Log(record(XID[0], 1))
    begun = reading(log)
    list(begun.records(9))
    assert (begun.is_drained, begun.has_ended) == (True, False)
    log.results.append(b"")
    list(begun.records(9))
    assert (begun.is_drained, begun.has_ended) == (False, True)


def times(begun: Reading) -> list[float]:
    return [at_s for _, at_s, _, _ in begun.records(100)]


def test_the_age_of_an_earlier_record_is_computed_with_clock_monotonic() -> None:
    log = Log(record(XID[0], 1, stamp_us=400_500_000), record(XID[0], 2, stamp_us=900_000_000))
    assert times(reading(log)) == [NOW_S - 599.5, NOW_S - 100]


def test_a_record_that_is_read_when_it_is_written_has_the_present_time() -> None:
    # The clock of printk and CLOCK_MONOTONIC differ, and both stop during a suspension.
    log = Log(record(XID[0], 1, stamp_us=900_000_000))
    now_s = [NOW_S]
    begun = reading(log, now=lambda: now_s[0])
    assert times(begun) == [NOW_S - 100]
    now_s[0] += 50_000
    begun.set_waited()
    log.results += [record(XID[0], 2, stamp_us=960_000_000), record(XID[0], 3, stamp_us=959_000_000)]
    assert times(begun) == [NOW_S + 50_000, NOW_S + 49_999]


def test_no_record_has_a_future_time() -> None:
    log = Log(record(XID[0], 1, stamp_us=1_000_000_000_000))
    assert times(reading(log)) == [NOW_S]
