"""A double of a runtime that calls several plugins, and removes plugins whose connection has ended.

As in containerd/nri (pkg/adaptation/adaptation.go, v0.12.2), a plugin that has disconnected stays in the
lists until the end of the next call, or until another plugin is added.
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

from cdigen.nri.wire.messages import CLASSES

if TYPE_CHECKING:
    from support.nri.plugin import Host

CREATE, VALIDATE = 0x0008, 0x2000


class Adaptation:
    """The runtime on HOST; ``register`` adds the next plugin."""

    def __init__(self, host: Host, **identity: Any) -> None:
        self._host = host
        self._identity = INJECTS_12 | identity
        self._lock = threading.Lock()
        # Held while a container is created, and while a plugin is synchronized.
        self._sync = threading.Lock()
        self.plugins: list[Runtime] = []
        self._validators: list[Runtime] = []
        self._connections: dict[int, socket.socket] = {}

    @property
    def names(self) -> list[str]:
        """The plugins in the list, connected or not."""
        return [f"{plugin.plugin_index}-{plugin.plugin_name}" for plugin in self.plugins]

    def register(self) -> Runtime:
        """Add the next plugin that connects, and remove the disconnected plugins."""
        plugin = self.begin()
        plugin.start()
        self.end(plugin)
        return plugin

    def begin(self) -> Runtime:
        """Return the runtime's end of the next connection, before any message."""
        connection = self._host.accept()
        plugin = Runtime(
            SocketTransport(connection),
            request_timeout_s=REQUEST_S,
            registration_timeout_s=PATIENCE_S,
            **self._identity,
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
                self._remove_disconnected()

    def request(self, *env: str, id_: str = "c1", namespace: str = "ml") -> tuple[Any, Any]:
        """Return a pod, and a container of it with the variables ENV."""
        return pod(namespace=namespace), container(id=id_, env=["PATH=/usr/bin", *env])

    def create(self, *env: str, **request: str) -> Any:
        """Create a container for REQUEST; return the adjustment of all plugins, or raise Rejected."""
        with self._sync, self._lock:
            try:
                return self._created(*self.request(*env, **request))
            finally:
                self._remove_disconnected()

    def _created(self, sandbox: Any, made: Any) -> Any:
        adjustment = None
        visible = CLASSES["Container"].FromString(made.SerializeToString())
        for plugin in self.plugins:
            if plugin.events & CREATE:
                with suppress(Dropped):
                    adjustment = _merged(adjustment, _alive(plugin).create(sandbox, visible), visible)
        for plugin in self._validators:
            try:
                reason = _alive(plugin).validate(sandbox, made, adjustment, self.names)
            except Dropped:
                raise Rejected(2, f"validator plugin {plugin.plugin_name} failed: ttrpc: closed") from None
            if reason:
                raise Rejected(2, reason)
        return adjustment

    def _remove_disconnected(self) -> None:
        self.plugins = [plugin for plugin in self.plugins if not plugin.is_closed]
        self._validators = [plugin for plugin in self.plugins if plugin.events & VALIDATE]


def _merged(whole: Any, own: Any, visible: Any) -> Any:
    """Return WHOLE with a plugin's OWN changes, and update VISIBLE; raise Rejected on a conflict."""
    if whole is None:
        whole = own
    else:
        for name in own.annotations:
            if name in whole.annotations:
                raise Rejected(2, f'plugins "20-cdigen" and "20-cdigen" both tried to set annotation {name}')
        whole.MergeFrom(own)
    visible.annotations.update(own.annotations)
    return whole


def _alive(plugin: Runtime) -> Runtime:
    if plugin.is_closed:
        raise Dropped("ttrpc: closed")
    return plugin


def _close_at_end(connection: socket.socket, plugin: Runtime) -> None:
    """When PLUGIN closes its end of CONNECTION, mark it as closed; close the other end like Go's reader."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    plugin.is_closed = True
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
