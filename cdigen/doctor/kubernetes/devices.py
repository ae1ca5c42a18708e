"""Checks of the devices of a Kubernetes node: other plugins, registration, advertisement and allocation.

The sources are the status.json of ``cdigen kubelet`` and the kubelet's own record. The record is only a hint,
because another program writes it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from cdigen.doctor.checks.driver import CAUSES
from cdigen.doctor.checks.other_tools import RUNNING
from cdigen.doctor.checks.specs import MISSING
from cdigen.doctor.kubernetes.kubelet import PLUGIN, REACHED, TOPIC, for_nodes, see
from cdigen.doctor.kubernetes_node import checkpoint as kubelet_checkpoint
from cdigen.doctor.kubernetes_node.sockets import kind_of
from cdigen.doctor.result import Remedy, listed
from cdigen.host.root import shown
from cdigen.runtimes.daemon_service import UNIT as DAEMON_UNIT
from cdigen.runtimes.daemon_service import service_of
from cdigen.runtimes.units import is_enabled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from cdigen.doctor.context import Context
    from cdigen.doctor.kubernetes_node.checkpoint import AllocatedContainer, Checkpoint
    from cdigen.doctor.kubernetes_node.node import KubernetesNode
    from cdigen.doctor.result import CheckResult

CONFLICT, REGISTERED, DEVICES = "kubelet-plugin-conflict", "kubelet-registered", "kubelet-devices"
STALE, RECORD, REFUSED = "kubelet-stale-resource", "kubelet-checkpoint", "kubelet-refused"
_FOREIGN = "kubectl get daemonsets --all-namespaces"
# A registration takes one second, and its confirmation takes five seconds.
_SOON = timedelta(seconds=30)
_RECENT = timedelta(minutes=10)
# The text between a device and the number of its replica in an id, as in NVIDIA's device plugin.
_REPLICA = "::"
# The name of a pod's folder below the kubelet's folder: the UID of the pod. Static pods have a hash instead.
_UID = re.compile(r"[0-9a-f-]{32,36}")


def _conflicts(context: Context) -> Iterator[CheckResult]:
    """Report other plugins for cdigen's resources, or for cdigen's devices under another resource name."""
    node = context.node
    if node.kubelet is None:
        return
    if node.is_hidden:
        yield TOPIC.skipped(CONFLICT, f"only root may read {shown(node.plugins)}")
        return
    ours = {row["resource"] for row in node.resources}
    # If another plugin has claimed a resource of cdigen, a socket without a resource in its name may belong
    # to that plugin.
    is_claimed = any(row.get("state") == "claimed-by-other" for row in node.resources)
    same = [one for one in node.other_plugins if one.resource in ours or (is_claimed and not one.resource)]
    if same:
        names = listed(f"{one.resource or 'an unknown resource'} ({one.name})" for one in same)
        text = (
            f"another device plugin serves {shown(names)} as well: the kubelet uses the plugin that "
            f"registers last. Remove one of the two; '{_FOREIGN}' lists the other plugin"
        )
        yield TOPIC.error(CONFLICT, see(text))
    kinds = _kinds(node)
    twice = [one for one in node.competing_plugins if one not in same and one.devices in kinds]
    if twice:
        text = (
            "another program also advertises the devices of cdigen kubelet: "
            f"{shown(listed(one.description for one in twice))}. Two pods may get the same device. Remove "
            f"one of the programs; '{_FOREIGN}' lists them"
        )
        yield TOPIC.warning(CONFLICT, see(text))
    if not same and not twice:
        known = listed(shown(one.name) for one in node.other_plugins)
        text = (
            f"no other device plugin serves the devices of cdigen kubelet; other plugins: {known}"
            if known
            else "no other device plugin has a socket"
        )
        yield TOPIC.passed(CONFLICT, text)


def _kinds(node: KubernetesNode) -> set[str]:
    """Return the CDI kinds of the devices in cdigen's resources.

    The name of a resource need not contain the kind.
    """
    lists = [row.get("devices") for row in node.resources]
    rows = [one for found in lists if isinstance(found, list) for one in found if isinstance(one, dict)]
    names = [name for row in rows if isinstance(row.get("names"), list) for name in row["names"]]
    kinds = {str(name).partition("=")[0] for name in names}
    return (kinds | {kind_of(row["resource"]) for row in node.resources}) - {""}


def _registered(context: Context) -> Iterator[CheckResult]:
    """Report each resource that cdigen has not registered with the kubelet."""
    node = context.node
    if node.status is None:
        return
    registered = []
    for row in node.resources:
        name, state, reason = (shown(str(row.get(key, ""))) for key in ("resource", "state", "reason"))
        because = (*REACHED, CONFLICT)
        if state == "registered":
            confirmed = "" if row.get("confirmed") else ", not confirmed by the kubelet"
            registered.append(f"{name} (since {shown(str(row.get('since')))}{confirmed})")
        elif state == "claimed-by-other":
            text = (
                f"{name}: another device plugin has registered the resource, so cdigen does not register it"
            )
            yield TOPIC.error(REGISTERED, see(text), because=because)
        elif _age(context, row) < _SOON and state != "waiting":
            registered.append(f"{name} (registration in progress)")
        else:
            text = f"{name} is not registered with the kubelet: {reason or state}"
            yield TOPIC.error(REGISTERED, see(text), because=because)
    if registered:
        yield TOPIC.passed(REGISTERED, f"registered with the kubelet: {listed(registered)}")


def _age(context: Context, row: Mapping[str, Any], key: str = "since") -> timedelta:
    """Return the age of the time at KEY in ROW.

    With --root, the result is the maximum, because the files may be old.
    """
    try:
        then = datetime.fromisoformat(str(row.get(key)))
        return datetime.now(UTC) - then if context.is_live else timedelta.max
    except (ValueError, TypeError):
        return timedelta.max


def _devices(context: Context) -> Iterator[CheckResult]:
    """Report which devices are advertised: the present devices, only the last known devices, or none.

    A node without advertised devices fails the check only if the driver has usable devices and the
    configuration ignores no devices.
    """
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
        text = f"the last known devices are advertised, not the present devices: {shown(listed(stale))}{by}"
        is_error = not count and bool(usable)
        yield TOPIC.failed(DEVICES, see(text), start, because, is_error=is_error)
    elif usable and not count and not context.configuration.kubelet.ignore:
        text = f"no device is advertised to the kubelet, although the driver has {usable} usable devices"
        reason = shown(
            listed(str(row.get("message")) for row in node.status["problems"] if isinstance(row, dict))
        )
        yield TOPIC.error(DEVICES, see(f"{text}{f': {reason}' if reason else ''}"), because=because)
    else:
        counts = [f"{_number(row.get('count'))} of {shown(row['resource'])}" for row in node.resources]
        text = f"advertised to the kubelet: {listed(counts) or 'no device, because the host has none'}"
        if shared := [shown(row["resource"]) for row in node.resources if _has_replicas(row)]:
            memory = f"replicas in {listed(shared)}: cdigen does not limit the memory of their containers"
            text = see(f"{text}; {memory}")
        yield TOPIC.passed(DEVICES, text)
    unhealthy = [shown(f"{row['resource']} ({n})") for row in node.resources if (n := _unhealthy(row))]
    if unhealthy:
        text = f"unhealthy devices, which no pod gets: {listed(unhealthy)}; 'cdigen health' lists the causes"
        yield TOPIC.warning(DEVICES, see(text), because=("device-health",))


def _has_replicas(row: Mapping[str, Any]) -> bool:
    devices = row.get("devices")
    rows = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    return any(_REPLICA in str(one.get("device")) for one in rows)


def _unhealthy(row: Mapping[str, Any]) -> int:
    health = row.get("health")
    return _number(health.get("unhealthy")) if isinstance(health, dict) else 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _start_daemon(context: Context) -> tuple[Remedy, ...]:
    status, problem = context.request.daemon()
    if (status is not None and not problem) or not is_enabled(context.host, DAEMON_UNIT):
        return ()
    return (Remedy(argv=("systemctl", "restart", DAEMON_UNIT), why="the daemon discovers the devices again"),)


def _stale(context: Context) -> Iterator[CheckResult]:
    """Report resources in the kubelet's record that no plugin serves."""
    node, record = context.node, context.node.checkpoint
    if record is None or record.problem or node.kubelet is None or node.is_hidden:
        return
    served = {row["resource"] for row in node.resources}
    served |= {one.resource for one in node.other_plugins}
    unnamed = [one for one in node.other_plugins if not one.resource]
    # The plugins of other devices may have their sockets in another folder.
    gone = [name for name in record.registered if name not in served and kind_of(name)]
    if not gone or unnamed:
        text = "every resource of the kubelet's record has a plugin, as far as this user can see"
        yield TOPIC.passed(STALE, text)
        return
    text = (
        f"no plugin serves {shown(listed(gone))}: pods that request the resource stay pending. Start 'cdigen "
        "kubelet', or correct the other plugin: the log of its pod has the reason. Without a plugin, the "
        "resource stays in the node's status with 0 allocatable until an administrator removes it"
    )
    yield TOPIC.warning(STALE, see(text), because=(PLUGIN, REGISTERED))


