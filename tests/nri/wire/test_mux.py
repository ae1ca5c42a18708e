"""Frames carry two streams of bytes on one socket, in the format that NRI's Go code accepts."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.nri.wire.mux import MAX_FIRST, MAX_PAYLOAD, PLUGIN, RUNTIME, Mux, MuxError, frames

# containerd 1.7.24 and 2.3.4 accepted these bytes.
REGISTER = bytes.fromhex(
    "000000020000004c"
    "00000042000000010100"
    "0a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
    "120e5265676973746572506c7567696e"
    "1a0c0a0663646967656e12023130"
    "2080e497d012"
)


def received(data: bytes, mux: Mux | None = None) -> dict[int, bytes]:
    """Return the payload of each connection in DATA."""
    streams: dict[int, bytes] = {}
    for connection, piece in (mux or Mux()).feed(data):
        streams[connection] = streams.get(connection, b"") + piece
    return streams


def test_a_real_frame_is_decoded_and_encoded_again() -> None:
    streams = received(REGISTER)
    assert streams == {RUNTIME: REGISTER[8:]}
    assert frames(RUNTIME, streams[RUNTIME]) == REGISTER


@pytest.mark.parametrize("size", [0, 1, 10, MAX_FIRST - 1, MAX_FIRST])
def test_a_short_message_is_one_frame(size: int) -> None:
    assert frames(PLUGIN, bytes(size)) == struct.pack(">II", PLUGIN, size) + bytes(size)


@pytest.mark.parametrize("size", [MAX_FIRST + 1, 2 * MAX_FIRST, 1 << 20, MAX_PAYLOAD])
def test_the_first_frame_of_a_long_message_fits_into_gos_buffer(size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    made = frames(PLUGIN, message)
    assert struct.unpack_from(">II", made) == (PLUGIN, 4096)
    assert struct.unpack_from(">II", made, 8 + 4096) == (PLUGIN, size - 4096)
    assert made[8 : 8 + 4096] + made[8 + 4096 + 8 :] == message
    assert received(made) == {PLUGIN: message}


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(MuxError, match="4194315 bytes is more than 4194314"):
        frames(PLUGIN, bytes(MAX_PAYLOAD + 1))


def test_a_frame_may_be_split_at_any_byte() -> None:
    data = frames(PLUGIN, b"one") + frames(RUNTIME, b"") + frames(RUNTIME, b"two") + frames(PLUGIN, b"three")
    for at in range(len(data) + 1):
        mux = Mux()
        pieces = mux.feed(data[:at]) + mux.feed(data[at:])
        assert b"".join(piece for number, piece in pieces if number == PLUGIN) == b"onethree"
        assert b"".join(piece for number, piece in pieces if number == RUNTIME) == b"two"


def test_payload_for_unknown_connections_is_dropped() -> None:
    data = (
        frames(0, b"reserved") + frames(3, b"unknown") + frames(0xFFFFFFFF, b"far") + frames(PLUGIN, b"mine")
    )
    assert received(data) == {PLUGIN: b"mine"}


@pytest.mark.parametrize("connection", [0, PLUGIN, RUNTIME, 7])
@pytest.mark.parametrize("length", [MAX_PAYLOAD + 1, 1 << 31, 0xFFFFFFFF])
def test_after_an_impossible_frame_length_the_decoder_only_raises_errors(
    connection: int, length: int
) -> None:
    mux = Mux()
    with pytest.raises(MuxError, match=f"connection {connection} has {length} bytes"):
        mux.feed(struct.pack(">II", connection, length))
    with pytest.raises(MuxError):
        mux.feed(frames(PLUGIN, b"as if nothing had happened"))


def test_the_longest_frame_is_accepted() -> None:
    assert received(struct.pack(">II", PLUGIN, MAX_PAYLOAD) + bytes(MAX_PAYLOAD)) == {
        PLUGIN: bytes(MAX_PAYLOAD)
    }


@given(
    st.lists(st.tuples(st.sampled_from([PLUGIN, RUNTIME]), st.binary(max_size=9000))),
    st.lists(st.integers(1, 5000), min_size=1),
)
def test_the_decoded_streams_do_not_depend_on_the_split_of_the_bytes(
    messages: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    data = b"".join(frames(connection, message) for connection, message in messages)
    mux = Mux()
    streams = {PLUGIN: b"", RUNTIME: b""}
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        for connection, piece in mux.feed(data[at : at + size]):
            streams[connection] += piece
        at, turn = at + size, turn + 1
    for connection, stream in streams.items():
        assert stream == b"".join(message for number, message in messages if number == connection)


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_are_decoded_or_raise_a_mux_error(pieces: list[bytes]) -> None:
    mux = Mux()
    try:
        for piece in pieces:
            assert sum(len(payload) for _, payload in mux.feed(piece)) <= len(piece)
    except MuxError:
        pass
