"""Metrics of the extender for Prometheus: ``Counts`` gathers, ``render`` renders."""

from __future__ import annotations

import threading
import time
from collections import Counter

from cdigen.extender.binding import API, BOUND, CONFLICT, NO_ROOM, OVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cdigen.extender.status import Facts

    Samples = dict[tuple[str, ...], float]

VERBS = ("filter", "prioritize", "bind")
# How requests to bind end, besides those of ``binding``: the cluster is not known yet; too many at once.
UNREADY, BUSY = "unready", "busy"
RESULTS = (BOUND, NO_ROOM, OVER, API, CONFLICT, UNREADY, BUSY)


class Counts:
    """What was asked and answered so far; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter({(verb, "200"): 0 for verb in VERBS})
        self._seconds: dict[str, float] = dict.fromkeys(VERBS, 0.0)
        self._binds: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))

    def answered(self, verb: str, status: str, spent_s: float) -> None:
        """Count a request, that was answered with STATUS within SPENT_S."""
        with self._lock:
            self._requests[verb, status] += 1
            self._seconds[verb] += spent_s

    def ended(self, result: str) -> None:
        """Count a bind that ended with RESULT."""
        with self._lock:
            self._binds[result] += 1

    def binds(self) -> dict[str, int]:
        """Return how many binds ended with each of RESULTS."""
        with self._lock:
            return dict(self._binds)

    def families(self) -> Iterable[Any]:
        """Return the metrics."""
        from cdigen.frontend.metrics import counter  # noqa: PLC0415 - a scrape's alone

        with self._lock:
            requests: Samples = {key: float(number) for key, number in self._requests.items()}
            seconds: Samples = {(verb,): spent_s for verb, spent_s in self._seconds.items()}
            binds: Samples = {(result,): float(number) for result, number in self._binds.items()}
        yield counter("cdigen_extender_requests", "Requests, by HTTP's status.", requests, "verb", "status")
        yield counter("cdigen_extender_seconds", "Time that requests took.", seconds, "verb")
        yield counter("cdigen_extender_binds", "Requests to bind, by how they ended.", binds, "result")


def render(facts: Facts, counts: Counts) -> bytes:
    """Return all metrics as Prometheus reads them."""
    from prometheus_client import (  # noqa: PLC0415 - a scrape's alone
        CollectorRegistry,
        ProcessCollector,
        generate_latest,
    )

    registry = CollectorRegistry()
    registry.register(_Collector((*_families(facts), *counts.families())))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _families(facts: Facts) -> Iterable[Any]:
    from cdigen import __version__  # noqa: PLC0415 - a scrape's alone
    from cdigen.frontend.metrics import gauge  # noqa: PLC0415 - likewise

    yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
    yield gauge("cdigen_extender_ready", "Whether the cluster is known.", {(): float(not facts.waits_for)})
    yield gauge("cdigen_extender_nodes", "Nodes that are known.", {(): float(facts.nodes)})
    yield gauge("cdigen_extender_pods", "Pods that ask for memory of GPUs.", {(): float(facts.pods)})
    units: Samples = {("total",): float(facts.total), ("used",): float(facts.used)}
    yield gauge("cdigen_extender_units", "Units of GPUs' memory of all nodes.", units, "state")
    followed: Samples = {(each.name,): float(not each.problem) for each in facts.lists}
    yield gauge("cdigen_extender_following", "Whether a list is followed.", followed, "list")
    now_s = time.time()
    silent: Samples = {(each.name,): max(0.0, now_s - each.heard_s) for each in facts.lists}
    yield gauge("cdigen_extender_silent_seconds", "Time since a list's last word.", silent, "list")


class _Collector:
    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families
