"""Two connections on one socket: ``Mux`` takes frames apart, ``frames`` makes them.

A frame is connection number and length, both in 32 bits and big endian, then so many bytes. Where frames
begin and end says nothing to the connection, which is a stream of bytes. Source: containerd/nri,
pkg/net/multiplex/mux.go.
"""

from __future__ import annotations

import struct

# The plugin serves calls on the first connection and makes its own on the second; 0 is reserved.
PLUGIN = 1
RUNTIME = 2

# What a Go mux sends in one frame at most: the longest ttrpc message with its header (mux.go,
# maxPayloadSize).
MAX_PAYLOAD = 10 + (4 << 20)
# The Go side reads through a buffer of this size (bufio, defaultBufSize) until it has a message's header, and
# takes a frame that is longer than what is left of the buffer as the end of the connection: the container
# then starts without its GPU. What follows the header is read as a whole, so the second frame may have any
# length.
MAX_FIRST = 4096

_HEADER = struct.Struct(">II")  # connection, length


class MuxError(ValueError):
    """Report in one line why the bytes are not frames: the next one cannot be found."""


class Mux:
    """The receiving end. Nothing is kept but an incomplete header, whatever the length of a frame."""

    def __init__(self) -> None:
        self._header = b""
        self._connection = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return what DATA, the next bytes of the socket, brings: pieces of payload with their connections.

        What is for other connections than the two is dropped, as Go does. MuxError: a frame is longer than
        any sender makes one; each further call raises it again.
        """
        pieces: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data):
            if self._left == 0:
                at = self._read_header(data, at)
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if self._connection in (PLUGIN, RUNTIME):
                pieces.append((self._connection, piece))
        return pieces

    def _read_header(self, data: bytes, at: int) -> int:
        """Add what DATA has of a header from AT on, and return where it ends."""
        end = at + _HEADER.size - len(self._header)
        self._header += data[at:end]
        if len(self._header) == _HEADER.size:
            connection, length = _HEADER.unpack(self._header)
            if length > MAX_PAYLOAD:
                raise MuxError(
                    f"a frame for connection {connection} has {length} bytes, more than {MAX_PAYLOAD}"
                )
            self._header = b""
            self._connection, self._left = connection, length
        return end


def frames(connection: int, message: bytes) -> bytes:
    """Return the frames that carry MESSAGE, a whole ttrpc message, on CONNECTION: one, or two if it is long.

    MuxError: MESSAGE is longer than ttrpc allows.
    """
    size = len(message)
    if size > MAX_PAYLOAD:
        raise MuxError(f"a message of {size} bytes is more than {MAX_PAYLOAD}")
    if size <= MAX_FIRST:
        return _HEADER.pack(connection, size) + message
    first = memoryview(message)[:MAX_FIRST]
    rest = memoryview(message)[MAX_FIRST:]
    return b"".join(
        (_HEADER.pack(connection, MAX_FIRST), first, _HEADER.pack(connection, size - MAX_FIRST), rest)
    )
