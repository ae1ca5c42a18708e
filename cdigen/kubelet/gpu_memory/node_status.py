"""``update_node`` writes the Node's annotation and GPU count: a generator of requests to the API server.

Both values are written through the subresource ``status``, which cannot change taints or the specification.
The kubelet sets the GPU count to zero when the kubelet starts (kubernetes,
pkg/kubelet/kubelet_node_status.go, reconcileExtendedResource). A Node may also be deleted and created again.
So the Node is read before each write.
"""

from __future__ import annotations

from urllib.parse import quote

from cdigen.gpushare import names
from cdigen.gpushare.nodes import NodeGpu, node_annotation
from cdigen.gpushare.quantity import parse_quantity
from cdigen.kubeapi.calls import MERGE, Call, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.resources.memory import AdvertisedMemory


class NodeUpdateError(Exception):
    """The Node object is not up to date; the text is the reason."""


def update_node(
    node: str, offer: AdvertisedMemory | None, resources: Resources
) -> Generator[Call, Reply, str]:
    """Write the annotation and the GPU count of OFFER to NODE, and return the Node's UID.

    If OFFER is None, the annotation and the GPU count are removed. If the Node is up to date, nothing is
    written. Raise ``NodeUpdateError`` if the API server refuses a request.
    """
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    found = yield Call(method="GET", path=path)
    if found.status == 404:
        raise NodeUpdateError(f"the API server has no node {node}: set its name with --node-name")
    body = _body(found, "GET", path)
    gpus = [
        NodeGpu(index=gpu.index, units=gpu.units, uuid=gpu.uuid, is_healthy=gpu.is_healthy)
        for gpu in (offer.gpus if offer else ())
    ]
    text, count = (node_annotation(gpus), len(gpus)) if gpus else (None, None)
    metadata, status = (_members(body.get(key)) for key in ("metadata", "status"))
    change: dict[str, object] = {}
    if _members(metadata.get("annotations")).get(names.GPUS) != text:
        change["metadata"] = {"annotations": {names.GPUS: text}}
    parts = ("capacity", "allocatable")
    if any(_count(_members(status.get(part)), resources.count) != count for part in parts):
        counts = {resources.count: None if count is None else str(count)}
        change["status"] = dict.fromkeys(parts, counts)
    if change:
        path = f"{path}/status"
        _body((yield Call(method="PATCH", path=path, body=change, content_type=MERGE)), "PATCH", path)
    return str(metadata.get("uid") or "")


def _body(reply: Reply, method: str, path: str) -> Any:
    if not reply.is_done:
        raise NodeUpdateError(f"the API server refused {method} {path}: {reply.text}")
    return reply.body


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(values: dict[str, Any], name: str) -> int | None:
    """Return the number NAME of VALUES. None means that NAME is missing. -1 means an invalid number."""
    try:
        return parse_quantity(values[name]) if name in values else None
    except ValueError:
        return -1