def _record(context: Context) -> Iterator[CheckResult]:
    """Report whether containers can start again with the devices in the kubelet's record."""
    node, record = context.node, context.node.checkpoint
    if node.kubelet is None:
        return
    path = shown(f"{node.plugins}/{kubelet_checkpoint.NAME}")
    if node.is_hidden or (record and record.is_closed):
        yield TOPIC.skipped(RECORD, f"only root may read {path}")
        return
    if record is None:
        if any(row.get("state") == "registered" for row in node.resources) and context.is_live:
            text = (
                f"{path} was removed: the kubelet has lost the devices of pods. The pods continue. "
                "Containers that restart have no devices, or share a device with another pod. Delete the "
                "pods that have devices"
            )
            yield TOPIC.warning(RECORD, see(text))
        else:
            yield TOPIC.passed(RECORD, "the kubelet has no record of devices yet")
        return
    if record.problem:
        text = (
            f"{path} has an unknown format: {record.problem}. A restarted kubelet ignores the file. After "
            "such a restart, delete the pods that have devices"
        )
        yield TOPIC.warning(RECORD, see(text))
        return
    lost = _lost(context, record)
    if lost:
        pods = listed(f"{one.pod}, {one.container}: {listed(one.ids)} of {one.resource}" for one in lost)
        text = (
            "containers have devices that no longer exist, and will fail at their next start: "
            f"{shown(pods)}. Delete these pods: 'kubectl get pods --all-namespaces --output yaml' shows "
            "their uid"
        )
        yield TOPIC.warning(RECORD, see(text), because=(DEVICES, *CAUSES))
    else:
        yield TOPIC.passed(RECORD, f"the kubelet's record has {len(record.held)} containers with devices")


