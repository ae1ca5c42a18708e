"""Merges into hostile caches are refused in one line or succeed, in bounded time."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.law_examples import examples
from support.values.loader_model import (
    EXTENDED,
    FOLDER,
    LIBRARIES,
    MAGIC,
    PLAIN,
    cache,
    combined,
    entry,
    ordered,
    patched,
    places,
)

from cdigen.binfmt.ldcache import FLAGS_X86_64, CacheError
from cdigen.binfmt.ldcache_merge import merge

FUZZ = examples(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\x7fELF" + bytes(100),
        cache(()),
        PLAIN[:50],
        patched(PLAIN, 20, "<I", 2**32 - 1),
        patched(PLAIN, 28, "<B", 1),
        patched(PLAIN, 28, "<B", 3),
        combined(patched(PLAIN, 28, "<B", 3), old_entries=1),
        b"ld.so-1.7.0\0" + struct.pack("<I", 2**32 - 1) + bytes(100),
    ],
)
def test_a_cache_that_the_loader_ignores_is_replaced(data: bytes) -> None:
    assert merge(data, LIBRARIES) == merge(b"", LIBRARIES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (combined(b"", old_entries=3), "only the old format"),
        (PLAIN[:-1], "the tables end at byte"),
        (PLAIN[:-1] + b"x", "do not end in NUL"),
        (patched(PLAIN, 24, "<I", 2**32 - 1), "the tables end at byte"),
        (
            patched(PLAIN, 52, "<I", 2**32 - 1),
            "the names at 133 to 4294967295 are not all in the strings",
        ),
        (patched(PLAIN, 56, "<I", 119), "the names at 119 to"),
        (cache((entry("n" * 5000),)), "longer than 4096"),
        (patched(combined(PLAIN, old_entries=1), 32 + 20, "<I", 2**32 - 1), "the limit of 200000"),
        (PLAIN + bytes(16 << 20), "exceed the limit of 16777216"),
        (MAGIC + struct.pack("<I", 200_001) + bytes(24 * 200_003), "entries exceed the limit of 200000"),
    ],
)
def test_a_damaged_cache_that_the_loader_uses_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CacheError, match=message):
        merge(data, LIBRARIES)


def test_a_long_name_that_the_search_does_not_read_is_kept() -> None:
    image = ordered([entry(f"liba{number}.so") for number in range(100)])
    data = cache((*image, entry("a" * 5000)))
    assert merge(data, LIBRARIES[:1]).count(b"a" * 5000)


@pytest.mark.parametrize("size", ["entries", "bytes"])
def test_a_merged_cache_does_not_exceed_the_limits_of_the_reader(size: str) -> None:
    strings = b"\0" * 2 if size == "entries" else b"a\0".ljust((16 << 20) - 72, b"\0")
    count = 200_000 if size == "entries" else 1
    at = 48 + 24 * count
    data = (
        MAGIC
        + struct.pack("<IIB19x", count, len(strings), 2)
        + struct.pack("<iIIIQ", 3, at, at, 0, 0) * count
    )
    with pytest.raises(CacheError, match="exceed the limits 200000 and 16777216"):
        merge(data + strings, LIBRARIES)


def hostile() -> dict[str, bytes]:
    """Return caches with 199,000 entries; all names are equal, or each name is the tail of another name."""
    count = 199_000
    at = 48 + 24 * count
    paths = [path.encode() for _, path, _ in LIBRARIES]
    made = {}
    for kind, strings, key, value, flags in (
        ("one name, another abi", b"libcuda.so.1\0" + b"x" * 4000 + b"\0", 0, 13, 0x7FFFFFFF),
        ("one name, our folder", b"libcuda.so.1\0" + paths[0] + b"x\0", 0, 13, FLAGS_X86_64),
        ("all of them ours", b"libcuda.so.1\0" + paths[0] + b"\0", 0, 13, FLAGS_X86_64),
        ("a number without end", b"libcuda.so." + b"9" * 4000 + b"\0", 0, 0, FLAGS_X86_64),
        ("our folder all over", (FOLDER.encode() + b"/") * 400_000 + b"\0", 0, 0, FLAGS_X86_64),
    ):
        table = struct.pack("<iIIIQ", flags, at + key, at + value, 0, 0) * count
        made[kind] = MAGIC + struct.pack("<IIB19x", count, len(strings), 2) + table + strings
    backwards = b"".join(
        struct.pack("<iIIIQ", FLAGS_X86_64, at + number, at + number, 0, 0) for number in range(count)
    )
    digits = b"1" * count + b"\0"
    made["each name is the tail of the one before"] = (
        MAGIC + struct.pack("<IIB19x", count, len(digits), 2) + backwards + digits
    )
    return made


@pytest.mark.wall_clock
@pytest.mark.parametrize("kind", sorted(hostile()))
def test_a_merge_into_any_cache_within_the_limits_takes_less_than_3_s(kind: str) -> None:
    data = hostile()[kind]
    begin = time.process_time()
    merged = merged_or_refused(data)
    assert time.process_time() - begin < 3
    assert len(merged) <= 16 << 20


def merged_or_refused(data: bytes) -> bytes:
    """Return the merged cache, or nothing if DATA is refused in one line."""
    try:
        return merge(data, LIBRARIES)
    except CacheError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return b""


def assert_merged_or_refused(data: bytes) -> None:
    """Merge into DATA twice if the first merge is not refused."""
    if merged := merged_or_refused(data):
        assert merge(merged, LIBRARIES) == merged
        assert set(LIBRARIES) <= set(places(merged))


@pytest.mark.parametrize("data", [EXTENDED, PLAIN, combined(EXTENDED, old_entries=3)])
def test_a_cache_cut_off_at_any_byte_is_refused_or_merged(data: bytes) -> None:
    for length in range(len(data)):
        assert_merged_or_refused(data[:length])


@FUZZ
@given(st.binary(max_size=300), st.sampled_from([b"", MAGIC, b"ld.so-1.7.0\0"]))
def test_random_bytes_are_refused_or_treated_as_no_cache(tail: bytes, magic: bytes) -> None:
    assert_merged_or_refused(magic + tail)


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=12),
    st.sampled_from([EXTENDED, PLAIN, combined(EXTENDED, old_entries=3), merge(EXTENDED, LIBRARIES)]),
)
def test_a_changed_cache_is_refused_or_merged(changes: list[tuple[int, int]], original: bytes) -> None:
    data = bytearray(original)
    for position, value in changes:
        data[position % len(data)] = value
    assert_merged_or_refused(bytes(data))
