"""Checks of the devices of a node of Kubernetes: registered, offered, given.

By what ``cdigen kubelet`` says of itself (status.json), and the kubelet's own record, which is read as a
hint: it is another program's.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from cdigen.doctor import kubelet_checkpoint
from cdigen.doctor.driver import CAUSES
from cdigen.doctor.kubelet import PLUGIN, REACHED, TOPIC, for_nodes, see
from cdigen.doctor.kubelet_neighbours import NEIGHBOUR
from cdigen.doctor.kubelet_sockets import kind_of
from cdigen.doctor.loading import MISSING
from cdigen.doctor.others import RUNNING, is_enabled
from cdigen.doctor.result import Remedy, listed
from cdigen.host.root import shown
from cdigen.runtimes.daemon_service import UNIT as DAEMON_UNIT
from cdigen.runtimes.daemon_service import service_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubelet_checkpoint import Checkpoint, Held
    from cdigen.doctor.result import CheckResult

REGISTERED, DEVICES = "kubelet-registered", "kubelet-devices"
STALE, RECORD, REFUSED = "kubelet-stale-resource", "kubelet-checkpoint", "kubelet-refused"
# A registration takes one second, and is proven in five.
_SOON = timedelta(seconds=30)
_RECENT = timedelta(minutes=10)
# A pod's folder below the kubelet's: its UID, or of static pods a hash.
_UID = re.compile(r"[0-9a-f-]{32,36}")


def _registered(context: Context) -> Iterator[CheckResult]:
    """Report each resource that the kubelet does not have from us."""
    node = context.node
    if node.status is None:
        return
    well = []
    for row in node.resources:
        name, state, reason = (shown(str(row.get(key, ""))) for key in ("resource", "state", "reason"))
        because = (*REACHED, NEIGHBOUR)
        if state == "registered":
            confirmed = "" if row.get("confirmed") else ", which the kubelet does not show"
            well.append(f"{name} since {shown(str(row.get('since')))}{confirmed}")
        elif state == "taken":
            text = f"{name}: another device plugin has registered it, so cdigen does not"
            yield TOPIC.error(REGISTERED, see(text, 7), because=because)
        elif _age(context, row) < _SOON and state != "waiting":
            well.append(f"{name} is being registered")
        else:
            text = f"{name} is not registered with the kubelet: {reason or state}"
            yield TOPIC.error(REGISTERED, see(text, 6), because=because)
    if well:
        yield TOPIC.good(REGISTERED, f"the kubelet has {listed(well)}")


def _age(context: Context, row: Mapping[str, Any], key: str = "since") -> timedelta:
    """Return how long ago ROW's time is; long with --root, where it is of another day."""
    try:
        then = datetime.fromisoformat(str(row.get(key)))
        return datetime.now(UTC) - then if context.is_live else timedelta.max
    except (ValueError, TypeError):
        return timedelta.max


def _devices(context: Context) -> Iterator[CheckResult]:
    """Report where the host has devices and the kubelet is told of none, or of those of earlier."""
    node = context.node
    if node.status is None:
        return
    start = _start_daemon(context)
    because = (PLUGIN, RUNNING, MISSING, *CAUSES)
    count = sum(_number(row.get("count")) for row in node.resources)
    usable = sum(gpu.usable for inventory in context.inventories.values() for gpu in inventory.accelerators)
    stale = [str(why) for why in node.status["stale"]]
    if stale:
        by = "" if start else f"; {service_of(context.host).started()}"
        text = f"what is offered is the last known state, not the present one: {shown(listed(stale))}{by}"
        is_error = not count and bool(usable)
        yield TOPIC.failed(DEVICES, see(text, 9), start, because, is_error=is_error)
    elif usable and not count and not context.configuration.kubelet.ignore:
        text = f"the driver has {usable} devices, and the kubelet is offered none"
        why = shown(
            listed(str(row.get("message")) for row in node.status["problems"] if isinstance(row, dict))
        )
        yield TOPIC.error(DEVICES, see(f"{text}{f': {why}' if why else ''}", 9), because=because)
    else:
        told = [f"{_number(row.get('count'))} of {shown(row['resource'])}" for row in node.resources]
        yield TOPIC.good(
            DEVICES, f"the kubelet is offered {listed(told) or 'nothing, as the host has nothing'}"
        )
    ill = [shown(f"{row['resource']} ({n})") for row in node.resources if (n := _ill(row))]
    if ill:
        text = f"unhealthy, so that no pod gets them: {listed(ill)}; 'cdigen health' has the causes"
        yield TOPIC.warning(DEVICES, see(text, 9), because=("device-health",))


