"""``Deregistration``: the end of a registration, after which the runtime does not call the plugin again.

NRI keeps a disconnected plugin in its lists until the end of the next call to plugins. This next call fails
if it creates a container and the disconnected plugin is a validator ("validator plugin 20-cdigen failed:
ttrpc: closed"). The call fails even if the container requests no device. NRI also removes disconnected
plugins before it adds another plugin (containerd/nri, pkg/adaptation/adaptation.go, v0.12.2:
removeClosedPlugins, sortPlugins).

Therefore cdigen registers a second plugin for a moment. The second plugin has another name, and subscribes to
an event that cdigen does not need. The runtime creates no container while it synchronizes the second plugin.
In containerd, CRI calls BlockPluginSync. CRI-O holds one lock for synchronization and container creation
(internal/nri/nri.go), and releases the lock just before it adds the plugin. During the synchronization cdigen
closes the connection of the first plugin.
"""

from __future__ import annotations

from cdigen.nri.connection import Connection
from cdigen.nri.wire.session import Configure, Session, SessionError, Synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    import socket

# The name differs from the name of the first plugin. A runtime can require the first plugin, and must not
# accept the second plugin instead.
_NAME = "{}-leaving"
# The mask of POST_UPDATE_CONTAINER. This event changes no container. The mask 0 would mean all events.
_EVENTS = 0x0100


class Deregistration:
    """The second plugin; CONNECTED is its socket, and POLL watches the socket.

    NAME and INDEX are the name and the index of the first plugin. If ``is_due`` is true, the runtime waits
    for a response of the second plugin and creates no container. The caller then closes the connection of
    the first plugin, and calls ``finish``.
    """

    def __init__(self, connected: socket.socket, name: str, index: str, poll: select.poll) -> None:
        self.is_due = False
        self._socket = connected
        self._connection = Connection(connected, poll)
        self._session = Session(_NAME.format(name), index)
        self._last_response = b""
        self._connection.send(self._session.start())

    def fileno(self) -> int:
        """Return the file descriptor of the socket. The events of POLL contain the same descriptor."""
        return self._connection.fileno()

    def receive(self) -> None:
        """Process the received bytes.

        ``finish`` sends the last response. Raise OSError or SessionError if the connection fails.
        """
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
            self._last_response += sent
        else:
            self._connection.send(sent)

    def finish(self) -> None:
        """Send the last response, after which the runtime removes the first plugin and continues.

        The connection stays open until the end of the process, because the runtime could otherwise lose the
        response.
        """
        self._connection.send(self._last_response)
        self._connection.unregister()
        self._socket.detach()

    def close(self) -> None:
        """Close the connection, unless ``finish`` was called."""
        if self._socket.fileno() >= 0:
            self._connection.unregister()
            self._socket.close()
