"""The metrics of the extender for Prometheus: ``ExtenderCounts`` has counters, ``render`` makes the text."""

from __future__ import annotations

import threading
import time
from collections import Counter

from cdigen.extender.binding import API_ERROR, BOUND, CONFLICT, NO_CAPACITY, POD_GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.extender.status import ExtenderState

VERBS = ("filter", "prioritize", "bind")
# More results of a bind, in addition to the results in ``binding``. NOT_READY: the lists are not complete
# yet. BUSY: too many binds are in progress.
NOT_READY, BUSY = "not_ready", "busy"
RESULTS = (BOUND, NO_CAPACITY, POD_GONE, API_ERROR, CONFLICT, NOT_READY, BUSY)


class ExtenderCounts:
    """The counters of requests and binds; the class is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter({(verb, "200"): 0 for verb in VERBS})
        self._seconds: dict[str, float] = dict.fromkeys(VERBS, 0.0)
        self._binds: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))

    def answered(self, verb: str, status: str, spent_s: float) -> None:
        """Count a request that was answered with STATUS after SPENT_S."""
        with self._lock:
            self._requests[verb, status] += 1
            self._seconds[verb] += spent_s

    def ended(self, result: str) -> None:
        """Count a bind that ended with RESULT."""
        with self._lock:
            self._binds[result] += 1

    def binds(self) -> dict[str, int]:
        """Return the number of binds by result."""
        with self._lock:
            return dict(self._binds)

    def requests(self) -> tuple[dict[tuple[str, str], int], dict[str, float]]:
        """Return the number of requests by verb and status, and the seconds that they took by verb."""
        with self._lock:
            return dict(self._requests), dict(self._seconds)


def render(state: ExtenderState, counts: ExtenderCounts) -> bytes:
    """Return all metrics in the text format of Prometheus."""
    from cdigen.service.metrics import counter, exposition, gauge  # noqa: PLC0415 - only for a scrape

    requests, seconds = counts.requests()
    units = {"total": state.total, "used": state.used}
    connected = {each.name: not each.problem for each in state.lists}
    now_s = time.time()
    idle = {each.name: max(0.0, now_s - each.last_event_s) for each in state.lists}
    metrics = (
        gauge("cdigen_extender_ready", "Whether all watched lists are complete.", not state.waits_for),
        gauge("cdigen_extender_nodes", "Nodes of the cluster.", state.nodes),
        gauge("cdigen_extender_pods", "Pods that request GPU memory.", state.pods),
        gauge("cdigen_extender_units", "GPU memory units of all nodes.", units, "state"),
        gauge("cdigen_extender_watch_connected", "Whether a watch works.", connected, "list"),
        gauge("cdigen_extender_watch_idle_seconds", "Time since the last event of a watch.", idle, "list"),
        counter("cdigen_extender_requests", "Requests, by HTTP status.", requests, "verb", "status"),
        counter("cdigen_extender_seconds", "Time that requests took.", seconds, "verb"),
        counter("cdigen_extender_binds", "Requests to bind, by result.", counts.binds(), "result"),
    )
    return exposition(metrics)
