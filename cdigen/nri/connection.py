"""A runtime's socket that nobody ever waits at: ``Connection``."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

from cdigen.nri.wire.session import SessionError

# More than any answers that wait to be read: a runtime that reads nothing is of no use.
_MAX_UNSENT = 64 << 20
_READ = 1 << 18


class Connection:
    """The connected SOCKET, which POLL is told to watch, with what could not be sent on it yet."""

    def __init__(self, connected: socket.socket, poll: select.poll) -> None:
        self._socket = connected
        self._poll = poll
        self._unsent = bytearray()
        poll.register(connected, select.POLLIN)

    def fileno(self) -> int:
        """Return the number that POLL tells."""
        return self._socket.fileno()

    def has_unsent(self) -> bool:
        """Return whether the runtime has to read before more can be sent."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send DATA after what could not be sent yet, as far as the runtime takes it."""
        had_some = bool(self._unsent)
        self._unsent += data
        with suppress(BlockingIOError, InterruptedError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        if len(self._unsent) > _MAX_UNSENT:
            raise SessionError("the runtime does not read what it is told")
        if had_some != bool(self._unsent):
            self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))

    def receive(self) -> bytes | None:
        """Return what has come, None where nothing has, and nothing but b"" at the end."""
        try:
            return self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return None

    def finish(self) -> None:
        """Tell the runtime that nothing follows; what it still sends is received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def forget(self) -> None:
        """Let POLL watch it no more."""
        self._poll.unregister(self._socket)
