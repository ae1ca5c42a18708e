"""Metrics for Prometheus: ``families`` of the process's status and counts; ``Collector`` renders them."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily

from cdigen import __version__
from cdigen.frontend.metrics import counter, gauge
from cdigen.kubelet.answers import CAUSES
from cdigen.kubelet.counts import BUCKETS
from cdigen.kubelet.journal import shown_id
from cdigen.kubelet.labels.keeper import WRITTEN
from cdigen.kubelet.status import REGISTERED, allocated, count_health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.kubelet.counts import Counts
    from cdigen.kubelet.shares.state import SharesState
    from cdigen.kubelet.status import View

# Series of units that containers have: of a node with thousands of replicas, not all.
MAX_POD_SERIES = 1_000


class Collector:
    """The metrics of one process: VIEW returns its status, COUNTS are its answers."""

    def __init__(self, view: Callable[[], View], counts: Counts) -> None:
        self._view = view
        self._counts = counts
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self._registry)

    def describe(self) -> tuple[Metric, ...]:
        """Return nothing, so that registering does not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as they are now."""
        return families(self._view(), self._counts)


def families(view: View, counts: Counts) -> Iterator[Metric]:
    """Yield the metrics of VIEW and COUNTS; each series of a resource exists from the beginning."""
    yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
    yield gauge(
        "cdigen_config_valid",
        "Whether the configuration on the disk counts; where it is wrong, the last good one does.",
        {(): float(view.is_configured)},
    )
    yield gauge(
        "cdigen_kubelet_stale",
        "Whether the last known state of devices is offered, as the daemon does not keep it current.",
        {(): float(bool(view.stale))},
    )
    yield from _of_resources(view)
    yield from _of_answers(view, counts)
    if view.shares is not None:
        yield from _of_shares(view.shares)
    if view.labels is not None:
        is_written = view.labels.state == WRITTEN
        yield gauge(
            "cdigen_kubelet_labels",
            "Labels of the node in the file for Node Feature Discovery; 0 while it is not written.",
            {(): float(len(view.labels.labels) if is_written else 0)},
        )


def _of_resources(view: View) -> Iterator[Metric]:
    yield gauge(
        "cdigen_kubelet_registered",
        "Whether the kubelet watches the resource's devices.",
        {(one.resource.name,): float(one.state == REGISTERED) for one in view.served},
        "resource",
    )
    yield counter(
        "cdigen_kubelet_registrations",
        "Registrations that the kubelet accepted.",
        {(one.resource.name,): float(one.registrations) for one in view.served},
        "resource",
    )
    yield gauge(
        "cdigen_kubelet_devices",
        "Devices that the kubelet is told of, by their health.",
        {
            (one.resource.name, health): float(count)
            for one in view.served
            for health, count in count_health(one.resource).items()
        },
        "resource",
        "health",
    )
    if view.pods is None:
        return
    yield gauge(
        "cdigen_kubelet_allocated_devices",
        "Devices that containers have, as the kubelet says.",
        {(one.resource.name,): float(allocated(one.resource, view.pods) or 0) for one in view.served},
        "resource",
    )
    ours = {one.resource.name for one in view.served}
    rows = Counter(
        (pod.resource, shown_id(id_), pod.namespace, pod.pod, pod.container)
        for pod in view.pods
        if pod.resource in ours
        for id_ in pod.ids
    )
    yield gauge(
        "cdigen_kubelet_pod_device",
        "1 for each device that a container has, as the kubelet says; of a GPU's memory, how many units.",
        {row: float(count) for row, count in islice(rows.items(), MAX_POD_SERIES)},
        "resource",
        "device",
        "namespace",
        "pod",
        "container",
    )


def _of_answers(view: View, counts: Counts) -> Iterator[Metric]:
    names = [one.resource.name for one in view.served]
    yield counter(
        "cdigen_kubelet_allocations",
        "Containers that were given devices.",
        {(name,): float(counts.given[name]) for name in dict.fromkeys((*names, *counts.given))},
        "resource",
    )
    every = dict.fromkeys((*((name, cause) for name in names for cause in CAUSES), *counts.refused))
    yield counter(
        "cdigen_kubelet_refused",
        "Containers that were refused, by the cause.",
        {key: float(counts.refused[key]) for key in every},
        "resource",
        "cause",
    )
    durations = HistogramMetricFamily("cdigen_kubelet_allocate_seconds", "How long answers to Allocate took.")
    bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
    sums = map(float, accumulate(counts.durations))
    durations.add_metric([], list(zip(bounds, sums, strict=True)), counts.duration_s)
    yield durations


def _of_shares(state: SharesState) -> Iterator[Metric]:
    problems = {"pods": state.problem, "node": state.node_problem, "promises": state.promise_problem}
    yield gauge(
        "cdigen_kubelet_shares_well",
        "Whether pods can be told apart, the node says what is offered, and promises what containers have.",
        {(what,): float(not problem) for what, problem in problems.items()},
        "what",
    )
    yield gauge(
        "cdigen_kubelet_shares_pods", "Pods of this node that ask for memory.", {(): float(state.pods)}
    )
    yield gauge(
        "cdigen_kubelet_shares_containers",
        "Containers that ask for memory: served, or waiting.",
        {("served",): float(state.served), ("waiting",): float(state.waiting)},
        "state",
    )
    yield counter(
        "cdigen_kubelet_shares_requests",
        "Requests of the kubelet for units of memory, by what became of them.",
        {(outcome,): float(count) for outcome, count in state.outcomes.items()},
        "outcome",
    )
    yield counter(
        "cdigen_kubelet_shares_repaired",
        "Pods whose promises were made to follow what their containers have.",
        {(): float(state.repaired)},
    )
