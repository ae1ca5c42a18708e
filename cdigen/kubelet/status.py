"""The process's status: ``View`` is all that is known of it, ``document`` what status.json says. Pure."""

from __future__ import annotations

from types import MappingProxyType

from cdigen.config import RULE
from cdigen.frontend import status as files
from cdigen.frontend.status import header
from cdigen.kubelet import journal
from cdigen.kubelet.resources.model import NVIDIA_RULE
from cdigen.model.timestamps import timestamp
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.frontend.status import Process
    from cdigen.kubelet.journal import Allocation, Entry
    from cdigen.kubelet.labels.keeper import LabelState
    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.kubelet.shares.state import SharesState
    from cdigen.model.findings import Finding

SCHEMA = 1
# Of the whole process: without devices there is nothing to register.
REGISTERED, REGISTERING, WAITING, IDLE = ("registered", "registering", "waiting", "idle")
# Of a process that was killed, and has not taken its file away: who reads the file sees that.
ENDED = "ended"
MAX_JOURNAL = 100
# Of one resource; the numbers count all.
MAX_UNITS = 1_000
_NO_GIVEN: Mapping[str, int] = MappingProxyType({})
_NO_REFUSED: Mapping[tuple[str, str], int] = MappingProxyType({})
HEALTHS = ("healthy", "unhealthy", "unknown")
# What ``cdigen status`` shows of the document besides its header.
_PARTS = {"reason": str, "stale": list, "resources": list, "problems": list, "journal": list}
# The rules of findings that a configuration is wrong: cdigen's own, NVIDIA's.
_CONFIGURATIONS = frozenset({RULE, NVIDIA_RULE})


@frozen
class Served:
    """A resource as the kubelet has it: the ``state`` of its registration (``registration``), and why.

    ``is_confirmed``: the kubelet has shown our devices. ``registrations`` counts those that it accepted.
    """

    resource: Resource
    state: str
    since_s: float
    reason: str = ""
    is_confirmed: bool = False
    registrations: int = 0


@frozen
class View:
    """What is known of the process at one moment; times are Unix times.

    ``stale`` are the reasons why the devices' last known state counts, as the daemon does not run or its
    inventory is another driver's. ``pods`` is what containers have, None where the kubelet does not tell.
    ``why_idle`` is why nothing is offered, "" where there is nothing. ``given`` and ``refused`` count answers
    by resource, refusals by cause as well. ``shares`` is how shares by memory stand, ``labels`` how the file
    of the node's labels does; None where there are none.
    """

    started_s: float
    kubelet_dir: str
    served: tuple[Served, ...] = ()
    stale: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    pods: tuple[PodDevices, ...] | None = None
    why_idle: str = ""
    given: Mapping[str, int] = _NO_GIVEN
    refused: Mapping[tuple[str, str], int] = _NO_REFUSED
    shares: SharesState | None = None
    labels: LabelState | None = None

    @property
    def state(self) -> str:
        """The state of the whole process."""
        states = {one.state for one in self.served}
        if not states:
            return IDLE
        if states == {REGISTERED}:
            return REGISTERED
        return WAITING if states == {WAITING} else REGISTERING

    @property
    def is_configured(self) -> bool:
        """Whether all that the configuration on the disk says counts."""
        return all(one.severity != "error" or one.rule not in _CONFIGURATIONS for one in self.problems)

    @property
    def reason(self) -> str:
        """Why not everything is registered, of the first resource that is not, or why nothing is offered."""
        if not self.served:
            return self.why_idle
        pending = [one for one in self.served if one.state != REGISTERED]
        return f"{pending[0].resource.name}: {pending[0].reason or pending[0].state}" if pending else ""


def document(view: View, process: Process) -> dict[str, Any]:
    """Return what VIEW shows as the JSON document of status.json."""
    since_s = max([view.started_s, *(one.since_s for one in view.served)])
    common = header(process, schema=SCHEMA, state=view.state, since_s=since_s, started_s=view.started_s)
    # What other plugins give is theirs.
    ours = {one.resource.name for one in view.served} | {one.resource for one in view.allocations}
    pods = None if view.pods is None else [pod for pod in view.pods if pod.resource in ours]
    rows = journal.entries(view.allocations, pods)[-MAX_JOURNAL:]
    return {
        **common,
        "reason": view.reason,
        "kubelet_dir": view.kubelet_dir,
        "stale": list(view.stale),
        "resources": [_resource(one, view) for one in view.served],
        "shares": _shares(view.shares),
        "labels": _labels(view.labels),
        "problems": [finding.row() for finding in view.problems],
        "journal": [_entry(row) for row in rows],
    }


