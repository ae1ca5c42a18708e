"""The status of the plugin as a value (``PluginStatus``) and as a file (``document``).

The file is status.json. The main thread changes the status. The link's thread changes only the metrics and
the injected containers. Every thread may read the status.
"""

from __future__ import annotations

import time
from collections import deque

from cdigen.model.times.timestamps import timestamp
from cdigen.nri.injected_containers import InjectedContainers
from cdigen.service.status import header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.model.findings import Finding
    from cdigen.nri.decision.audit import AuditResult, UninjectedContainer
    from cdigen.nri.decision.result.compat import Abilities
    from cdigen.nri.events import ContainerDecided
    from cdigen.nri.shared_state import NriMetrics
    from cdigen.service.status import ServiceProcess

CONNECTING, REGISTERING, REGISTERED = ("connecting", "registering", "registered")
MAX_JOURNAL = 20
MAX_UNINJECTED = 50
# The keys and types of the values that ``cdigen status`` shows, in addition to ``service.status.header``.
PARTS = {
    "reason": str,
    "uninjected_count": int,
    "runtime": dict,
    "counts": dict,
    "refused": dict,
    "problems": list,
}


class PluginStatus:
    """The state of the plugin, with its runtime, its problems and the last containers."""

    def __init__(self, metrics: NriMetrics, injected: InjectedContainers | None = None) -> None:
        self.metrics = metrics
        self.injected = injected or InjectedContainers()
        self.state = CONNECTING
        self.started_s = self.since_s = time.time()
        self.reason = ""
        self.abilities: Abilities | None = None
        self.uninjected: tuple[UninjectedContainer, ...] = ()
        self.uninjected_count = 0
        self.is_audit_complete = True
        self.problems: tuple[Finding, ...] = ()
        # The last containers that got devices or were refused, as entries for the document.
        self.journal: deque[dict[str, Any]] = deque(maxlen=MAX_JOURNAL)

    @property
    def runtime(self) -> str:
        """The name and version of the runtime, or "no runtime" before Configure."""
        abilities = self.abilities
        return f"{abilities.runtime} {abilities.version}".strip() if abilities else "no runtime"

    def set_state(self, state: str, reason: str = "") -> None:
        """Set STATE and its REASON."""
        if state != self.state:
            self.state, self.since_s = state, time.time()
        self.reason = reason

    def summary(self) -> str:
        """Return the state in one line."""
        if self.state == REGISTERED:
            counts = self.metrics.outcomes
            return f"registered with {self.runtime}, {counts['inject']} injected, {counts['refuse']} refused"
        return f"{self.state}; {self.reason}" if self.reason else self.state

    def reason_unready(self) -> str:
        """Return the reason why the plugin is not registered, or ""."""
        if self.state == REGISTERED:
            return ""
        return self.reason or "the runtime has not registered the plugin yet"

    def set_audit(self, found: AuditResult) -> None:
        """Set the result of the last audit."""
        self.uninjected, self.uninjected_count = found.uninjected[:MAX_UNINJECTED], len(found.uninjected)
        self.is_audit_complete = found.is_complete

    def add_container(self, event: ContainerDecided) -> None:
        """Add EVENT to the journal if devices were injected or the container was refused."""
        result = event.result
        if result.outcome in {"inject", "refuse"}:
            self.journal.append(
                {
                    "at": timestamp(time.time()),
                    **event.name.row(),
                    "outcome": result.outcome,
                    "devices": list(result.devices[:MAX_JOURNAL]),
                    "cause": result.cause,
                    "reason": result.reason,
                }
            )


def document(status: PluginStatus, process: ServiceProcess) -> dict[str, Any]:
    """Return STATUS as the JSON document of status.json."""
    abilities, metrics = status.abilities, status.metrics
    return {
        **header(process, state=status.state, since_s=status.since_s, started_s=status.started_s),
        "reason": status.reason,
        "runtime": {}
        if abilities is None
        else {
            "name": abilities.runtime,
            "version": abilities.version,
            "nri": ".".join(map(str, abilities.nri)),
            "cdi": abilities.cdi,
            "validates": abilities.validates,
            "remedy": abilities.remedy,
        },
        "connections": metrics.connections,
        "counts": dict(metrics.outcomes),
        "refused": _nonzero(metrics.refusals),
        "ignored_requests": _nonzero(metrics.ignored_requests),
        "validations": dict(metrics.validations),
        "uninjected_count": status.uninjected_count,
        "audit_complete": status.is_audit_complete,
        "uninjected_containers": [
            {**container.name.row(), "devices": list(container.devices), "reason": container.reason}
            for container in status.uninjected
        ],
        "injected_containers": [
            {
                "id": container.id,
                **container.name.row(),
                "devices": list(container.devices),
                "at": None if container.at_s is None else timestamp(container.at_s),
            }
            for container in status.injected.containers()
        ],
        "problems": [finding.row() for finding in status.problems],
        "journal": list(status.journal),
    }


def _nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
