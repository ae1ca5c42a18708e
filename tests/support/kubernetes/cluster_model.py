"""A model of the API server for binds: `Cluster` has objects, versions, and a log of events.

Like kube-apiserver, it responds with the status 409 if a resourceVersion or UID differs, if an object exists
already, or if a pod is bound already.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from support.kubernetes.gpu_memory_pods import RESOURCES

from cdigen.extender.index import Index
from cdigen.gpushare.pods import read_pod
from cdigen.gpushare.reservations import ANNOTATION_KEYS, read_placement, reservation_of
from cdigen.kubeapi.calls import Call, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")
Objects = dict[str, dict[str, Any]]


class Cluster:
    """Pods, nodes and ConfigMaps by their paths."""

    def __init__(self, *, has_binding_versions: bool = True) -> None:
        self.objects: Objects = {}
        # The events of a watch: the kind, and the object after the event.
        self.events: list[tuple[str, dict[str, Any]]] = []
        # Servers before 1.22 ignore the version in a Binding.
        self._has_binding_versions = has_binding_versions
        self.version = 100

    def put(self, path: str, found: dict[str, Any], kind: str = "MODIFIED") -> dict[str, Any]:
        """Store FOUND at PATH under a new version."""
        self.version += 1
        stored = copy.deepcopy(found)
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = stored
        self.events.append((kind, stored))
        return copy.deepcopy(stored)

    def add_pod(self, found: dict[str, Any]) -> None:
        """Create a pod."""
        self.put(f"/api/v1/namespaces/default/pods/{found['metadata']['name']}", found, "ADDED")

    def add_node(self, found: dict[str, Any]) -> None:
        """Create a node."""
        self.put(f"/api/v1/nodes/{found['metadata']['name']}", found, "ADDED")

    def add(self, found: dict[str, Any]) -> None:
        """Create a pod or node."""
        (self.add_pod if found["kind"] == "Pod" else self.add_node)(found)

    def delete(self, path: str) -> None:
        """Remove the object at PATH."""
        found = copy.deepcopy(self.objects.pop(path))
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(("DELETED", found))

    def pods(self) -> list[dict[str, Any]]:
        """Return all pods."""
        return [found for path, found in self.objects.items() if "/pods/" in path]

    def answer(self, call: Call) -> Reply:
        """Process CALL; return the reply."""
        path = call.path
        if call.method == "GET":
            found = self.objects.get(path)
            return Reply(status=200, body=copy.deepcopy(found)) if found else _no(404)
        body: Any = copy.deepcopy(call.body)
        metadata = body.get("metadata", {})
        if call.method == "POST" and path.endswith("/binding"):
            return self._bind(path.removesuffix("/binding"), body)
        if call.method == "POST":
            path = f"{path}/{metadata['name']}"
            if path in self.objects:
                return _no(409)
            return Reply(status=201, body=self.put(path, body, "ADDED"))
        path = path.removesuffix("/status")
        before = self.objects.get(path)
        if before is None:
            return _no(404)
        for key in ("uid", "resourceVersion"):
            if metadata.get(key) not in {None, before["metadata"].get(key)}:
                return _no(409)
        if call.method == "PUT":
            return Reply(status=200, body=self.put(path, body))
        changed = _merged(before, body)
        if changed == before:
            return Reply(status=200, body=changed)
        return Reply(status=200, body=self.put(path, changed))

    def _bind(self, path: str, body: dict[str, Any]) -> Reply:
        pod = self.objects.get(path)
        if pod is None:
            return _no(404)
        binding = body["metadata"]
        keys = ["uid", "resourceVersion"] if self._has_binding_versions else ["uid"]
        is_other = any(binding[key] != pod["metadata"][key] for key in keys)
        if is_other or pod["spec"].get("nodeName") or pod["status"]["phase"] != "Pending":
            return _no(409)
        bound = copy.deepcopy(pod)
        bound["spec"]["nodeName"] = body["target"]["name"]
        # As setPodHostAndAnnotations does (pkg/registry/core/pod/storage/storage.go).
        bound["metadata"]["annotations"].update(binding.get("annotations") or {})
        self.put(path, bound)
        return Reply(status=201, body={})

    def used(self, node: str) -> dict[int, int]:
        """Return the used units of each GPU of NODE, by the pods' annotations; -1 is an unknown GPU."""
        used: dict[int, int] = {}
        for found in self.pods():
            pod = read_pod(found, RESOURCES, ANNOTATION_KEYS)
            if pod is None or pod.node != node or pod.is_ended:
                continue
            reservation = reservation_of(pod.request, read_placement(pod))
            unplaced = [(-1, reservation.unplaced)] if reservation.unplaced else []
            for gpu, units in (*reservation.on, *unplaced):
                used[gpu] = used.get(gpu, 0) + units
        return used


def _merged(before: Any, change: Any) -> Any:
    """Return BEFORE with CHANGE as a merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return change
    found = copy.deepcopy(before) if isinstance(before, dict) else {}
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


def cluster_of(*found: dict[str, Any]) -> Cluster:
    """Return a cluster with the pods and nodes FOUND."""
    cluster = Cluster()
    for each in found:
        cluster.add(each)
    return cluster


def drive(steps: Generator[Call, Reply, T], answer: Callable[[Call], Reply]) -> T:
    """Run STEPS, send the reply of ANSWER to each of their requests, and return their result."""
    try:
        call = next(steps)
        while True:
            call = steps.send(answer(call))
    except StopIteration as end:
        found: T = end.value
        return found


def index_of(cluster: Cluster, **options: Any) -> Index:
    """Return the index of an extender that has listed the objects of CLUSTER."""
    index = Index(RESOURCES, **options)
    for found in list(cluster.objects.values()):
        send_event(index, "ADDED", found)
    return index


def send_event(index: Index, kind: str, found: dict[str, Any]) -> None:
    """Update INDEX by an event."""
    name, uid = found["metadata"]["name"], found["metadata"].get("uid", "")
    if found["kind"] == "Pod":
        index.drop_pod(uid) if kind == "DELETED" else index.put_pod(found)
    elif found["kind"] == "Node":
        index.drop_node(name) if kind == "DELETED" else index.put_node(found)


def _no(status: int) -> Reply:
    return Reply(status=status, body={"message": f"no, {status}"})
