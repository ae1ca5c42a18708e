"""The status of the process (``KubeletPluginStatus``), and its form in status.json (``document``)."""

from __future__ import annotations

from types import MappingProxyType

from cdigen.config import RULE
from cdigen.kubelet.allocation.journal import MAX_JOURNAL, display_id, entries
from cdigen.kubelet.resources.model import NVIDIA_RULE
from cdigen.model.strict import as_json
from cdigen.model.times.timestamps import timestamp
from cdigen.service.status import header
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.kubelet.allocation.journal import Allocation, AllocationEntry
    from cdigen.kubelet.gpu_memory.node_writer import GpuMemoryState
    from cdigen.kubelet.labels.label_file import LabelState
    from cdigen.kubelet.pods import PodDevices
    from cdigen.kubelet.resources.model import Resource, Unit
    from cdigen.model.findings import Finding
    from cdigen.service.status import ServiceProcess

# The states of the whole process. The process is idle if there is no resource to register.
REGISTERED, REGISTERING, WAITING, IDLE = ("registered", "registering", "waiting", "idle")
# The largest number of entries in ``devices`` of one resource. The counts include all devices.
MAX_UNITS = 1_000
_NO_ALLOCATIONS: Mapping[str, int] = MappingProxyType({})
_NO_REFUSED: Mapping[tuple[str, str], int] = MappingProxyType({})
HEALTHS = ("healthy", "unhealthy", "unknown")
# The members that ``cdigen status`` reads in addition to the header.
PARTS = {"reason": str, "stale": list, "resources": list, "problems": list, "journal": list}
# The rules of findings on an invalid configuration of cdigen, or an invalid file of NVIDIA.
_CONFIGURATIONS = frozenset({RULE, NVIDIA_RULE})


@frozen
class RegisteredResource:
    """A resource with its registration.

    ``state`` and ``reason`` are from the module ``registration``. If ``is_confirmed`` is set, the kubelet has
    shown the devices of the resource. ``registrations`` is the number of accepted registrations.
    """

    resource: Resource
    state: str
    since_s: float
    reason: str = ""
    is_confirmed: bool = False
    registrations: int = 0


@frozen
class KubeletPluginStatus:
    """The status of the process at one moment. Times are Unix times.

    ``stale`` are the reasons why the last known devices are advertised. For example, the daemon does not run,
    or its inventory is from another driver. ``pods`` are the devices of containers, or None if the kubelet
    returned no list. ``idle_reason`` is the reason why no resource is advertised, or "". ``allocations``
    counts the allocations by resource. ``refused`` counts the refusals by resource and cause.
    ``shared_memory`` is the state of GPU memory sharing, and ``labels`` is the state of the file of node
    labels. Each of these states is None if the feature is not configured.
    """

    started_s: float
    kubelet_dir: str
    served: tuple[RegisteredResource, ...] = ()
    stale: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()
    journal: tuple[Allocation, ...] = ()
    pods: tuple[PodDevices, ...] | None = None
    idle_reason: str = ""
    allocations: Mapping[str, int] = _NO_ALLOCATIONS
    refused: Mapping[tuple[str, str], int] = _NO_REFUSED
    shared_memory: GpuMemoryState | None = None
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
        """Whether the configuration on the disk is valid and active."""
        return all(one.severity != "error" or one.rule not in _CONFIGURATIONS for one in self.problems)

    @property
    def reason(self) -> str:
        """The reason why a resource is not registered, or why no resource is advertised, or ""."""
        if not self.served:
            return self.idle_reason
        pending = [one for one in self.served if one.state != REGISTERED]
        return f"{pending[0].resource.name}: {pending[0].reason or pending[0].state}" if pending else ""


def document(view: KubeletPluginStatus, process: ServiceProcess) -> dict[str, Any]:
    """Return the content of status.json for VIEW."""
    since_s = max([view.started_s, *(one.since_s for one in view.served)])
    common = header(process, state=view.state, since_s=since_s, started_s=view.started_s)
    # status.json does not contain the allocations of other plugins.
    ours = {one.resource.name for one in view.served} | {one.resource for one in view.journal}
    pods = None if view.pods is None else [pod for pod in view.pods if pod.resource in ours]
    rows = entries(view.journal, pods)[-MAX_JOURNAL:]
    return {
        **common,
        "reason": view.reason,
        "kubelet_dir": view.kubelet_dir,
        "stale": list(view.stale),
        "resources": [_resource(one, view) for one in view.served],
        "shared_memory": as_json(view.shared_memory),
        "labels": _labels(view.labels),
        "problems": [finding.row() for finding in view.problems],
        "journal": [_entry(row) for row in rows],
    }


def count_health(resource: Resource) -> dict[str, int]:
    """Return the number of units of RESOURCE by health."""
    counts = dict.fromkeys(HEALTHS, 0)
    for unit in resource.units:
        counts[unit.health] += 1
    return counts


def allocated(resource: Resource, pods: tuple[PodDevices, ...] | None) -> int | None:
    """Return the number of units of RESOURCE that containers have, or None if PODS is None."""
    if pods is None:
        return None
    return len({id_ for pod in pods if pod.resource == resource.name for id_ in pod.ids})


def _resource(one: RegisteredResource, view: KubeletPluginStatus) -> dict[str, Any]:
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
        "allocations": view.allocations.get(one.resource.name, 0),
        "refused": {
            cause: count
            for (name, cause), count in view.refused.items()
            if name == one.resource.name and count
        },
        "devices": _devices(one.resource.units),
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
    """Return the entries of ``devices`` for UNITS, with a single entry for all memory units of a GPU.

    An entry of memory units is healthy if at least one unit is healthy.
    """
    rows: dict[str, dict[str, Any]] = {}
    for unit in units:
        id_ = display_id(unit.id)
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


def _entry(row: AllocationEntry) -> dict[str, Any]:
    done, pod = row.allocation, row.pod
    ids = done.ids if done else pod.ids if pod else ()
    return {
        "at": timestamp(done.at_s) if done else "",
        "state": row.state,
        "resource": done.resource if done else pod.resource if pod else "",
        "devices": list(dict.fromkeys(map(display_id, ids))),
        "units": (done.count if done else 0) or len(ids),
        "names": list(done.names) if done else [],
        "namespace": pod.namespace if pod else "",
        "pod": pod.pod if pod else "",
        "container": pod.container if pod else "",
        "cause": done.cause if done else "",
        "reason": done.reason if done else "",
    }
