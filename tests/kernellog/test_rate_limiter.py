"""The limiter forwards the first and last lines of a flood of equal lines, and all other lines, in order."""

from hypothesis import given
from hypothesis import strategies as some

from cdigen.kernellog.rate_limiter import BURST, MOST, SECOND_S, LogRateLimiter


def xid(number: int, *, bus: int = 0x65, pid: int = 1, name: str = "python3") -> bytes:
    return b"NVRM: Xid (PCI:0000:%02x:00): %d, pid=%d, name=%s, Ch 0000002e" % (
        bus,
        number,
        pid,
        name.encode(),
    )


def forwarded(texts: list[bytes], *, at_s: float = 5.0, limiter: LogRateLimiter | None = None) -> list[int]:
    """Return the numbers of the TEXTS that are forwarded immediately; all lines have the time AT_S."""
    limiter = limiter or LogRateLimiter()
    for number, text in enumerate(texts):
        limiter.add(b"%d\n" % number, text, at_s)
    return [int(line) for line in limiter.take(at_s).splitlines()]


def test_equal_lines_up_to_the_number_burst_are_all_forwarded() -> None:
    assert forwarded([xid(13)] * BURST) == list(range(BURST))


def test_the_last_line_of_a_flood_is_forwarded_at_the_end_of_the_second() -> None:
    limiter = LogRateLimiter()
    assert forwarded([xid(13, pid=number) for number in range(10_000)], limiter=limiter)[-1] == BURST
    assert limiter.due_s() == 5.0 + SECOND_S
    assert limiter.take(5.9) == b""
    assert limiter.take(6.0) == b"9999\n"
    assert limiter.due_s() is None


def test_a_line_of_another_device_or_error_is_forwarded_at_once_after_the_held_line() -> None:
    flood = [xid(13, pid=number) for number in range(1000)]
    assert forwarded([*flood, xid(79), *flood, xid(13, bus=0x17)])[BURST + 1 :] == [999, 1000, 2000, 2001]


def test_lines_differ_by_text_and_not_by_numbers() -> None:
    ras = b"amdgpu 0000:c1:00.0: amdgpu: socket: 0, die: %d %d %s hardware errors detected in umc block"
    flood = [ras % (0, number, b"correctable") for number in range(1000)]
    assert forwarded([*flood, ras % (1, 1, b"uncorrectable"), *flood])[-2:] == [999, 1000]


def test_the_next_second_begins_with_a_new_burst() -> None:
    limiter = LogRateLimiter()
    forwarded([xid(13)] * 1000, limiter=limiter)
    assert forwarded([xid(13)] * 3, limiter=limiter, at_s=6.5) == [999, 0, 1, 2]


def test_a_line_that_add_at_once_adds_is_forwarded_after_the_held_line() -> None:
    limiter = LogRateLimiter()
    forwarded([xid(13)] * 1000, limiter=limiter)
    limiter.add_at_once(b"lost\n")
    assert limiter.take(5.0) == b"999\nlost\n"


def test_the_held_line_is_forwarded_at_the_end() -> None:
    limiter = LogRateLimiter()
    forwarded([xid(13)] * 1000, limiter=limiter)
    assert limiter.finish() == b"999\n"


def test_all_lines_are_forwarded_if_they_have_more_messages_than_the_limit() -> None:
    # Users can choose process names, and so the number of different messages.
    texts = [xid(13, name=f"{'ghijklmnop'[number // 100]}{'q' * (number % 100)}") for number in range(1000)]
    assert forwarded([xid(13)] * BURST + texts) == list(range(BURST + 1000))
    assert len(texts) > MOST


@given(some.lists(some.tuples(some.integers(0, 3), some.floats(0, 0.4)), max_size=400))
def test_lines_keep_their_order_and_the_last_line_of_each_message_is_forwarded(
    messages: list[tuple[int, float]],
) -> None:
    limiter, now_s, lines = LogRateLimiter(), 0.0, b""
    for _ in range(BURST):
        limiter.add(b"-1\n", b"x", now_s)
    for number, (message, later_s) in enumerate(messages):
        now_s += later_s
        limiter.add(b"%d\n" % number, xid(message), now_s)
        lines += limiter.take(now_s)
    lines += limiter.finish()
    numbers = [int(line) for line in lines.splitlines()][BURST:]
    assert numbers == sorted(set(numbers))
    for message in {each for each, _ in messages}:
        numbers_of_message = [number for number, (each, _) in enumerate(messages) if each == message]
        assert {numbers_of_message[0], numbers_of_message[-1]} <= set(numbers)
