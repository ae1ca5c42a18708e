"""Messages of ttrpc, calls on one connection: ``Decoder`` takes them apart, ``encode`` makes them.

A message is a header of 10 bytes, big endian (length of what follows in 32 bits, stream in 32, type, flags),
and its data. A call is one Request and one Response of the same stream; NRI has no others. Source:
containerd/ttrpc, PROTOCOL.md, channel.go and server.go.
"""

from __future__ import annotations

import struct

from cdigen.value import frozen

REQUEST = 1
RESPONSE = 2

MAX_DATA = 4 << 20  # channel.go, messageLengthMax
# Up to here a message that is too long is skipped, as Go does, so that only its own call fails; its first
# byte is then 0, as it always is. A length beyond is not one: the connection is out of step, or somebody
# plays with it.
MAX_SKIPPED = 1 << 24

_HEADER = struct.Struct(">IIBB")  # length, stream, type, flags


class TtrpcError(ValueError):
    """Report in one line why the bytes are not messages, or why data does not fit into one."""


@frozen
class Message:
    """A message of a ``stream``; of one that was too long only the ``length`` is known.

    ``kind`` is REQUEST, RESPONSE, or a type that is to be ignored. Flags are left out: on calls that are no
    streams, Go ignores them.
    """

    stream: int
    kind: int
    data: bytes
    length: int

    @property
    def is_too_long(self) -> bool:
        """Tell whether the data was skipped."""
        return self.length > MAX_DATA


class Decoder:
    """The receiving end of one connection. It keeps one incomplete message, and of a too long one nothing."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that DATA, the next bytes of the connection, completes.

        TtrpcError: a length that no message has; each further call raises it again.
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
            with memoryview(buffer) as view:  # one copy instead of two
                body = bytes(view[begin:end])
            messages.append(Message(stream=stream, kind=kind, data=body, length=length))
            at = end
        del buffer[:at]
        return messages


def wrong_stream(stream: int, last: int) -> str:
    """Return in Go's words why no request may have STREAM after LAST, empty where it may."""
    if stream % 2 != 1:
        return "StreamID must be odd for client initiated streams"
    return "" if stream > last else "StreamID cannot be re-used and must increment"


def encode(kind: int, stream: int, data: bytes) -> bytes:
    """Return the message of KIND on STREAM that carries DATA. TtrpcError: DATA is too long."""
    if len(data) > MAX_DATA:
        raise TtrpcError(f"{len(data)} bytes are more than a message of {MAX_DATA} holds")
    return _HEADER.pack(len(data), stream, kind, 0) + data
