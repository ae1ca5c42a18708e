"""Write the Node's annotation and GPU count: ``tell_node``, a generator of requests as those of ``settling``.

Both are written through the subresource ``status``, which changes neither taints nor the specification.
The kubelet zeroes the number of GPUs where it begins anew (kubernetes, pkg/kubelet/kubelet_node_status.go,
reconcileExtendedResource), and a node may be deleted and made again: so it is read before it is written.
"""

from __future__ import annotations

from urllib.parse import quote

from cdigen.gpushare import names
from cdigen.gpushare.nodes import Gpu, node_annotation
from cdigen.gpushare.quantity import whole
from cdigen.kubeapi.calls import MERGE, Call, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cdigen.gpushare.names import Resources
    from cdigen.kubelet.resources.memory import MemoryOffer


class UntoldError(Exception):
    """The node's object does not say what is offered; the text is why."""


def tell_node(node: str, offer: MemoryOffer | None, resources: Resources) -> Generator[Call, Reply, str]:
    """Let NODE's annotation and number of GPUs be those of OFFER, None: away; returns the node's UID.

    What is right already is not written. ``UntoldError``: the API server does not let us.
    """
    path = f"/api/v1/nodes/{quote(node, safe='')}"
    found = yield Call(method="GET", path=path)
    if found.status == 404:
        raise UntoldError(f"the API server knows no node {node}: give its name by --node-name")
    body = _whole(found, "show", path)
    gpus = [
        Gpu(index=gpu.index, units=gpu.units, uuid=gpu.uuid, is_healthy=gpu.is_healthy)
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
        _whole((yield Call(method="PATCH", path=path, body=change, content_type=MERGE)), "write", path)
    return str(metadata.get("uid") or "")


def _whole(reply: Reply, verb: str, path: str) -> Any:
    if not reply.is_done:
        raise UntoldError(f"the API server does not let us {verb} {path}: {reply.text}")
    return reply.body


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(values: dict[str, Any], name: str) -> int | None:
    """Return the number NAME of VALUES; None: there is none; -1: it is no number."""
    try:
        return whole(values[name]) if name in values else None
    except ValueError:
        return -1
