"""What the process needs of whoever makes resources of the host: ``Offering``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, Protocol

    from cdigen.frontend.host_state import HostState
    from cdigen.frontend.status import Process
    from cdigen.kubelet.journal import Allocation
    from cdigen.kubelet.labels.keeper import LabelState
    from cdigen.kubelet.labels.words import Label
    from cdigen.kubelet.listing import ResourceStatus
    from cdigen.kubelet.plugin_config import PluginConfig
    from cdigen.kubelet.pods import PodList
    from cdigen.kubelet.resources.model import Resource
    from cdigen.kubelet.wire.server import Answers
    from cdigen.model.findings import Finding

    class Offering(Protocol):
        """What is made of the host."""

        def connect(self, ask: Callable[[float], Awaitable[PodList]], given: Callable[[], object]) -> None:
            """Take how to ASK in the link's loop what containers have, and whom to tell of each answer."""

        def configure(self, config: PluginConfig, problems: tuple[Finding, ...]) -> None:
            """Offer by CONFIG from the next ``resources`` on; PROBLEMS are what is wrong with it."""

        def resources(self, host: HostState) -> Iterable[tuple[Resource, Answers]] | None:
            """Return what HOST offers, and who answers for each; None: nothing else than before."""

        def has_changed(self) -> bool:
            """Return whether ``resources`` would say something else of the same host."""

        def findings(self) -> tuple[Finding, ...]:
            """Return what there is to say of the host, as of the last ``resources``."""

        def stale(self) -> tuple[str, ...]:
            """Return why it is the host's last known state that counts, as of the last ``resources``."""

        def answers(self) -> Iterable[Allocation]:
            """Return what became of requests since the last call."""

        def set_pods(self, found: PodList | None) -> None:
            """Take what containers have, None: the kubelet does not tell."""

        def set_statuses(self, statuses: tuple[ResourceStatus, ...], problems: Mapping[str, str]) -> None:
            """Take how the resources are, and PROBLEMS by resource."""

        def labels(self) -> tuple[Label, ...] | None:
            """Return the node's labels, as of the last ``resources``; None: nobody knows what there is."""

        def set_labels(self, state: LabelState | None) -> None:
            """Take how the file of the node's labels stands, None: there is none."""

        def document(self, process: Process) -> Mapping[str, Any]:
            """Return status.json."""

        def reason_unready(self) -> str:
            """Return why pods cannot count on what the host has, "" if they can."""

        def metrics(self) -> Callable[[], bytes]:
            """Return what renders the metrics for Prometheus."""

        def stop(self) -> None:
            """End what runs beside this; nothing is waited for."""
