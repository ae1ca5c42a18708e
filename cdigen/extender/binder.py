"""``Binder`` binds pods: at most MAX_BINDS at a time, and one at a time for each node."""

from __future__ import annotations

import secrets
import threading
import time

from cdigen.extender.binding import BindConfig, BindResult, bind
from cdigen.extender.status import BUSY
from cdigen.kubeapi.calls import UNKNOWN, Reply, drive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.extender.binding import BindRequest, Steps
    from cdigen.extender.placement import Strategy
    from cdigen.extender.watched_index import WatchedIndex
    from cdigen.kubeapi.calls import Call
    from cdigen.kubeapi.client import Client

# The time limit of a bind. A bind usually takes milliseconds. By default, kube-scheduler waits 5 s for an
# extender ('httpTimeout').
BIND_S = 8.0
# The pause after a request to the API server that has no valid reply.
PAUSE_S = 0.1
# The limit for concurrent binds. This limit is lower than MAX_CONNECTIONS, so that filter requests have
# connections while the API server is slow.
MAX_BINDS = 32
_TOO_LATE = Reply(status=UNKNOWN, body={}, reason=f"the time limit of the bind has passed ({BIND_S:g} s)")


class Binder:
    """Binds pods with the index of WATCHED through CLIENT; the ledgers are in NAMESPACE."""

    def __init__(self, watched: WatchedIndex, client: Client, namespace: str, strategy: Strategy) -> None:
        self._watched = watched
        self._client = client
        self._namespace = namespace
        self._strategy = strategy
        # Binds to one node wait for each other, because concurrent binds to a node would only conflict.
        self._node_locks = [threading.Lock() for _ in range(MAX_BINDS)]
        self._binding = threading.BoundedSemaphore(MAX_BINDS)
        self._identity = secrets.token_hex(6)

    def bind(self, request: BindRequest) -> BindResult:
        """Bind the pod of REQUEST, and return the result."""
        if not self._binding.acquire(blocking=False):
            return BindResult(kind=BUSY, problem=f"{MAX_BINDS} other binds in progress")
        try:
            return self._bind_in_turn(request)
        finally:
            self._binding.release()

    def _bind_in_turn(self, request: BindRequest) -> BindResult:
        config = BindConfig(
            namespace=self._namespace,
            token=f"{self._identity}-{secrets.token_hex(6)}",
            now_ns=time.time_ns(),
            strategy=self._strategy,
        )
        until_s = time.monotonic() + BIND_S
        lock = self._node_locks[hash(request.node) % len(self._node_locks)]
        if not lock.acquire(timeout=BIND_S):
            return BindResult(kind=BUSY, problem=f"other binds to {request.node} take too long")
        try:
            return self._run(bind(request, self._watched.index, config), until_s)
        finally:
            lock.release()

    def _run(self, steps: Steps, until_s: float) -> BindResult:
        """Send the calls of STEPS until UNTIL_S; return the result of STEPS.

        After UNTIL_S, each call fails without being sent, because the scheduler does not wait for this bind
        any more.
        """

        def send(call: Call, before: Reply | None) -> Reply:
            if before is not None and before.is_unknown:
                self._watched.stopping.wait(PAUSE_S)
            return self._client.send(call) if time.monotonic() < until_s else _TOO_LATE

        return drive(steps, self._watched.lock, send)