def _lost(context: Context, record: Checkpoint) -> list[AllocatedContainer]:
    """Return the containers with devices that cdigen's resources no longer have; omit removed pods."""
    node = context.node
    present: dict[str, set[str]] = {}
    for row in node.resources:
        rows = row.get("devices")
        ids = (
            {str(one.get("device")) for one in rows if isinstance(one, dict)}
            if isinstance(rows, list)
            else set()
        )
        # status.json lists only the first thousand devices of a resource. If a resource has more, missing
        # devices cannot be found.
        if len(ids) == row.get("count"):
            present[row["resource"]] = ids
    root = node.kubelet.root_dir if node.kubelet else ""
    return [
        one
        for one in record.held
        if one.resource in present
        and not present[one.resource].issuperset(one.ids)
        # The record still contains ended pods until the next request to the kubelet.
        and _UID.fullmatch(one.pod)
        and context.host.exists(f"{root}/pods/{one.pod}")
    ]


def _refused(context: Context) -> Iterator[CheckResult]:
    """Report recently refused pods."""
    if context.node.status is None:
        return
    rows = [row for row in context.node.status["journal"] if isinstance(row, dict)]
    refused = [row for row in rows if row.get("state") == "refused" and _age(context, row, "at") < _RECENT]
    if not refused:
        yield TOPIC.passed(REFUSED, f"no container was refused in the last {_RECENT.seconds // 60} minutes")
        return
    last = refused[-1]
    text = f"{len(refused)} containers were refused in the last {_RECENT.seconds // 60} minutes; the last: "
    refusal = shown(f"{last.get('resource')}: {last.get('reason')} ({last.get('cause')})")
    yield TOPIC.warning(
        REFUSED, see(f"{text}{refusal}. The kubelet never retries a refused pod: delete the pod")
    )


CHECKS = tuple(map(for_nodes, (_conflicts, _registered, _devices, _stale, _record, _refused)))
