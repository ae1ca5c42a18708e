"""``disconnect``: responds to all requests on a connection, and then closes the connection.

``Deregistration`` ends a registration, after which the runtime does not call the plugin again. Another
instance can then take over.

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

import time
from contextlib import suppress

from cdigen.host.root import reason
from cdigen.nri.connection import Connection
from cdigen.nri.wire.session import Configure, Session, SessionError, Synchronize

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    import socket
    from collections.abc import Callable

    # A function that waits at most the given seconds and responds to requests. It returns the poll events, or
    # None at the end of the connection.
    Turn = Callable[[float], dict[int, int] | None]

# The name differs from the name of the first plugin. A runtime can require the first plugin, and must not
# accept the second plugin instead.
_NAME = "{}-leaving"
# The mask of POST_UPDATE_CONTAINER. This event changes no container. The mask 0 would mean all events.
_EVENTS = 0x0100
# Seconds. The sum of these limits must be less than the time limit of the shutdown
# (cdigen.service.process.signals.LEAVE_WITHIN_S).
_DEREGISTER_S = 0.9
_LEAVE_S = 0.2
_GONE_S = 0.2
# Seconds between the last data and the end of a connection. A Go runtime can lose data that arrives just
# before the end, because Read returns either the data or the end (pkg/net/multiplex/mux.go).
_QUIET_S = 0.03


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


def disconnect(turn: Turn, connection: Connection, deregister: Callable[[], Deregistration] | None) -> str:
    """Respond to all requests on CONNECTION, and close CONNECTION.

    Return the reason why the runtime may call the plugin once more, or "" if there is no such reason. If the
    runtime gets no response to a request, it starts the container without its GPU. TURN serves the
    connection. DEREGISTER starts the deregistration. DEREGISTER is None if the runtime does not call
    disconnected plugins.
    """
    if deregister is None:
        _drain(turn, connection)
        return ""
    try:
        deregistration = deregister()
    except (OSError, SessionError) as error:
        _drain(turn, connection)
        return _reason(error)
    try:
        why = _wait_until_due(turn, deregistration)
        _drain(turn, connection)
        if not why:
            _end(turn, connection)
            deregistration.finish()
            time.sleep(_QUIET_S)
    finally:
        deregistration.close()
    return why


def _drain(turn: Turn, connection: Connection) -> None:
    """Respond until no more requests arrive and all responses are sent, for _LEAVE_S at most."""
    until_s = time.monotonic() + _LEAVE_S
    quiet_s = time.monotonic() + _QUIET_S
    while (now := time.monotonic()) < until_s and (now < quiet_s or connection.has_unsent()):
        ready = turn(max(quiet_s, now + 0.001) - now)
        if ready is None:
            return
        if connection.fileno() in ready:
            quiet_s = time.monotonic() + _QUIET_S


def _wait_until_due(turn: Turn, deregistration: Deregistration) -> str:
    """Serve until DEREGISTRATION is due; return "", or the reason for a failure."""
    until_s = time.monotonic() + _DEREGISTER_S
    while not deregistration.is_due:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return f"the runtime did not synchronize the second plugin within {_DEREGISTER_S:g} s"
        ready = turn(left_s)
        if ready is None:
            return "the runtime has closed the connection"
        if deregistration.fileno() in ready:
            try:
                deregistration.receive()
            except (OSError, SessionError) as error:
                return _reason(error)
    return ""


def _end(turn: Turn, connection: Connection) -> None:
    """Close CONNECTION, and wait until the runtime has closed its end, for _GONE_S at most."""
    connection.finish()
    until_s = time.monotonic() + _GONE_S
    with suppress(OSError):
        while (left_s := until_s - time.monotonic()) > 0 and turn(left_s) is not None:
            pass
    # The runtime marks the plugin as closed just after it closes its end (pkg/adaptation/plugin.go: connect).
    time.sleep(_QUIET_S)


def _reason(error: OSError | SessionError) -> str:
    return f"cannot connect again: {reason(error)}" if isinstance(error, OSError) else str(error)
