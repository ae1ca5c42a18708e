"""An orderly end after which the runtime calls the plugin no more: ``Withdrawal``.

NRI keeps a plugin whose connection has ended in its lists until the next call to plugins is over, and fails
that call if it is the creation of a container and the plugin was a validator ("validator plugin 20-cdigen
failed: ttrpc: closed"), whatever the container asks for. It drops such plugins as well before it adds another
one (containerd/nri, pkg/adaptation/adaptation.go, v0.12.2: removeClosedPlugins, sortPlugins). So another one
registers for a moment, under a name of its own, for an event that it does not mind missing. No container is
created while the runtime synchronizes it (containerd's CRI calls BlockPluginSync for that; CRI-O has one lock
for both, internal/nri/nri.go, and lets go of it right before the plugin is added): in that time the plugin
itself leaves.
"""

from __future__ import annotations

from cdigen.nri.connection import Connection
from cdigen.nri.wire.session import Configure, Session, SessionError, Synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    import socket

# Not the plugin's own: a runtime that requires that one must not take the other for it.
_NAME = "{}-leaving"
# POST_UPDATE_CONTAINER: the mask 0 would mean all events, and this one changes nothing.
_EVENTS = 0x0100


class Withdrawal:
    """The moment's plugin on the CONNECTED socket, called after NAME, with INDEX; POLL watches it.

    ``is_due``: the runtime waits for it, and creates no container meanwhile: now the plugin NAME has to close
    its own connection, and ``finish`` is to be called.
    """

    def __init__(self, connected: socket.socket, name: str, index: str, poll: select.poll) -> None:
        self.is_due = False
        self._socket = connected
        self._connection = Connection(connected, poll)
        self._session = Session(_NAME.format(name), index)
        self._answer = b""
        self._connection.send(self._session.start())

    def fileno(self) -> int:
        """Return the number that POLL tells."""
        return self._connection.fileno()

    def receive(self) -> None:
        """Read what is there, and answer, but for the last call. OSError, SessionError: it failed."""
        data = self._connection.receive()
        if data is None:
            self._connection.send(b"")
            return
        if not data:
            raise SessionError("the runtime has closed the connection")
        sent, events = self._session.feed(data)
        for event in events:
            if isinstance(event, Configure):
                sent += self._session.subscribe(event.call, _EVENTS)
            elif isinstance(event, Synchronize) and not event.part.more:
                self.is_due = True
        if self.is_due:
            self._answer += sent
        else:
            self._connection.send(sent)

    def finish(self) -> None:
        """Give the last answer: the runtime drops the plugin that has left, and goes on.

        The connection ends with the process: the runtime has that long to take the answer, which it could
        lose together with the connection, while the plugin's successor waits for nothing but the process.
        """
        self._connection.send(self._answer)
        self._connection.forget()
        self._socket.detach()

    def close(self) -> None:
        """End it, unless it is finished."""
        if self._socket.fileno() >= 0:
            self._connection.forget()
            self._socket.close()
