"""``KubeletLink`` serves resources and registers them with the kubelet, in a thread with an asyncio loop.

Each ``ResourceEndpoint`` runs the actions of its ``Registration`` and reports the results as events. No
resource waits for another resource. The main thread passes the listings to the link. The link notifies the
main thread of changes.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from cdigen.kubelet.registration.endpoint import ResourceEndpoint, ServingContext
from cdigen.kubelet.registration.sockets import KUBELET, other_plugin_sockets, remove_dead_sockets, socket_at
from cdigen.kubelet.wire import clients
from cdigen.kubelet.wire.clients import KubeletError
from cdigen.service.liveness import Liveness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.registration.listing import Listing, ResourceStatus

# Some changes cause no event, for example a mount over the folder, or any change after a limit of inotify
# is reached.
CHECK_S = 10.0
_STOP_S = 1.5


class KubeletLink:
    """Serves resources in FOLDER, which has the kubelet's socket.

    PODS is the path of the kubelet's socket for pod resources. NOTIFY is called in the link's thread after a
    change of a status. LOG is called with the resource and a line about a fault. The link reads the folder at
    each ``check_folder``, and every CHECK_S seconds.
    """

    def __init__(
        self,
        folder: str,
        pods: str,
        *,
        notify: Callable[[], object],
        log: Callable[[str, str], object],
        check_s: float = CHECK_S,
    ) -> None:
        self.folder = folder
        self._pods = pods
        self._notify = notify
        self._check_s = check_s
        self._context = ServingContext(
            folder=folder, allocatable=self._get_allocatable, on_change=self._on_change, log=log
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ready = threading.Event()
        self._stop_event: asyncio.Event | None = None
        self._endpoints: dict[str, ResourceEndpoint] = {}
        self._statuses: tuple[ResourceStatus, ...] = ()
        self._tasks: set[asyncio.Future[None]] = set()
        self._allocatable_query: asyncio.Task[dict[str, frozenset[str]]] | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet-link", daemon=True)
        self._liveness = Liveness("the kubelet")

    # Methods for the main thread.

    def start(self) -> None:
        """Remove the sockets of killed processes from the folder, and start the thread."""
        remove_dead_sockets(self.folder)
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """Stop all servers and the thread; a second call has no effect."""
        if self._loop is not None and self._stop_event is not None and self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop_event.set)
            self._thread.join(_STOP_S)

    def problem(self) -> str:
        """Return the reason why the thread does not work, or ""."""
        return self._liveness.problem(is_running=self._thread.is_alive())

    def advertise(self, listings: tuple[Listing, ...]) -> None:
        """Advertise only LISTINGS from now on, and send changed lists at once."""
        self._call(lambda: self._set_listings(listings))

    def check_folder(self) -> None:
        """Read the folder now, because the folder may have changed."""
        self._call(self._check_folder)

    def request_pods(self, on_result: Callable[[PodList | str], object]) -> None:
        """Request the devices of all containers from the kubelet.

        ON_RESULT is called in the link's thread with the list, or with one line about the error.
        """
        self._call(lambda: self._start_task(self._request_pods(on_result)))

    def statuses(self) -> tuple[ResourceStatus, ...]:
        """Return the status of each resource."""
        return self._statuses

    def _call(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            # The loop raises RuntimeError after its end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    # Methods that run in the loop.

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        self._loop, self._stop_event = asyncio.get_running_loop(), asyncio.Event()
        self._is_ready.set()
        while not self._stop_event.is_set():
            self._liveness.beat()
            self._check_folder()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop_event.wait(), self._check_s)
        await asyncio.gather(*(endpoint.stop() for endpoint in self._endpoints.values()), *self._tasks)

    def _check_folder(self) -> None:
        identity = socket_at(f"{self.folder}/{KUBELET}")
        others = other_plugin_sockets(self.folder)
        for endpoint in self._endpoints.values():
            endpoint.check_sockets(identity, others)

    def _set_listings(self, listings: tuple[Listing, ...]) -> None:
        names = {listing.resource for listing in listings}
        for name in self._endpoints.keys() - names:
            endpoint = self._endpoints.pop(name)
            self._start_task(endpoint.stop())
        for listing in listings:
            if listing.resource in self._endpoints:
                self._endpoints[listing.resource].update(listing)
            else:
                self._endpoints[listing.resource] = ResourceEndpoint(listing, self._context)
        self._check_folder()
        self._on_change()

    async def pods(self, timeout_s: float) -> PodList:
        """Return the devices of all containers, or raise ``KubeletError`` after TIMEOUT_S without a list."""
        return await clients.pods(self._pods, timeout_s=timeout_s)

    async def _request_pods(self, on_result: Callable[[PodList | str], object]) -> None:
        try:
            on_result(await clients.pods(self._pods))
        except KubeletError as error:
            on_result(error.message)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        """Run WORK as a task and keep a reference to the task, because the loop keeps no reference."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _get_allocatable(self) -> dict[str, frozenset[str]]:
        """Return the allocatable devices of the kubelet; concurrent calls share one query."""
        if self._allocatable_query is None or self._allocatable_query.done():
            self._allocatable_query = asyncio.ensure_future(clients.allocatable(self._pods))
        return await asyncio.shield(self._allocatable_query)

    def _on_change(self) -> None:
        statuses = tuple(endpoint.status() for endpoint in self._endpoints.values())
        if statuses != self._statuses:
            self._statuses = statuses
            self._notify()
