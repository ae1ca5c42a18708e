"""``Connection``: a non-blocking socket that is connected to a runtime."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

from cdigen.nri.wire.session import SessionError

# The limit of unsent bytes. If the runtime reads its responses, all pending responses together are smaller.
_MAX_UNSENT = 64 << 20
_READ = 1 << 18


class Connection:
    """The socket CONNECTED and its unsent bytes; POLL watches the socket."""

    def __init__(self, connected: socket.socket, poll: select.poll) -> None:
        self._socket = connected
        self._poll = poll
        self._unsent = bytearray()
        poll.register(connected, select.POLLIN)

    def fileno(self) -> int:
        """Return the file descriptor of the socket. The events of POLL contain the same descriptor."""
        return self._socket.fileno()

    def has_unsent(self) -> bool:
        """Return whether there are unsent bytes."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send the unsent bytes and then DATA; bytes that the socket does not accept stay unsent.

        Raise SessionError if the runtime does not read its responses.
        """
        had_some = bool(self._unsent)
        self._unsent += data
        with suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        if len(self._unsent) > _MAX_UNSENT:
            raise SessionError("the runtime does not read its responses")
        if had_some != bool(self._unsent):
            self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def receive(self) -> bytes | None:
        """Return the received bytes.

        The result is None if no bytes are available, and b"" at the end of the connection.
        """
        try:
            return self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return None

    def finish(self) -> None:
        """Close the sending side; the connection can still receive bytes from the runtime."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def unregister(self) -> None:
        """Remove the socket from POLL."""
        self._poll.unregister(self._socket)
