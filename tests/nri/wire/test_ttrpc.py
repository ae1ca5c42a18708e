"""Messages of ttrpc are decoded from bytes in pieces of any size. A message that Go rejects is rejected."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.nri.wire.ttrpc import (
    MAX_DATA,
    MAX_SKIPPED,
    REQUEST,
    RESPONSE,
    Decoder,
    Message,
    TtrpcError,
    encode,
    wrong_stream,
)


def message(stream: int, data: bytes, kind: int = REQUEST) -> Message:
    return Message(stream=stream, kind=kind, data=data, length=len(data))


def test_a_message_has_a_header_and_data() -> None:
    assert encode(RESPONSE, 5, b"\x12\x02") == bytes.fromhex("00000002000000050200") + b"\x12\x02"
    assert Decoder().feed(bytes.fromhex("000000020000000502001202")) == [message(5, b"\x12\x02", RESPONSE)]


def test_messages_may_be_split_at_any_byte() -> None:
    data = encode(REQUEST, 1, b"one") + encode(REQUEST, 3, b"") + encode(RESPONSE, 1, b"two")
    expected = [message(1, b"one"), message(3, b""), message(1, b"two", RESPONSE)]
    for at in range(len(data) + 1):
        decoder = Decoder()
        assert decoder.feed(data[:at]) + decoder.feed(data[at:]) == expected


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=300))),
    st.lists(st.integers(1, 50), min_size=1),
)
def test_the_decoded_messages_do_not_depend_on_the_split_of_the_bytes(
    rows: list[tuple[int, int, bytes]], sizes: list[int]
) -> None:
    data = b"".join(encode(kind, stream, body) for stream, kind, body in rows)
    decoder = Decoder()
    got: list[Message] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        got += decoder.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert got == [message(stream, body, kind) for stream, kind, body in rows]


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 255])
def test_flags_are_ignored(flags: int) -> None:
    assert Decoder().feed(struct.pack(">IIBB", 1, 1, REQUEST, flags) + b"x") == [message(1, b"x")]


def test_the_longest_message_is_accepted() -> None:
    assert Decoder().feed(encode(REQUEST, 1, bytes(MAX_DATA))) == [message(1, bytes(MAX_DATA))]


def test_data_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(TtrpcError, match=r"^message too long \(4194305 bytes, limit 4194304\)$"):
        encode(RESPONSE, 1, bytes(MAX_DATA + 1))


@pytest.mark.parametrize("step", [1000, 1 << 16, 1 << 25])
@pytest.mark.parametrize("length", [MAX_DATA + 1, MAX_SKIPPED])
def test_a_message_that_is_too_long_is_skipped_and_the_next_message_is_accepted(
    length: int, step: int
) -> None:
    data = struct.pack(">IIBB", length, 1, REQUEST, 0) + bytes(length) + encode(REQUEST, 3, b"next")
    decoder = Decoder()
    got = [one for at in range(0, len(data), step) for one in decoder.feed(data[at : at + step])]
    assert got == [Message(stream=1, kind=REQUEST, data=b"", length=length), message(3, b"next")]
    assert [one.is_too_long for one in got] == [True, False]


def test_a_message_that_is_too_long_is_never_kept() -> None:
    decoder = Decoder()
    (got,) = decoder.feed(struct.pack(">IIBB", MAX_SKIPPED, 1, REQUEST, 0))
    assert got.is_too_long
    piece = bytes(1 << 16)
    tracemalloc.start()
    for _ in range(200):
        assert decoder.feed(piece) == []
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("length", [MAX_SKIPPED + 1, 1 << 31, 0xFFFFFFFF])
def test_after_an_impossible_message_length_the_decoder_only_raises_errors(length: int) -> None:
    decoder = Decoder()
    with pytest.raises(TtrpcError, match=f"stream 1 has {length} bytes"):
        decoder.feed(struct.pack(">IIBB", length, 1, REQUEST, 0))
    with pytest.raises(TtrpcError):
        decoder.feed(encode(REQUEST, 3, b"as if nothing had happened"))


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_are_decoded_or_raise_a_ttrpc_error(pieces: list[bytes]) -> None:
    decoder = Decoder()
    try:
        for piece in pieces:
            decoder.feed(piece)
    except TtrpcError:
        pass


def test_stream_numbers_must_be_odd_and_increase() -> None:
    given = ((1, 0), (3, 1), (9, 3), (2**32 - 1, 9))
    assert [wrong_stream(stream, last) for stream, last in given] == ["", "", "", ""]
    wrong = ((3, 3), (1, 3), (2, 3), (0, 3), (7, 9), (5, 2**32 - 1))
    assert all(wrong_stream(stream, last) for stream, last in wrong)
