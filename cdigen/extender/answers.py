"""What the scheduler and people ask, answered from the index: ``filter_nodes``, ``prioritize``, ``inspect``.

No request to the API server is made for any of them. What filter says is a hint: ``binding`` decides.
"""

from __future__ import annotations

from cdigen.extender.binding import no_room
from cdigen.extender.messages import filtered, scored
from cdigen.extender.placement import place, score
from cdigen.gpushare.pods import Pod, read_pod
from cdigen.gpushare.room import Room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.extender.index import Index
    from cdigen.extender.messages import Filter
    from cdigen.extender.placement import Strategy


def filter_nodes(asked: Filter, index: Index, strategy: Strategy) -> dict[str, Any]:
    """Return which of the nodes ASKED for have room, as the scheduler reads it; ValueError: no pod."""
    pod = _pod(asked, index)
    if not pod.ask.total and not pod.ask.problem:
        return filtered(asked, asked.names, {}, {})
    good: list[str] = []
    failed: dict[str, str] = {}
    hopeless: dict[str, str] = {}
    total = pod.ask.total
    largest = pod.ask.together or max([units for _, units in pod.ask.shares], default=0)
    for name in asked.names:
        room = index.room(name, pod.uid)
        if room is None:
            failed[name] = f"{name} is not known (yet)"
        elif (
            largest <= room.most
            and 0 < total <= room.left
            and not pod.ask.problem
            and (total <= room.most or place(pod.ask, room, strategy) is not None)
        ):
            good.append(name)
        elif pod.ask.problem or largest > room.largest:
            hopeless[name] = _why(pod, name, index, room)
        else:
            failed[name] = _why(pod, name, index, room)
    return filtered(asked, good, failed, hopeless)


def prioritize(asked: Filter, index: Index, strategy: Strategy) -> list[dict[str, Any]]:
    """Return how good each of the nodes ASKED for is, as the scheduler reads it; ValueError: no pod."""
    pod = _pod(asked, index)
    rooms = {name: index.room(name, pod.uid) for name in asked.names}
    scores = {name: 0 if room is None else score(room, strategy) for name, room in rooms.items()}
    return scored(asked, scores)


def inspect(index: Index, node: str = "") -> dict[str, Any]:
    """Return what is used of all nodes that offer something, or of NODE, as gpushare's extender tells it."""
    if node and node not in index.offers:
        return {"nodes": [], "error": f"the node {node} is not known"}
    names = [node] if node else [name for name, offer in sorted(index.offers.items()) if offer.capacity]
    return {"nodes": [_node(index, name) for name in names]}


def _node(index: Index, name: str) -> dict[str, Any]:
    offer, room = index.offers[name], index.room(name) or Room()
    sick, used = index.unhealthy(name), {gpu.index: 0 for gpu in index.offers[name].gpus} | dict(room.used)
    by_gpu: dict[int, list[dict[str, Any]]] = {gpu.index: [] for gpu in offer.gpus}
    pending: list[dict[str, Any]] = []
    for pod, claim in index.pods_on(name):
        row = {"name": pod.name, "namespace": pod.namespace}
        for gpu, units in claim.on:
            by_gpu.get(gpu, pending).append({**row, "usedGPU": units})
        if claim.floating:
            pending.append({**row, "usedGPU": claim.floating})
    return {
        "name": name,
        "totalGPU": offer.capacity,
        "usedGPU": sum(used.values()) + room.floating,
        "devs": [
            {
                "id": gpu.index,
                "totalGPU": gpu.units,
                "usedGPU": used[gpu.index],
                "pods": sorted(by_gpu[gpu.index], key=lambda row: (row["namespace"], row["name"])),
                "uuid": gpu.uuid,
                "healthy": gpu.is_healthy and gpu.index not in sick,
            }
            for gpu in offer.gpus
        ],
        "pending": pending,
        "unschedulable": offer.is_cordoned,
        "problem": offer.problem,
    }


def _pod(asked: Filter, index: Index) -> Pod:
    pod = read_pod(asked.pod, index.resources, is_any=True)
    if pod is None:
        raise ValueError("'Pod' cannot be read")
    return pod


def _why(pod: Pod, name: str, index: Index, room: Room) -> str:
    problem = index.offers[name].problem
    return f"{name}: {problem}" if problem and not room.largest else no_room(pod, name, room)
