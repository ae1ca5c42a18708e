"""A runtime with all of its plugins: which it calls, and when it drops one whose connection has ended.

As containerd/nri keeps them (pkg/adaptation/adaptation.go, v0.12.2): a plugin that has left stays in the
lists until the next call is over, or another plugin is added.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from support.nri.plugin import INJECTS_12, REQUEST_S
from support.nri.runtime import Dropped, Rejected, Runtime, SocketTransport, container, pod
from support.waiting import PATIENCE_S

from cdigen.nri.wire.protobuf import message_class

if TYPE_CHECKING:
    from support.nri.plugin import Host

CREATE, VALIDATE = 0x0008, 0x2000


class Adaptation:
    """The runtime on HOST; ``register`` takes the next plugin in."""

    def __init__(self, host: Host, **flavour: Any) -> None:
        self._host = host
        self._flavour = INJECTS_12 | flavour
        self._lock = threading.Lock()
        # Held while a container is created, and while a plugin is synchronized.
        self._sync = threading.Lock()
        self.plugins: list[Runtime] = []
        self._validators: list[Runtime] = []
        self._connections: dict[int, socket.socket] = {}

    @property
    def names(self) -> list[str]:
        """The plugins in its list, whether they are there or not."""
        return [f"{plugin.plugin_index}-{plugin.plugin_name}" for plugin in self.plugins]

    def register(self) -> Runtime:
        """Take in the next plugin that connects; those that have left are dropped then."""
        plugin = self.begin()
        plugin.start()
        self.end(plugin)
        return plugin

    def begin(self) -> Runtime:
        """Return the next connection, on which nothing has been said yet."""
        connection = self._host.accept()
        plugin = Runtime(
            SocketTransport(connection),
            request_timeout_s=REQUEST_S,
            registration_timeout_s=PATIENCE_S,
            **self._flavour,
        )
        self._connections[id(plugin)] = connection
        threading.Thread(target=_close_at_end, args=(connection, plugin), daemon=True).start()
        return plugin

    def drop(self, plugin: Runtime) -> None:
        """Close the connection of PLUGIN, as a runtime that ends does."""
        plugin.is_closed = True
        self._connections[id(plugin)].shutdown(socket.SHUT_RDWR)

    def end(self, plugin: Runtime) -> None:
        """Synchronize PLUGIN, and add it."""
        with self._sync:
            plugin.synchronize()
            with self._lock:
                self.plugins.append(plugin)
                self._drop_those_that_left()

    def asks(self, *env: str, id_: str = "c1", namespace: str = "ml") -> tuple[Any, Any]:
        """Return a pod, and a container of it with the variables ENV."""
        return pod(namespace=namespace), container(id=id_, env=["PATH=/usr/bin", *env])

    def create(self, *env: str, **asks: str) -> Any:
        """Create a container that ASKS so; returns its adjustment, of all plugins. Rejected."""
        with self._sync, self._lock:
            try:
                return self._created(*self.asks(*env, **asks))
            finally:
                self._drop_those_that_left()

    def _created(self, sandbox: Any, made: Any) -> Any:
        adjustment = None
        seen = message_class("Container").FromString(made.SerializeToString())
        for plugin in self.plugins:
            if plugin.events & CREATE:
                with suppress(Dropped):
                    adjustment = _merged(adjustment, _alive(plugin).create(sandbox, seen), seen)
        for plugin in self._validators:
            try:
                reason = _alive(plugin).validate(sandbox, made, adjustment, self.names)
            except Dropped:
                raise Rejected(2, f"validator plugin {plugin.plugin_name} failed: ttrpc: closed") from None
            if reason:
                raise Rejected(2, reason)
        return adjustment

    def _drop_those_that_left(self) -> None:
        self.plugins = [plugin for plugin in self.plugins if not plugin.is_closed]
        self._validators = [plugin for plugin in self.plugins if plugin.events & VALIDATE]


def _merged(whole: Any, own: Any, seen: Any) -> Any:
    """Return WHOLE with a plugin's OWN, whose annotations the next one has SEEN. Rejected: a conflict."""
    if whole is None:
        whole = own
    else:
        for name in own.annotations:
            if name in whole.annotations:
                raise Rejected(2, f'plugins "20-cdigen" and "20-cdigen" both tried to set annotation {name}')
        whole.MergeFrom(own)
    seen.annotations.update(own.annotations)
    return whole


def _alive(plugin: Runtime) -> Runtime:
    if plugin.is_closed:
        raise Dropped("ttrpc: closed")
    return plugin


def _close_at_end(connection: socket.socket, plugin: Runtime) -> None:
    """Take PLUGIN for closed when it has closed its end, and close the other, as Go's reader does."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    plugin.is_closed = True
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
