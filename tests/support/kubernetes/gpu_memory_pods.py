"""Pod and Node objects with shared GPUs: `pod_object`, `node_object`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cdigen.gpushare.names import GPUS, Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

RESOURCES = Resources()
MEMORY, COUNT = RESOURCES.memory, RESOURCES.count


def container(units: object, name: str = "main", **more: object) -> dict[str, Any]:
    """Return a container that requests UNITS; None: without a request."""
    limits = {} if units is None else {"resources": {"limits": {MEMORY: str(units)}}}
    return {"name": name, "image": "busybox", **limits, **more}


def pod_object(
    name: str,
    *units: object,
    inits: Iterable[dict[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    uid: str = "",
    version: str = "1",
) -> dict[str, Any]:
    """Return a pod with a container for each of UNITS."""
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "annotations": dict(annotations or {}),
        },
        "spec": {"containers": [container(each, f"c{place}") for place, each in enumerate(units)]},
        "status": {"phase": phase},
    }
    if init_containers := list(inits):
        found["spec"]["initContainers"] = init_containers
    if node:
        found["spec"]["nodeName"] = node
    return found


def node_object(
    name: str = "node1", sizes: Iterable[int] = (8, 8), *, with_annotation: bool = True, version: str = "1"
) -> dict[str, Any]:
    """Return a node with GPUs of SIZES, with or without cdigen's annotation."""
    units = list(sizes)
    rows = [
        {"index": index, "uuid": f"GPU-{index}", "units": size, "healthy": True}
        for index, size in enumerate(units)
    ]
    annotations = {GPUS: json.dumps({"gpus": rows})} if with_annotation else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            "annotations": annotations,
        },
        "spec": {},
        "status": {
            "capacity": {MEMORY: str(sum(units)), COUNT: str(len(units)), "cpu": "8"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
