"""What ``status.json`` of the extender says besides its header: ``document``."""

from __future__ import annotations

from cdigen.frontend.status import header
from cdigen.model.timestamps import timestamp
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.frontend.status import Process

SCHEMA = 1
READY, WAITING = "ready", "waiting"


@frozen
class Listed:
    """A list of the API server: its ``name``, why it is not followed, "", and when it was last heard of."""

    name: str
    problem: str
    heard_s: float


@frozen
class Facts:
    """What the process knows: times in seconds since 1970, ``binds`` by how they ended."""

    started_s: float
    since_s: float
    waits_for: str
    port: int
    nodes: int
    pods: int
    total: int
    used: int
    binds: Mapping[str, int]
    lists: tuple[Listed, ...]
    problem: str = ""


def document(process: Process, facts: Facts) -> dict[str, Any]:
    """Return the status of PROCESS with FACTS."""
    state = WAITING if facts.waits_for else READY
    known = header(process, schema=SCHEMA, state=state, since_s=facts.since_s, started_s=facts.started_s)
    return {
        **known,
        "reason": facts.waits_for,
        "port": facts.port,
        "nodes": facts.nodes,
        "pods": facts.pods,
        "units": {"total": facts.total, "used": facts.used},
        "binds": dict(facts.binds),
        "lists": [
            {"list": each.name, "problem": each.problem, "heard": timestamp(each.heard_s)}
            for each in facts.lists
        ],
        "problem": facts.problem,
    }
