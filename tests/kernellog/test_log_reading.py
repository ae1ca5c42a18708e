"""Records one after the other: what was lost in between, and the time of each."""

import errno
from collections.abc import Callable

import pytest
from support.daemon.kernel_records import AMDGPU, XID, record

from cdigen.kernellog.reading import LONGEST, Reading

# Of CLOCK_BOOTTIME; the machine was awake for the last thousand of it.
NOW_S = 90_000.0


class Log:
    """A log that answers one read after the other, and then that nothing is there."""

    def __init__(self, *answers: bytes | int) -> None:
        self.answers = list(answers)

    def read(self, size: int) -> bytes:
        assert size == LONGEST
        answer = self.answers.pop(0) if self.answers else errno.EAGAIN
        if isinstance(answer, int):
            raise OSError(answer, "")
        return answer


def reading(log: Log, *, now: Callable[[], float] = lambda: NOW_S, awake_s: float = 1000.0) -> Reading:
    return Reading(log.read, boot_s=now, awake_s=lambda: awake_s)


def told(*answers: bytes | int) -> list[tuple[int, bytes]]:
    """Return what is told of ANSWERS: the sequence and the text, or how many were lost and nothing."""
    return [(number, text) for number, _, text, _ in reading(Log(*answers)).records(len(answers))]


def test_a_gap_in_the_sequence_is_told_before_the_record_after_it() -> None:
    said = told(record(XID[0], 10), record(XID[1], 11), record(AMDGPU, 14))
    assert said == [
        (10, XID[0].encode()),
        (11, XID[1].encode()),
        (2, b""),
        (14, AMDGPU.encode()),
    ]


def test_records_of_others_are_no_gap_and_tell_of_one() -> None:
    assert told(record(XID[0], 10), record("usb", 11), record("x", 12, level=12), record("usb", 20)) == [
        (10, XID[0].encode()),
        (7, b""),
    ]


def test_what_was_overwritten_before_it_was_read_is_counted_by_the_next_record() -> None:
    assert told(record("usb", 3), errno.EPIPE, record(XID[0], 103)) == [(99, b""), (103, XID[0].encode())]


def test_nobody_knows_how_much_was_overwritten_before_the_first_record() -> None:
    assert told(errno.EPIPE, record(XID[0], 103)) == [(1, b""), (103, XID[0].encode())]


def test_a_record_that_is_too_long_is_lost() -> None:
    assert told(record("usb", 3), errno.EINVAL, record(XID[0], 5)) == [(1, b""), (5, XID[0].encode())]


def test_what_is_no_record_is_passed_over() -> None:
    assert told(record("usb", 3), b"nonsense", record(XID[0], 5)) == [(1, b""), (5, XID[0].encode())]


def test_a_record_that_comes_again_is_no_gap() -> None:
    assert told(record(XID[0], 5), record(XID[0], 5)) == [(5, XID[0].encode())] * 2


def test_what_refuses_every_read_is_no_log() -> None:
    with pytest.raises(OSError, match="no kernel's log"):
        told(*[errno.EINVAL] * 200)
    with pytest.raises(OSError, match="no kernel's log"):
        list(reading(Log(*[errno.EPIPE] * 200)).records(200))


def test_a_log_that_is_overwritten_between_any_two_reads_is_still_a_log() -> None:
    answers = [each for number in range(200) for each in (record(XID[0], 9 * number), errno.EPIPE)]
    assert [number for number, text in told(*answers) if text] == [9 * number for number in range(200)]


def test_an_error_of_another_kind_ends_it() -> None:
    with pytest.raises(OSError, match=f"{errno.EIO}"):
        told(record(XID[0], 5), errno.EIO)


def test_at_most_as_many_are_read_as_was_asked_for() -> None:
    log = Log(*[record(XID[0], number) for number in range(10)])
    begun = reading(log)
    assert len(list(begun.records(3))) == 3
    assert not begun.is_drained
    assert len(list(begun.records(30))) == 7


def test_a_log_is_read_out_when_there_is_nothing_and_has_ended_when_there_is_no_more() -> None:
    log = Log(record(XID[0], 1))
    begun = reading(log)
    list(begun.records(9))
    assert (begun.is_drained, begun.has_ended) == (True, False)
    log.answers.append(b"")
    list(begun.records(9))
    assert (begun.is_drained, begun.has_ended) == (False, True)


def times(begun: Reading) -> list[float]:
    return [at_s for _, at_s, _, _ in begun.records(100)]


def test_a_record_that_was_there_already_is_as_old_as_the_machine_was_awake_since() -> None:
    log = Log(record(XID[0], 1, stamp_us=400_500_000), record(XID[0], 2, stamp_us=900_000_000))
    assert times(reading(log)) == [NOW_S - 599.5, NOW_S - 100]


def test_a_record_that_is_read_as_it_is_written_is_of_now_whatever_its_stamp() -> None:
    # printk's clock runs apart from the machine's, and neither counts a suspension.
    log = Log(record(XID[0], 1, stamp_us=900_000_000))
    now_s = [NOW_S]
    begun = reading(log, now=lambda: now_s[0])
    assert times(begun) == [NOW_S - 100]
    now_s[0] += 50_000
    begun.waited()
    log.answers += [record(XID[0], 2, stamp_us=960_000_000), record(XID[0], 3, stamp_us=959_000_000)]
    assert times(begun) == [NOW_S + 50_000, NOW_S + 49_999]


def test_no_record_is_of_the_future() -> None:
    log = Log(record(XID[0], 1, stamp_us=1_000_000_000_000))
    assert times(reading(log)) == [NOW_S]
