"""``render``: returns the metrics of the process for Prometheus."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from cdigen.kubelet.allocation.container_response import CAUSES
from cdigen.kubelet.allocation.journal import display_id
from cdigen.kubelet.labels.label_file import WRITTEN
from cdigen.kubelet.status import REGISTERED, allocated, count_health
from cdigen.service.metrics import counter, exposition, gauge, histogram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from cdigen.kubelet.gpu_memory.node_writer import GpuMemoryState
    from cdigen.kubelet.status import KubeletPluginStatus
    from cdigen.service.durations import DurationCounts

# The limit for series of allocated units, because a node may have thousands of replicas.
MAX_POD_SERIES = 1_000


def render(view: KubeletPluginStatus, durations: DurationCounts) -> bytes:
    """Return the metrics of VIEW and the DURATIONS of requests in the text format of Prometheus."""
    return exposition(_metrics(view, durations), is_configured=view.is_configured)


def _metrics(view: KubeletPluginStatus, durations: DurationCounts) -> Iterator[Metric]:
    """Yield the metrics; counters of a resource also exist with the value 0."""
    yield gauge(
        "cdigen_kubelet_stale",
        "Whether the last known devices are advertised, because the daemon does not update the inventory.",
        bool(view.stale),
    )
    yield from _resource_metrics(view)
    yield from _response_metrics(view)
    yield histogram("cdigen_kubelet_allocate_seconds", "Durations of Allocate requests.", durations)
    if view.shared_memory is not None:
        yield from _memory_metrics(view.shared_memory)
    if view.labels is not None:
        yield gauge(
            "cdigen_kubelet_labels",
            "Labels of the node in the file for Node Feature Discovery; 0 while the file is not written.",
            len(view.labels.labels) if view.labels.state == WRITTEN else 0,
        )


def _resource_metrics(view: KubeletPluginStatus) -> Iterator[Metric]:
    yield gauge(
        "cdigen_kubelet_registered",
        "Whether the resource is registered with the kubelet.",
        {one.resource.name: one.state == REGISTERED for one in view.served},
        "resource",
    )
    yield counter(
        "cdigen_kubelet_registrations",
        "Registrations that the kubelet accepted.",
        {one.resource.name: one.registrations for one in view.served},
        "resource",
    )
    yield gauge(
        "cdigen_kubelet_devices",
        "Devices that are advertised to the kubelet, by health.",
        {
            (one.resource.name, health): count
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
        {one.resource.name: allocated(one.resource, view.pods) or 0 for one in view.served},
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
        dict(islice(rows.items(), MAX_POD_SERIES)),
        "resource",
        "device",
        "namespace",
        "pod",
        "container",
    )


def _response_metrics(view: KubeletPluginStatus) -> Iterator[Metric]:
    names = [one.resource.name for one in view.served]
    yield counter(
        "cdigen_kubelet_allocations",
        "Containers that got devices.",
        dict.fromkeys(names, 0) | dict(view.allocations),
        "resource",
    )
    yield counter(
        "cdigen_kubelet_refused",
        "Containers that were refused, by cause.",
        {(name, cause): 0 for name in names for cause in CAUSES} | dict(view.refused),
        "resource",
        "cause",
    )


def _memory_metrics(state: GpuMemoryState) -> Iterator[Metric]:
    problems = {"pods": state.problem, "node": state.node_problem, "reservations": state.reservation_problem}
    yield gauge(
        "cdigen_kubelet_shared_memory_ready",
        "Whether pods can be identified, the Node object is up to date, and reservations match containers.",
        {component: not problem for component, problem in problems.items()},
        "component",
    )
    yield gauge("cdigen_kubelet_shared_memory_pods", "Pods of this node that request GPU memory.", state.pods)
    yield gauge(
        "cdigen_kubelet_shared_memory_containers",
        "Containers that request GPU memory: served, or waiting.",
        {"served": state.served, "waiting": state.waiting},
        "state",
    )
    yield counter(
        "cdigen_kubelet_shared_memory_requests",
        "Requests of the kubelet for memory units, by outcome.",
        state.outcomes,
        "outcome",
    )
    yield counter(
        "cdigen_kubelet_shared_memory_repaired",
        "Pods whose reservations were corrected to match their containers.",
        state.repaired,
    )
