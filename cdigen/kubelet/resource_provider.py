"""``ResourceProvider``: the interface through which the process gets the resources of the host."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, Protocol

    from cdigen.kubelet.journal import Allocation
    from cdigen.kubelet.labels.label_file import LabelState
    from cdigen.kubelet.labels.label_values import Label
    from cdigen.kubelet.listing import ResourceStatus
    from cdigen.kubelet.plugin_config import KubeletPluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Allocator
    from cdigen.model.findings import Finding
    from cdigen.service.host_state import HostState
    from cdigen.service.status import ServiceProcess

    class ResourceProvider(Protocol):
        """Computes the resources of the host."""

        def connect(
            self, list_pods: Callable[[float], Awaitable[PodList]], on_allocate: Callable[[], object]
        ) -> None:
            """Set LIST_PODS, which runs in the link's loop, and ON_ALLOCATE, called after each request."""

        def configure(self, config: KubeletPluginConfig, problems: tuple[Finding, ...]) -> None:
            """Use CONFIG from the next call of ``resources``; PROBLEMS are findings on configurations."""

        def resources(self, host: HostState) -> Iterable[tuple[Resource, Allocator]] | None:
            """Return the resources of HOST with their allocators, or None to keep the present resources."""

        def has_changed(self) -> bool:
            """Return whether ``resources`` would return another result for the same host."""

        def findings(self) -> tuple[Finding, ...]:
            """Return the findings on the host, as of the last call of ``resources``."""

        def stale(self) -> tuple[str, ...]:
            """Return the reasons why the last known host state is used, or () if the state is current."""

        def new_allocations(self) -> Iterable[Allocation]:
            """Return the results of requests since the last call."""

        def set_pods(self, found: PodList | None) -> None:
            """Set the kubelet's list of pods, or None if the kubelet returned no list."""

        def set_statuses(self, statuses: tuple[ResourceStatus, ...], problems: Mapping[str, str]) -> None:
            """Set the statuses of the resources; PROBLEMS maps a resource to its problem."""

        def labels(self) -> tuple[Label, ...] | None:
            """Return the labels of the node, or None if the node's devices are unknown."""

        def set_labels(self, state: LabelState | None) -> None:
            """Set the state of the file of node labels, or None if there is no file."""

        def document(self, process: ServiceProcess) -> Mapping[str, Any]:
            """Return the content of status.json."""

        def reason_unready(self) -> str:
            """Return the reason why a resource is not registered, or why none is advertised, or ""."""

        def metrics(self) -> Callable[[], bytes]:
            """Return a function that renders the metrics for Prometheus."""

        def stop(self) -> None:
            """Stop background threads; do not wait for their end."""
