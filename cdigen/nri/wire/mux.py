"""Two connections on one socket: ``Mux`` decodes frames, and ``frames`` encodes frames.

A frame has a connection number, a length and the payload. The number and the length have 32 bits, big endian.
A connection is a stream of bytes, so the boundaries of frames have no meaning in the stream. Source:
containerd/nri, pkg/net/multiplex/mux.go.
"""

from __future__ import annotations

import struct

# The runtime calls the plugin on the first connection. The plugin calls the runtime on the second connection.
# The number 0 is reserved.
PLUGIN = 1
RUNTIME = 2

# The payload of the largest frame in Go's mux: the longest ttrpc message with its header (mux.go,
# maxPayloadSize).
MAX_PAYLOAD = 10 + (4 << 20)
# The Go side reads the header of a message through a buffer of this size (bufio, defaultBufSize). A frame
# that is longer than the free part of the buffer ends the connection, and the container starts without its
# GPU. The Go side reads the data after the header as a whole, so the second frame can have any length.
MAX_FIRST = 4096

_HEADER = struct.Struct(">II")  # connection, length


class MuxError(ValueError):
    """The error for bytes that are not frames, and for a message that is too long; its text has one line.

    After invalid bytes, the start of the next frame is unknown.
    """


class Mux:
    """The decoder of received frames; it stores no payload, only an incomplete header."""

    def __init__(self) -> None:
        self._header = b""
        self._connection = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the pieces of payload in DATA, as pairs of connection number and bytes.

        DATA are the next bytes from the socket. Payload for unknown connections is dropped, as in Go. Raise
        MuxError in this call and in all later calls if a frame is longer than MAX_PAYLOAD.
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
        """Read the bytes of a header in DATA at the offset AT; return the offset of the end."""
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
    """Return the bytes of the frames for MESSAGE, a complete ttrpc message, on CONNECTION.

    A message longer than MAX_FIRST has two frames. Raise MuxError if MESSAGE is longer than MAX_PAYLOAD.
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
