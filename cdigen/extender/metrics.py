"""The metrics of the extender for Prometheus: ``ExtenderCounts`` has counters, ``render`` makes the text."""

from __future__ import annotations

import threading
import time
from collections import Counter

from cdigen.extender.binding import API_ERROR, BOUND, CONFLICT, NO_CAPACITY, POD_GONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.extender.status import ExtenderState

    Samples = dict[tuple[str, ...], float]

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

    def families(self) -> Iterable[Any]:
        """Yield the metrics of the counters."""
        from cdigen.service.metrics import counter  # noqa: PLC0415 - only for a scrape

        with self._lock:
            requests: Samples = {key: float(number) for key, number in self._requests.items()}
            seconds: Samples = {(verb,): spent_s for verb, spent_s in self._seconds.items()}
            binds: Samples = {(result,): float(number) for result, number in self._binds.items()}
        yield counter("cdigen_extender_requests", "Requests, by HTTP status.", requests, "verb", "status")
        yield counter("cdigen_extender_seconds", "Time that requests took.", seconds, "verb")
        yield counter("cdigen_extender_binds", "Requests to bind, by result.", binds, "result")


def render(state: ExtenderState, counts: ExtenderCounts) -> bytes:
    """Return all metrics in the text format of Prometheus."""
    from prometheus_client import (  # noqa: PLC0415 - only for a scrape
        CollectorRegistry,
        ProcessCollector,
        generate_latest,
    )

    registry = CollectorRegistry()
    registry.register(_Collector((*_families(state), *counts.families())))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _families(state: ExtenderState) -> Iterable[Any]:
    from cdigen import __version__  # noqa: PLC0415 - only for a scrape
    from cdigen.service.metrics import gauge  # noqa: PLC0415 - only for a scrape

    yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
    yield gauge(
        "cdigen_extender_ready", "Whether all watched lists are complete.", {(): float(not state.waits_for)}
    )
    yield gauge("cdigen_extender_nodes", "Nodes of the cluster.", {(): float(state.nodes)})
    yield gauge("cdigen_extender_pods", "Pods that request GPU memory.", {(): float(state.pods)})
    units: Samples = {("total",): float(state.total), ("used",): float(state.used)}
    yield gauge("cdigen_extender_units", "GPU memory units of all nodes.", units, "state")
    connected: Samples = {(each.name,): float(not each.problem) for each in state.lists}
    yield gauge("cdigen_extender_watch_connected", "Whether a watch works.", connected, "list")
    now_s = time.time()
    idle: Samples = {(each.name,): max(0.0, now_s - each.last_event_s) for each in state.lists}
    yield gauge("cdigen_extender_watch_idle_seconds", "Time since the last event of a watch.", idle, "list")


class _Collector:
    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families
