"""``filter_nodes``, ``prioritize`` and ``inspect`` return results from the index.

The functions send no request to the API server. A node in the result of ``filter_nodes`` may still be full,
because only ``binding`` reads the present ledger.
"""

from __future__ import annotations

from cdigen.extender.binding import no_capacity_reason
from cdigen.extender.messages import filter_result, priority_list
from cdigen.extender.placement import place, score
from cdigen.gpushare.free_capacity import FreeCapacity
from cdigen.gpushare.pods import GpuPod, read_pod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.extender.index import Index
    from cdigen.extender.messages import ExtenderArgs
    from cdigen.extender.placement import Strategy


def filter_nodes(args: ExtenderArgs, index: Index, strategy: Strategy) -> dict[str, Any]:
    """Return the nodes of ARGS with enough free capacity, in the scheduler's format.

    Raise ValueError if ARGS have no pod.
    """
    pod = _pod(args, index)
    if not pod.request.total and not pod.request.problem:
        return filter_result(args, args.names, {}, {})
    feasible: list[str] = []
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    total = pod.request.total
    largest = pod.request.on_one_gpu or max([units for _, units in pod.request.by_container], default=0)
    for name in args.names:
        free = index.free_capacity(name, pod.uid)
        if free is None:
            failed[name] = f"{name}: not in the node list of the extender yet"
        elif (
            largest <= free.most
            and 0 < total <= free.left
            and not pod.request.problem
            and (total <= free.most or place(pod.request, free, strategy) is not None)
        ):
            feasible.append(name)
        elif pod.request.problem or largest > free.largest:
            unresolvable[name] = _reason(pod, name, index, free)
        else:
            failed[name] = _reason(pod, name, index, free)
    return filter_result(args, feasible, failed, unresolvable)


def prioritize(args: ExtenderArgs, index: Index, strategy: Strategy) -> list[dict[str, Any]]:
    """Return the score of each node of ARGS, in the scheduler's format.

    Raise ValueError if ARGS have no pod.
    """
    pod = _pod(args, index)
    capacities = {name: index.free_capacity(name, pod.uid) for name in args.names}
    scores = {name: 0 if free is None else score(free, strategy) for name, free in capacities.items()}
    return priority_list(args, scores)


def inspect(index: Index, node: str = "") -> dict[str, Any]:
    """Return the used units of NODE, or of each node with a capacity, in the format of gpushare."""
    if node and node not in index.capacities:
        return {"nodes": [], "error": f"node {node}: not found"}
    names = [node] if node else [name for name, found in sorted(index.capacities.items()) if found.capacity]
    return {"nodes": [_node(index, name) for name in names]}


def _node(index: Index, name: str) -> dict[str, Any]:
    node, free = index.capacities[name], index.free_capacity(name) or FreeCapacity()
    unhealthy, used = index.unhealthy(name), {gpu.index: 0 for gpu in node.gpus} | dict(free.used)
    by_gpu: dict[int, list[dict[str, Any]]] = {gpu.index: [] for gpu in node.gpus}
    pending: list[dict[str, Any]] = []
    for pod, reservation in index.pods_on(name):
        row = {"name": pod.name, "namespace": pod.namespace}
        for gpu, units in reservation.on:
            by_gpu.get(gpu, pending).append({**row, "usedGPU": units})
        if reservation.unplaced:
            pending.append({**row, "usedGPU": reservation.unplaced})
    return {
        "name": name,
        "totalGPU": node.capacity,
        "usedGPU": free.reserved,
        "devs": [
            {
                "id": gpu.index,
                "totalGPU": gpu.units,
                "usedGPU": used[gpu.index],
                "pods": sorted(by_gpu[gpu.index], key=lambda row: (row["namespace"], row["name"])),
                "uuid": gpu.uuid,
                "healthy": gpu.is_healthy and gpu.index not in unhealthy,
            }
            for gpu in node.gpus
        ],
        "pending": pending,
        "unschedulable": node.is_cordoned,
        "problem": node.problem,
    }


def _pod(args: ExtenderArgs, index: Index) -> GpuPod:
    pod = read_pod(args.pod, index.resources, any_request=True)
    if pod is None:
        raise ValueError("'Pod' cannot be read")
    return pod


def _reason(pod: GpuPod, name: str, index: Index, free: FreeCapacity) -> str:
    problem = index.capacities[name].problem
    return f"{name}: {problem}" if problem and not free.largest else no_capacity_reason(pod, name, free)
