"""``ResourceEndpoint``: the servers and the registration of one resource, in the loop of KubeletLink."""

from __future__ import annotations

import asyncio
import os
import time

from cdigen.kubelet.registration import events
from cdigen.kubelet.registration.listing import ResourceStatus
from cdigen.kubelet.registration.sockets import (
    KUBELET,
    fresh_socket,
    kubelet_absence_reason,
    other_plugin_sockets,
    socket_failure_reason,
)
from cdigen.kubelet.registration.state_machine import Registration, allocatable_owner
from cdigen.kubelet.wire import clients
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.kubelet.wire.server import ResourceServer
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from cdigen.kubelet.registration.events import Event, Identity
    from cdigen.kubelet.registration.listing import Listing


@frozen
class ServingContext:
    """The folder and the callbacks that all resources share.

    ``folder`` has the sockets of the resources and of the kubelet. ``allocatable`` returns the allocatable
    devices of the kubelet (``clients.allocatable``). ``on_change`` is called after each event. ``log`` is
    called with the resource and one line about a fault.
    """

    folder: str
    allocatable: Callable[[], Awaitable[dict[str, frozenset[str]]]]
    on_change: Callable[[], object]
    log: Callable[[str, str], object]


class ResourceEndpoint:
    """Serves LISTING and keeps its resource registered with the kubelet until ``stop`` is called."""

    def __init__(self, listing: Listing, context: ServingContext) -> None:
        self._listing = listing
        self._context = context
        self._registration = Registration()
        self._loop = asyncio.get_running_loop()
        self._servers: dict[int, ResourceServer] = {}
        self._starts: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._since_s = time.time()
        self._registrations = 0

    def update(self, listing: Listing) -> None:
        """Serve LISTING from now on, and send a changed list at once.

        If another plugin has the resource, cdigen sends no list, because the kubelet would replace the list
        of the other plugin.
        """
        self._listing = listing
        if self._registration.state == "claimed-by-other":
            return
        for server in self._servers.values():
            server.update(listing.devices, listing.allocator)

    def check_sockets(self, kubelet: Identity | None, others: frozenset[str]) -> None:
        """Pass the present sockets of the kubelet, of other plugins and of this endpoint to the registration.

        KUBELET identifies the kubelet's socket. OTHERS are the names of other plugins' sockets.
        """
        self._apply(events.OtherPluginsDetected(names=others))
        self._apply(events.KubeletSocketChanged(identity=kubelet))
        number = self._registration.server
        server = self._servers.get(number)
        if server is not None and not os.path.lexists(server.path) and number not in self._starts:
            self._apply(events.SocketRemoved(server=number))

    async def stop(self) -> None:
        """Stop all servers and tasks."""
        if self._timer is not None:
            self._timer.cancel()
        self._registration.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        self._servers.clear()

    def status(self) -> ResourceStatus:
        """Return the status of the resource."""
        registration, listing = self._registration, self._listing
        server = self._servers.get(registration.server)
        return ResourceStatus(
            resource=listing.resource,
            state=registration.state,
            reason=registration.reason or self._waiting_reason(),
            since_s=self._since_s,
            socket=server.path if server is not None else "",
            count=listing.count,
            healthy=len(listing.healthy),
            registrations=self._registrations,
            is_confirmed=registration.is_confirmed,
        )

    def _waiting_reason(self) -> str:
        return kubelet_absence_reason(self._context.folder) if self._registration.state == "waiting" else ""

    def _apply(self, event: Event) -> None:
        before, due_s = self._registration.state, self._registration.due_s
        for action in self._registration.apply(event, self._loop.time()):
            match action:
                case events.StartServer():
                    self._serve(action.server)
                case events.Register():
                    self._start_task(self._register(action.server))
                case events.StopServer():
                    self._start_task(self._stop(action.server))
                case events.GetAllocatable():
                    self._start_task(self._get_allocatable())
        if self._registration.state != before:
            self._since_s = time.time()
            self._registrations += self._registration.state == "registered"
        if self._registration.due_s != due_s:
            self._set_timer()
        self._context.on_change()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._registration.due_s
        self._timer = None if due_s is None else self._loop.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        due_s = self._registration.due_s
        if due_s is not None and self._loop.time() < due_s:
            # The loop may call a timer early, by at most the resolution of its clock.
            self._set_timer()
            return
        self._apply(events.Tick())
        if self._timer is None:
            self._set_timer()

    def _start_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._context.log(self._listing.resource, f"{type(error).__name__}: {error}")

    # The actions of the registration.

    def _serve(self, number: int) -> None:
        server = ResourceServer(
            fresh_socket(self._context.folder, self._listing.resource),
            self._listing.devices,
            self._listing.allocator,
            on_stream=lambda is_open: self._apply(
                events.StreamOpened(server=number) if is_open else events.StreamEnded(server=number)
            ),
            on_fault=lambda text: self._context.log(self._listing.resource, text),
        )
        self._servers[number] = server
        self._starts[number] = self._start_task(self._start(number, server))

    async def _start(self, number: int, server: ResourceServer) -> None:
        try:
            await server.start()
        except OSError as error:
            await server.stop()
            self._servers.pop(number, None)
            del self._starts[number]
            reason = socket_failure_reason(self._context.folder) or error.strerror or str(error)
            self._apply(events.ServerFailed(server=number, reason=reason))
        else:
            del self._starts[number]
            # The list may have changed during the start.
            server.update(self._listing.devices, self._listing.allocator)
            self._apply(events.ServerStarted(server=number))

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
            # A starting kubelet has removed the plugin's socket. The event for the new kubelet.sock follows.
            failure = events.RegistrationFailed(
                server=number, reason="the plugin's socket was removed", was_reached=False
            )
            self._apply(failure)
            return
        try:
            await clients.register(
                f"{self._context.folder}/{KUBELET}", self._listing.resource, os.path.basename(server.path)
            )
        except KubeletError as error:
            self._apply(
                events.RegistrationFailed(server=number, reason=error.message, was_reached=error.was_reached)
            )
        else:
            self._apply(events.RegistrationAccepted(server=number))

    async def _get_allocatable(self) -> None:
        try:
            allocatable = await self._context.allocatable()
        except KubeletError as error:
            self._apply(events.AllocatableReported(owner="late" if error.is_late else "unknown"))
        else:
            self._apply(events.OtherPluginsDetected(names=other_plugin_sockets(self._context.folder)))
            found = allocatable_owner(allocatable, self._listing.resource, self._listing.healthy)
            self._apply(events.AllocatableReported(owner=found))
