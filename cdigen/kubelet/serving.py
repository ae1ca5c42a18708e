"""``Serving``: one resource with its servers and its registration. All of it in the link's loop."""

from __future__ import annotations

import asyncio
import os
import time

from cdigen.kubelet.listing import ResourceStatus
from cdigen.kubelet.occurrences import (
    Accepted,
    AskShown,
    KubeletSeen,
    NeighboursSeen,
    Register,
    RegisterFailed,
    Serve,
    Served,
    ServeFailed,
    ShownBy,
    SocketGone,
    Stop,
    StreamEnded,
    StreamOpened,
    Tick,
)
from cdigen.kubelet.registration import Registration, compared
from cdigen.kubelet.sockets import KUBELET, fresh_socket, neighbours, why_no_kubelet, why_no_socket
from cdigen.kubelet.wire import clients
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.kubelet.wire.server import ResourceServer
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from cdigen.kubelet.listing import Listing
    from cdigen.kubelet.occurrences import Event, Identity


@frozen
class Surroundings:
    """What all resources have in common: the FOLDER of their sockets and the kubelet's, and whom they tell.

    ``shown`` returns what the kubelet shows (``clients.allocatable``), ``changed`` is called after events,
    ``log`` with the resource and a line about a fault.
    """

    folder: str
    shown: Callable[[], Awaitable[dict[str, frozenset[str]]]]
    changed: Callable[[], object]
    log: Callable[[str, str], object]


class Serving:
    """Serves LISTING, registered with the kubelet, until ``stop``."""

    def __init__(self, listing: Listing, surroundings: Surroundings) -> None:
        self._listing = listing
        self._around = surroundings
        self._registration = Registration()
        self._loop = asyncio.get_running_loop()
        self._servers: dict[int, ResourceServer] = {}
        self._starts: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._since_s = time.time()
        self._registrations = 0

    def show(self, listing: Listing) -> None:
        """Serve LISTING from now on: another list is sent at once.

        Not where another plugin has the resource: the kubelet would take it in the place of the other's.
        """
        self._listing = listing
        if self._registration.state == "taken":
            return
        for server in self._servers.values():
            server.show(listing.devices, listing.answers)

    def look(self, kubelet: Identity | None, others: frozenset[str]) -> None:
        """Take what is at the kubelet's path, the sockets of OTHERS, and whether our own is there."""
        self._take(NeighboursSeen(names=others))
        self._take(KubeletSeen(identity=kubelet))
        number = self._registration.server
        server = self._servers.get(number)
        if server is not None and not os.path.lexists(server.path) and number not in self._starts:
            self._take(SocketGone(server=number))

    async def stop(self) -> None:
        """Stop serving; nothing happens afterwards."""
        if self._timer is not None:
            self._timer.cancel()
        self._registration.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        self._servers.clear()

    def status(self) -> ResourceStatus:
        """Return how the resource is."""
        registration, listing = self._registration, self._listing
        server = self._servers.get(registration.server)
        return ResourceStatus(
            resource=listing.resource,
            state=registration.state,
            reason=registration.reason or self._why_waiting(),
            since_s=self._since_s,
            socket=server.path if server is not None else "",
            count=listing.count,
            healthy=len(listing.healthy),
            registrations=self._registrations,
            is_confirmed=registration.is_confirmed,
        )

    def _why_waiting(self) -> str:
        return why_no_kubelet(self._around.folder) if self._registration.state == "waiting" else ""

    def _take(self, event: Event) -> None:
        before, due_s = self._registration.state, self._registration.due_s
        for action in self._registration.take(event, self._loop.time()):
            match action:
                case Serve():
                    self._serve(action.server)
                case Register():
                    self._begin(self._register(action.server))
                case Stop():
                    self._begin(self._stop(action.server))
                case AskShown():
                    self._begin(self._ask())
        if self._registration.state != before:
            self._since_s = time.time()
            self._registrations += self._registration.state == "registered"
        if self._registration.due_s != due_s:
            self._plan()
        self._around.changed()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._registration.due_s
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_s = self._registration.due_s
        if due_s is not None and self._loop.time() < due_s:
            # Timers of the loop may be early by its clock's resolution.
            self._plan()
            return
        self._take(Tick())
        if self._timer is None:
            self._plan()

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._around.log(self._listing.resource, f"{type(error).__name__}: {error}")

    # What the registration asks for.

    def _serve(self, number: int) -> None:
        server = ResourceServer(
            fresh_socket(self._around.folder, self._listing.resource),
            self._listing.devices,
            self._listing.answers,
            on_stream=lambda is_open: self._take(
                StreamOpened(server=number) if is_open else StreamEnded(server=number)
            ),
            on_fault=lambda text: self._around.log(self._listing.resource, text),
        )
        self._servers[number] = server
        self._starts[number] = self._begin(self._start(number, server))

    async def _start(self, number: int, server: ResourceServer) -> None:
        try:
            await server.start()
        except OSError as error:
            await server.stop()
            self._servers.pop(number, None)
            del self._starts[number]
            why = why_no_socket(self._around.folder) or error.strerror or str(error)
            self._take(ServeFailed(server=number, reason=why))
        else:
            del self._starts[number]
            # The list may have changed meanwhile.
            server.show(self._listing.devices, self._listing.answers)
            self._take(Served(server=number))

    async def _stop(self, number: int) -> None:
        if (start := self._starts.get(number)) is not None:
            await asyncio.wait({start})
        server = self._servers.pop(number, None)
        if server is not None:
            await server.stop()

    async def _register(self, number: int) -> None:
        server = self._servers.get(number)
        if server is None:
            return
        if not os.path.lexists(server.path):
            # A kubelet that starts has removed it, and its own socket was not noticed yet.
            gone = RegisterFailed(server=number, reason="its socket was removed", was_reached=False)
            self._take(gone)
            return
        try:
            await clients.register(
                f"{self._around.folder}/{KUBELET}", self._listing.resource, os.path.basename(server.path)
            )
        except KubeletError as error:
            self._take(RegisterFailed(server=number, reason=error.message, was_reached=error.was_reached))
        else:
            self._take(Accepted(server=number))

    async def _ask(self) -> None:
        try:
            shown = await self._around.shown()
        except KubeletError as error:
            self._take(ShownBy(shown="late" if error.is_late else "unknown"))
        else:
            self._take(NeighboursSeen(names=neighbours(self._around.folder)))
            found = compared(shown, self._listing.resource, self._listing.healthy)
            self._take(ShownBy(shown=found))