def read(run_dir: str) -> dict[str, Any] | None:
    """Return the document in RUN_DIR, None where there is none, or it is of another version.

    The state of a process that was killed is ENDED, and its reason tells by what that is seen.
    """
    try:
        found = files.read_status(run_dir, schema=SCHEMA, parts=_PARTS)
    except ValueError:
        return None
    if found is not None and (problem := files.reason_not_running(run_dir, found)):
        return {**found, "state": ENDED, "reason": problem}
    return found


def count_health(resource: Resource) -> dict[str, int]:
    """Return how many units of RESOURCE are in each state of health."""
    counts = dict.fromkeys(HEALTHS, 0)
    for unit in resource.units:
        counts[unit.health] += 1
    return counts


def allocated(resource: Resource, pods: tuple[PodDevices, ...] | None) -> int | None:
    """Return how many units of RESOURCE containers have, None where the kubelet does not tell."""
    if pods is None:
        return None
    return len({id_ for pod in pods if pod.resource == resource.name for id_ in pod.ids})


def _resource(one: Served, view: View) -> dict[str, Any]:
    return {
        "resource": one.resource.name,
        "state": one.state,
        "since": timestamp(one.since_s),
        "reason": one.reason,
        "confirmed": one.is_confirmed,
        "registrations": one.registrations,
        "count": len(one.resource.units),
        "health": count_health(one.resource),
        "allocated": allocated(one.resource, view.pods),
        "given": view.given.get(one.resource.name, 0),
        "refused": {
            cause: count
            for (name, cause), count in view.refused.items()
            if name == one.resource.name and count
        },
        "devices": _devices(one.resource.units),
    }


def _shares(one: SharesState | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "node": one.node,
        "problem": one.problem,
        "node_problem": one.node_problem,
        "promise_problem": one.promise_problem,
        "pods": one.pods,
        "served": one.served,
        "waiting": one.waiting,
        "outcomes": dict(one.outcomes),
        "repaired": one.repaired,
    }


def _labels(one: LabelState | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "file": one.file,
        "state": one.state,
        "reason": one.reason,
        "hint": one.hint,
        "until": timestamp(one.expires_s) if one.expires_s else "",
        "labels": dict(one.labels),
        "left_out": one.left_out,
    }


def _devices(units: tuple[Unit, ...]) -> list[dict[str, Any]]:
    """Return the rows of UNITS; units of a GPU's memory are one row, healthy where one of them is."""
    rows: dict[str, dict[str, Any]] = {}
    for unit in units:
        id_ = journal.shown_id(unit.id)
        row = rows.get(id_)
        if row is None and len(rows) < MAX_UNITS:
            rows[id_] = _unit(unit, id_)
        elif row is not None:
            row["units"] += 1
            row["health"] = unit.health if row["health"] == "unhealthy" else row["health"]
    return list(rows.values())


def _unit(unit: Unit, id_: str) -> dict[str, Any]:
    device = unit.partition or unit.accelerator
    return {
        "device": id_,
        "units": 1,
        "health": unit.health,
        "causes": [cause.cause for cause in device.causes],
        "numa_node": unit.numa,
        "names": list(unit.cdi_names),
    }


def _entry(row: Entry) -> dict[str, Any]:
    done, pod = row.allocation, row.pod
    ids = done.ids if done else pod.ids if pod else ()
    return {
        "at": timestamp(done.at_s) if done else "",
        "state": row.state,
        "resource": done.resource if done else pod.resource if pod else "",
        "devices": list(dict.fromkeys(map(journal.shown_id, ids))),
        "units": (done.count if done else 0) or len(ids),
        "names": list(done.names) if done else [],
        "namespace": pod.namespace if pod else "",
        "pod": pod.pod if pod else "",
        "container": pod.container if pod else "",
        "cause": done.cause if done else "",
        "reason": done.reason if done else "",
    }