def _ill(row: Mapping[str, Any]) -> int:
    health = row.get("health")
    return _number(health.get("unhealthy")) if isinstance(health, dict) else 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _start_daemon(context: Context) -> tuple[Remedy, ...]:
    status, problem = context.request.daemon()
    if (status is not None and not problem) or not is_enabled(context, DAEMON_UNIT):
        return ()
    return (Remedy(argv=("systemctl", "restart", DAEMON_UNIT), why="cdigen's daemon looks at devices again"),)


def _stale(context: Context) -> Iterator[CheckResult]:
    """Report resources in the kubelet's record that no plugin serves any more."""
    node, record = context.node, context.node.checkpoint
    if record is None or record.problem or node.kubelet is None or node.is_hidden:
        return
    served = {row["resource"] for row in node.resources}
    served |= {one.resource for one in node.others}
    unnamed = [one for one in node.others if not one.resource]
    # Plugins of other devices may have their sockets elsewhere.
    gone = [name for name, _ in record.registered if name not in served and kind_of(name)]
    if not gone or unnamed:
        yield TOPIC.good(STALE, "every resource of the kubelet's record has a plugin, as far as can be seen")
        return
    text = (
        f"no plugin serves {shown(listed(gone))} any more: the node's capacity has it for five minutes "
        "with 0 "
        "allocatable, and for good where the kubelet was restarted meanwhile; pods that ask for it stay "
        "pending"
    )
    yield TOPIC.warning(STALE, see(text, 10), because=(PLUGIN, REGISTERED))


def _record(context: Context) -> Iterator[CheckResult]:
    """Report what the kubelet's record of given devices means for containers that start again."""
    node, record = context.node, context.node.checkpoint
    if node.kubelet is None:
        return
    path = shown(f"{node.plugins}/{kubelet_checkpoint.NAME}")
    if node.is_hidden or (record and record.is_closed):
        yield TOPIC.unchecked(RECORD, f"only root may read {path}")
        return
    if record is None:
        if any(row.get("state") == "registered" for row in node.resources) and node.is_live:
            text = (
                f"{path} is gone: the kubelet no longer knows which devices pods have. They go on, and "
                "after a "
                "restart run without, or share one with another pod: delete the pods that have devices"
            )
            yield TOPIC.warning(RECORD, see(text, 11))
        else:
            yield TOPIC.good(RECORD, "the kubelet has no record of devices yet")
        return
    if record.problem:
        text = (
            f"{path} is not as the kubelet writes it: {record.problem}. It starts without, and pods that "
            "have "
            "devices are to be deleted then"
        )
        yield TOPIC.warning(RECORD, see(text, 11))
        return
    lost = _lost(context, record)
    if lost:
        pods = listed(f"{one.pod}, {one.container}: {listed(one.ids)} of {one.resource}" for one in lost)
        text = (
            f"containers have devices that are gone, and fail when they start again: {shown(pods)}. "
            "Delete these "
            "pods: 'kubectl get pods --all-namespaces --output yaml' has their uid"
        )
        yield TOPIC.warning(RECORD, see(text, 12), because=(DEVICES, *CAUSES))
    else:
        yield TOPIC.good(RECORD, f"the kubelet's record has {len(record.held)} containers with devices")


def _lost(context: Context, record: Checkpoint) -> list[Held]:
    """Return what pods of today were given of our resources and is no longer there."""
    node = context.node
    present: dict[str, set[str]] = {}
    for row in node.resources:
        rows = row.get("devices")
        ids = (
            {str(one.get("device")) for one in rows if isinstance(one, dict)}
            if isinstance(rows, list)
            else set()
        )
        # status.json has the first thousand; of more it is not known which are gone.
        if len(ids) == row.get("count"):
            present[row["resource"]] = ids
    root = node.kubelet.root_dir if node.kubelet else ""
    return [
        one
        for one in record.held
        if one.resource in present
        and not present[one.resource].issuperset(one.ids)
        # The record keeps pods that have ended until another one asks.
        and _UID.fullmatch(one.pod)
        and context.host.exists(f"{root}/pods/{one.pod}")
    ]


def _refused(context: Context) -> Iterator[CheckResult]:
    """Report pods that were refused a short time ago."""
    if context.node.status is None:
        return
    rows = [row for row in context.node.status["journal"] if isinstance(row, dict)]
    refused = [row for row in rows if row.get("state") == "refused" and _age(context, row, "at") < _RECENT]
    if not refused:
        yield TOPIC.good(REFUSED, f"no container was refused in the last {_RECENT.seconds // 60} minutes")
        return
    last = refused[-1]
    text = f"{len(refused)} containers were refused in the last {_RECENT.seconds // 60} minutes; the last: "
    told = shown(f"{last.get('resource')}: {last.get('reason')} ({last.get('cause')})")
    yield TOPIC.warning(REFUSED, see(f"{text}{told}. A refused pod is never tried again: delete it", 13))


CHECKS = tuple(map(for_nodes, (_registered, _devices, _stale, _record, _refused)))
