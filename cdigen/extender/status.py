"""The state of the extender: ``document`` returns its ``status.json``, and ``render`` returns its metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter

from cdigen.extender.binding import API_ERROR, BOUND, CONFLICT, NO_CAPACITY, POD_GONE
from cdigen.model.times.timestamps import timestamp
from cdigen.service.status import header
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.service.status import ServiceProcess

READY, WAITING = "ready", "waiting"
VERBS = ("filter", "prioritize", "bind")
# More results of a bind, in addition to the results in ``binding``. NOT_READY: the lists are not complete
# yet. BUSY: too many binds are in progress.
NOT_READY, BUSY = "not_ready", "busy"
RESULTS = (BOUND, NO_CAPACITY, POD_GONE, API_ERROR, CONFLICT, NOT_READY, BUSY)


@frozen
class ListState:
    """A watched list of the API server.

    ``problem`` is the problem of the watch, or "". ``last_event_s`` is the Unix time of the last event.
    """

    name: str
    problem: str
    last_event_s: float


@frozen
class ExtenderState:
    """The state of the process; times are in seconds since 1970.

    ``waits_for`` is the reason why the extender is not ready, or "". ``binds`` has the number of binds by
    result.
    """

    started_s: float
    since_s: float
    waits_for: str
    port: int
    nodes: int
    pods: int
    total: int
    used: int
    binds: Mapping[str, int]
    lists: tuple[ListState, ...]
    problem: str = ""


def document(process: ServiceProcess, extender: ExtenderState) -> dict[str, Any]:
    """Return the content of status.json for PROCESS with the state EXTENDER."""
    state = WAITING if extender.waits_for else READY
    head = header(process, state=state, since_s=extender.since_s, started_s=extender.started_s)
    return {
        **head,
        "reason": extender.waits_for,
        "port": extender.port,
        "nodes": extender.nodes,
        "pods": extender.pods,
        "units": {"total": extender.total, "used": extender.used},
        "binds": dict(extender.binds),
        "lists": [
            {"list": each.name, "problem": each.problem, "last_event": timestamp(each.last_event_s)}
            for each in extender.lists
        ],
        "problem": extender.problem,
    }


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
