"""``document`` returns the ``status.json`` of the extender."""

from __future__ import annotations

from cdigen.model.times.timestamps import timestamp
from cdigen.service.status import header
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.service.status import ServiceProcess

READY, WAITING = "ready", "waiting"


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
