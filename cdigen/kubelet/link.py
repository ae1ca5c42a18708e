"""``Link``: serves and registers resources with the kubelet, in a thread with an asyncio loop of its own.

It carries out what each resource's ``Registration`` says, and tells it what happens. No resource waits for
another. The main thread hands over what is offered, and is told of changes by a trigger.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from cdigen.kubelet.serving import Serving, Surroundings
from cdigen.kubelet.sockets import KUBELET, neighbours, socket_at, sweep
from cdigen.kubelet.wire import clients
from cdigen.kubelet.wire.clients import KubeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cdigen.kubelet.listing import Listing, ResourceStatus
    from cdigen.kubelet.pods import PodList

# For what makes no event in the folder: a folder that is mounted over, inotify's limits.
LOOK_S = 10.0
_STOP_S = 1.5


class Link:
    """Serves resources in FOLDER, where the kubelet has its socket; PODS is its socket for pod resources.

    NOTIFY is called in the link's thread when a status has changed, LOG with a line about a fault.
    The link reads the folder at each ``look``, and after LOOK_S without one.
    """

    def __init__(
        self,
        folder: str,
        pods: str,
        *,
        notify: Callable[[], object],
        log: Callable[[str, str], object],
        look_s: float = LOOK_S,
    ) -> None:
        self.folder = folder
        self._pods = pods
        self._notify = notify
        self._look_s = look_s
        self._surroundings = Surroundings(folder=folder, shown=self._shown, changed=self._changed, log=log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ready = threading.Event()
        self._stopping: asyncio.Event | None = None
        self._servings: dict[str, Serving] = {}
        self._statuses: tuple[ResourceStatus, ...] = ()
        self._endings: set[asyncio.Future[None]] = set()
        self._asking: asyncio.Task[dict[str, frozenset[str]]] | None = None
        self._thread = threading.Thread(target=self._run, name="kubelet-link", daemon=True)
        self.alive_s = time.monotonic()

    # For the main thread.

    def start(self) -> None:
        """Begin; what a process that was killed has left in the folder is removed."""
        sweep(self.folder)
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """Stop all servers and end; may be called again."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_STOP_S)

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def offer(self, listings: tuple[Listing, ...]) -> None:
        """Offer these resources from now on, and no others; lists that have changed are sent at once."""
        self._call(lambda: self._take_listings(listings))

    def look(self) -> None:
        """Look at the folder now, as something has changed in it."""
        self._call(self._look)

    def ask_pods(self, tell: Callable[[PodList | str], object]) -> None:
        """Ask the kubelet which container has which devices.

        TELL gets them in the link's thread, or one line that says why the kubelet does not tell.
        """
        self._call(lambda: self._keep(self._ask_pods(tell)))

    def statuses(self) -> tuple[ResourceStatus, ...]:
        """Return how each resource is."""
        return self._statuses

    def _call(self, what: Callable[[], object]) -> None:
        if self._loop is not None:
            # RuntimeError: the loop has ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what)

    # In the loop.

    def _run(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._is_ready.set()
        while not self._stopping.is_set():
            self.alive_s = time.monotonic()
            self._look()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._look_s)
        await asyncio.gather(*(serving.stop() for serving in self._servings.values()), *self._endings)

    def _look(self) -> None:
        identity = socket_at(f"{self.folder}/{KUBELET}")
        others = neighbours(self.folder)
        for serving in self._servings.values():
            serving.look(identity, others)

    def _take_listings(self, listings: tuple[Listing, ...]) -> None:
        names = {listing.resource for listing in listings}
        for name in self._servings.keys() - names:
            serving = self._servings.pop(name)
            self._keep(serving.stop())
        for listing in listings:
            if listing.resource in self._servings:
                self._servings[listing.resource].show(listing)
            else:
                self._servings[listing.resource] = Serving(listing, self._surroundings)
        self._look()
        self._changed()

    async def pods(self, timeout_s: float) -> PodList:
        """Return which container has which devices. ``KubeletError``: it does not tell, or not in time."""
        return await clients.pods(self._pods, timeout_s=timeout_s)

    async def _ask_pods(self, tell: Callable[[PodList | str], object]) -> None:
        try:
            tell(await clients.pods(self._pods))
        except KubeletError as error:
            tell(error.message)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Let WORK go on until it ends: the loop itself holds no reference."""
        task = asyncio.ensure_future(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _shown(self) -> dict[str, frozenset[str]]:
        """Return what the kubelet shows; those who ask at the same time share a question."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(clients.allocatable(self._pods))
        return await asyncio.shield(self._asking)

    def _changed(self) -> None:
        statuses = tuple(serving.status() for serving in self._servings.values())
        if statuses != self._statuses:
            self._statuses = statuses
            self._notify()
