"""Runs `SessionServer`, the loop of a connection, in a thread; the other end is a double of a runtime."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.nri.host import ALLOWED
from support.nri.plugin import INJECTS_08
from support.nri.runtime import Runtime, SocketTransport
from support.waiting import PATIENCE_S, pause

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.context import LIBRARY, cache_for, context_of
from cdigen.nri.serving import REGISTER_WITHIN_S, SessionServer
from cdigen.nri.shared_state import SharedState
from cdigen.nri.wire.session import Session
from cdigen.service.host_state import HostSources, HostState, read_host_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.nri.decision.context import DecisionContext

SETTINGS = Settings(nri=NriConfig(allow=ALLOWED))


class Served:
    """A connection with its loop; after the end of the loop, `ended` has the loop's exception, or None."""

    def __init__(self, *, register_within_s: float = REGISTER_WITHIN_S) -> None:
        self.notifications: list[str] = []
        self.shared = SharedState(self.notifications.append)
        self.ended: list[Exception | None] = []
        connection, self.end = socket.socketpair()
        connection.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        self._connection = connection
        self.serving = SessionServer(
            connection, Session("cdigen", "20"), self.shared, register_within_s=register_within_s
        )
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def runtime(self, *, request_timeout_s: float = PATIENCE_S, is_synchronized: bool = True) -> Runtime:
        """Return a runtime that has configured the session, and synchronized it if IS_SYNCHRONIZED."""
        made = Runtime(
            SocketTransport(self.end),
            request_timeout_s=request_timeout_s,
            registration_timeout_s=PATIENCE_S,
            **INJECTS_08,
        )
        made.start()
        if is_synchronized:
            made.synchronize()
        return made

    def result(self) -> Exception | None:
        """Return the exception of the loop, if any, after its end."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.ended[0]

    def close(self) -> None:
        self.shared.stopping.set()
        self.shared.wake()
        self._thread.join(PATIENCE_S)
        self.end.close()

    def _serve(self) -> None:
        with self._connection:
            try:
                self.serving.run()
            except Exception as error:  # noqa: BLE001 - the test checks it
                self.ended.append(error)
            else:
                self.ended.append(None)


@contextmanager
def served(
    context: DecisionContext | None = None, *, register_within_s: float = REGISTER_WITHIN_S
) -> Iterator[Served]:
    """Serve a connection by CONTEXT, until the end of the body."""
    made = Served(register_within_s=register_within_s)
    if context is not None:
        made.shared.set_context(context)
    try:
        yield made
    finally:
        made.close()


def settled_state(root: Path, settings: Settings = SETTINGS) -> HostState:
    """Wait until the last change below ROOT is old enough; return the state of this host for SETTINGS."""
    tree = str(root)
    dirs = ("/etc/cdi", "/run/cdi")
    sources = HostSources(host=tree, specs=tree, spec_dirs=dirs, runs=tree, run_dir="/run/cdigen")
    cache = cache_for(settings)
    while not (state := read_host_state(sources, library=LIBRARY, cache=cache)).is_current():
        pause(0.01)
    return state


def context_on(root: Path, settings: Settings = SETTINGS) -> DecisionContext:
    """Wait until the last change below ROOT is old enough; return the context of decisions on this host."""
    return context_of(settled_state(root, settings), settings)
