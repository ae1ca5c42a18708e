"""Of a flood that says the same, the first and the last; of all else, all; and always in order."""

from hypothesis import given
from hypothesis import strategies as some

from cdigen.kernellog.thinning import BURST, MOST, SECOND_S, Thinning


def xid(number: int, *, bus: int = 0x65, pid: int = 1, name: str = "python3") -> bytes:
    return b"NVRM: Xid (PCI:0000:%02x:00): %d, pid=%d, name=%s, Ch 0000002e" % (
        bus,
        number,
        pid,
        name.encode(),
    )


def passed(texts: list[bytes], *, at_s: float = 5.0, thinning: Thinning | None = None) -> list[int]:
    """Return the numbers of those of TEXTS that are passed on at once, all of them being said at AT_S."""
    thinning = thinning or Thinning()
    for number, text in enumerate(texts):
        thinning.add(b"%d\n" % number, text, at_s)
    return [int(line) for line in thinning.take(at_s).splitlines()]


def test_less_than_a_burst_is_passed_on_whole() -> None:
    assert passed([xid(13)] * BURST) == list(range(BURST))


def test_of_a_flood_the_last_one_is_told_at_the_end_of_the_second() -> None:
    thinning = Thinning()
    assert passed([xid(13, pid=number) for number in range(10_000)], thinning=thinning)[-1] == BURST
    assert thinning.due_s() == 5.0 + SECOND_S
    assert thinning.take(5.9) == b""
    assert thinning.take(6.0) == b"9999\n"
    assert thinning.due_s() is None


def test_what_another_device_or_another_error_says_is_passed_on_at_once_behind_what_was_held() -> None:
    flood = [xid(13, pid=number) for number in range(1000)]
    assert passed([*flood, xid(79), *flood, xid(13, bus=0x17)])[BURST + 1 :] == [999, 1000, 2000, 2001]


def test_words_make_a_difference_where_numbers_do_not() -> None:
    ras = b"amdgpu 0000:c1:00.0: amdgpu: socket: 0, die: %d %d %s hardware errors detected in umc block"
    flood = [ras % (0, number, b"correctable") for number in range(1000)]
    assert passed([*flood, ras % (1, 1, b"uncorrectable"), *flood])[-2:] == [999, 1000]


def test_the_next_second_begins_anew() -> None:
    thinning = Thinning()
    passed([xid(13)] * 1000, thinning=thinning)
    assert passed([xid(13)] * 3, thinning=thinning, at_s=6.5) == [999, 0, 1, 2]


def test_what_has_to_be_told_is_behind_what_was_held() -> None:
    thinning = Thinning()
    passed([xid(13)] * 1000, thinning=thinning)
    thinning.add_at_once(b"lost\n")
    assert thinning.take(5.0) == b"999\nlost\n"


def test_at_the_end_nothing_is_kept_back() -> None:
    thinning = Thinning()
    passed([xid(13)] * 1000, thinning=thinning)
    assert thinning.finish() == b"999\n"


def test_more_sayings_than_are_known_at_a_time_are_passed_on() -> None:
    # Names of processes are their users' choice.
    texts = [xid(13, name=f"{'ghijklmnop'[number // 100]}{'q' * (number % 100)}") for number in range(1000)]
    assert passed([xid(13)] * BURST + texts) == list(range(BURST + 1000))
    assert len(texts) > MOST


@given(some.lists(some.tuples(some.integers(0, 3), some.floats(0, 0.4)), max_size=400))
def test_lines_keep_their_order_and_each_saying_its_last_line(said: list[tuple[int, float]]) -> None:
    thinning, now_s, lines = Thinning(), 0.0, b""
    for _ in range(BURST):
        thinning.add(b"-1\n", b"x", now_s)
    for number, (saying, later_s) in enumerate(said):
        now_s += later_s
        thinning.add(b"%d\n" % number, xid(saying), now_s)
        lines += thinning.take(now_s)
    lines += thinning.finish()
    numbers = [int(line) for line in lines.splitlines()][BURST:]
    assert numbers == sorted(set(numbers))
    for saying in {each for each, _ in said}:
        of_it = [number for number, (each, _) in enumerate(said) if each == saying]
        assert {of_it[0], of_it[-1]} <= set(numbers)
