"""The metrics for Prometheus: ``families`` computes the metrics, and ``KubeletCollector`` renders them."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, islice

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily

from cdigen import __version__
from cdigen.kubelet.container_response import CAUSES
from cdigen.kubelet.counts import BUCKETS
from cdigen.kubelet.journal import display_id
from cdigen.kubelet.labels.label_file import WRITTEN
from cdigen.kubelet.status import REGISTERED, allocated, count_health
from cdigen.service.metrics import counter, gauge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.kubelet.counts import AllocationCounts
    from cdigen.kubelet.gpu_memory.state import GpuMemoryState
    from cdigen.kubelet.status import KubeletPluginStatus

# The limit for series of allocated units, because a node may have thousands of replicas.
MAX_POD_SERIES = 1_000


class KubeletCollector:
    """The metrics of one process; VIEW returns the status, COUNTS has the counts of responses."""

    def __init__(self, view: Callable[[], KubeletPluginStatus], counts: AllocationCounts) -> None:
        self._view = view
        self._counts = counts
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def describe(self) -> tuple[Metric, ...]:
        """Return no metrics, so that the registry does not call ``collect`` when it adds this collector."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the present metrics."""
        return families(self._view(), self._counts)


def families(view: KubeletPluginStatus, counts: AllocationCounts) -> Iterator[Metric]:
    """Yield the metrics of VIEW and COUNTS; counters of a resource also exist with the value 0."""
    yield gauge("cdigen_build_info", "The version of cdigen.", {(__version__,): 1}, "version")
    yield gauge(
        "cdigen_config_valid",
        "Whether the configuration on the disk is valid; otherwise the previous one stays active.",
        {(): float(view.is_configured)},
    )
    yield gauge(
        "cdigen_kubelet_stale",
        "Whether the last known devices are advertised, because the daemon does not update the inventory.",
        {(): float(bool(view.stale))},
    )
    yield from _resource_metrics(view)
    yield from _response_metrics(view, counts)
    if view.shared_memory is not None:
        yield from _memory_metrics(view.shared_memory)
    if view.labels is not None:
        is_written = view.labels.state == WRITTEN
        yield gauge(
            "cdigen_kubelet_labels",
            "Labels of the node in the file for Node Feature Discovery; 0 while the file is not written.",
            {(): float(len(view.labels.labels) if is_written else 0)},
        )


def _resource_metrics(view: KubeletPluginStatus) -> Iterator[Metric]:
    yield gauge(
        "cdigen_kubelet_registered",
        "Whether the resource is registered with the kubelet.",
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
        "Devices that are advertised to the kubelet, by health.",
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
        "Devices that containers have, according to the kubelet.",
        {(one.resource.name,): float(allocated(one.resource, view.pods) or 0) for one in view.served},
        "resource",
    )
    names = {one.resource.name for one in view.served}
    rows = Counter(
        (pod.resource, display_id(id_), pod.namespace, pod.pod, pod.container)
        for pod in view.pods
        if pod.resource in names
        for id_ in pod.ids
    )
    yield gauge(
        "cdigen_kubelet_pod_device",
        "1 for each device of a container, according to the kubelet; for GPU memory, the number of units.",
        {row: float(count) for row, count in islice(rows.items(), MAX_POD_SERIES)},
        "resource",
        "device",
        "namespace",
        "pod",
        "container",
    )


def _response_metrics(view: KubeletPluginStatus, counts: AllocationCounts) -> Iterator[Metric]:
    names = [one.resource.name for one in view.served]
    yield counter(
        "cdigen_kubelet_allocations",
        "Containers that got devices.",
        {(name,): float(counts.allocations[name]) for name in dict.fromkeys((*names, *counts.allocations))},
        "resource",
    )
    every = dict.fromkeys((*((name, cause) for name in names for cause in CAUSES), *counts.refused))
    yield counter(
        "cdigen_kubelet_refused",
        "Containers that were refused, by cause.",
        {key: float(counts.refused[key]) for key in every},
        "resource",
        "cause",
    )
    durations = HistogramMetricFamily("cdigen_kubelet_allocate_seconds", "Durations of Allocate requests.")
    bounds = (*(f"{bound:g}" for bound in BUCKETS), "+Inf")
    sums = map(float, accumulate(counts.durations))
    durations.add_metric([], list(zip(bounds, sums, strict=True)), counts.duration_s)
    yield durations


def _memory_metrics(state: GpuMemoryState) -> Iterator[Metric]:
    problems = {"pods": state.problem, "node": state.node_problem, "reservations": state.reservation_problem}
    yield gauge(
        "cdigen_kubelet_shared_memory_ready",
        "Whether pods can be identified, the Node object is up to date, and reservations match containers.",
        {(component,): float(not problem) for component, problem in problems.items()},
        "component",
    )
    yield gauge(
        "cdigen_kubelet_shared_memory_pods",
        "Pods of this node that request GPU memory.",
        {(): float(state.pods)},
    )
    yield gauge(
        "cdigen_kubelet_shared_memory_containers",
        "Containers that request GPU memory: served, or waiting.",
        {("served",): float(state.served), ("waiting",): float(state.waiting)},
        "state",
    )
    yield counter(
        "cdigen_kubelet_shared_memory_requests",
        "Requests of the kubelet for memory units, by outcome.",
        {(outcome,): float(count) for outcome, count in state.outcomes.items()},
        "outcome",
    )
    yield counter(
        "cdigen_kubelet_shared_memory_repaired",
        "Pods whose reservations were corrected to match their containers.",
        {(): float(state.repaired)},
    )
