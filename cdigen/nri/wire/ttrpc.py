"""ttrpc messages on one connection: ``Decoder`` decodes messages, and ``encode`` encodes a message.

A message has a header of 10 bytes and data. The header has the length of the data (32 bits), the stream (32
bits), the type (8 bits) and the flags (8 bits), big endian. A call is one Request and one Response with the
same stream. NRI uses no other messages. Source: containerd/ttrpc, PROTOCOL.md, channel.go and server.go.
"""

from __future__ import annotations

import struct

from cdigen.value import frozen

REQUEST = 1
RESPONSE = 2

MAX_DATA = 4 << 20  # channel.go, messageLengthMax
# A message that is longer than MAX_DATA is skipped, as in Go, so that only its call fails. A length above
# MAX_SKIPPED is an error, because the stream of bytes is then corrupt or hostile. The first byte of every
# valid length is 0.
MAX_SKIPPED = 1 << 24

_HEADER = struct.Struct(">IIBB")  # length, stream, type, flags


class TtrpcError(ValueError):
    """The error for invalid bytes, and for data that is too long for a message; its text has one line."""


@frozen
class Message:
    """A message of a ``stream``.

    ``data`` is empty if the message is too long. ``kind`` is REQUEST, RESPONSE, or another type, which is
    ignored. This class has no member for the flags, because Go ignores the flags of calls without streaming.
    """

    stream: int
    kind: int
    data: bytes
    length: int

    @property
    def is_too_long(self) -> bool:
        """Whether the data was skipped, because it is longer than MAX_DATA."""
        return self.length > MAX_DATA


class Decoder:
    """The decoder of one connection; it stores at most one incomplete message of MAX_DATA bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete after DATA, the next bytes of the connection.

        Raise TtrpcError in this call and in all later calls if a length is invalid.
        """
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        buffer = self._buffer
        buffer += data
        messages: list[Message] = []
        at = 0
        while len(buffer) - at >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(buffer, at)
            begin = at + _HEADER.size
            end = begin + length
            if length > MAX_SKIPPED:
                raise TtrpcError(f"a message of stream {stream} has {length} bytes, more than {MAX_SKIPPED}")
            if length > MAX_DATA:
                self._skip = max(0, end - len(buffer))
                messages.append(Message(stream=stream, kind=kind, data=b"", length=length))
                at = min(end, len(buffer))
                continue
            if end > len(buffer):
                break
            with memoryview(buffer) as view:  # the view saves one copy of the data
                body = bytes(view[begin:end])
            messages.append(Message(stream=stream, kind=kind, data=body, length=length))
            at = end
        del buffer[:at]
        return messages


def wrong_stream(stream: int, last: int) -> str:
    """Return Go's error text for a request on STREAM after the stream LAST, or "" if STREAM is valid."""
    if stream % 2 != 1:
        return "StreamID must be odd for client initiated streams"
    return "" if stream > last else "StreamID cannot be re-used and must increment"


def encode(kind: int, stream: int, data: bytes) -> bytes:
    """Return the message of KIND on STREAM with DATA; raise TtrpcError if DATA is too long."""
    if len(data) > MAX_DATA:
        raise TtrpcError(f"message too long ({len(data)} bytes, limit {MAX_DATA})")
    return _HEADER.pack(len(data), stream, kind, 0) + data
