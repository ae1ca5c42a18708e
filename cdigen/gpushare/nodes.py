"""The capacity of a node: ``read_node`` reads a Node, and ``node_annotation`` makes its annotation.

gpushare has one size for all GPUs of a node. The annotation of cdigen has the size and the health of each
GPU. The device plugin writes this annotation. Without the annotation, all GPUs of a node have the same size,
as in gpushare.
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.gpushare.quantity import parse_quantity
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.gpushare.names import Resources

# The limit for the GPUs of a node. No machine has more GPUs. A larger number is an error, because
# ``read_node`` creates a value for each GPU.
MAX_GPUS = 1024
_MAX_TEXT = 1 << 18  # the limit for all annotations of an object together


@frozen
class NodeGpu:
    """A GPU of a node.

    ``units`` is 0 if the GPU is not shared. ``uuid`` stays the same if the index changes.
    """

    index: int
    units: int
    uuid: str = ""
    is_healthy: bool = True


@frozen
class NodeCapacity:
    """The capacity of a node, which is ``capacity`` units on ``gpus``.

    ``problem`` is the reason why the capacity is missing or the annotation is ignored, or "". If the node has
    no valid annotation of cdigen, the size of each GPU is the capacity divided by the number of GPUs.
    """

    name: str
    uid: str = ""
    capacity: int = 0
    gpus: tuple[NodeGpu, ...] = ()
    is_cordoned: bool = False
    address: str = ""
    problem: str = ""


def read_node(document: object, resources: Resources) -> NodeCapacity:
    """Return the capacity of the Node object DOCUMENT, or raise ValueError if DOCUMENT is not a Node."""
    node = _members(document)
    metadata, status, spec = (_members(node.get(key) or {}) for key in ("metadata", "status", "spec"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the node has no name")
    base = NodeCapacity(
        name=name,
        uid=str(metadata.get("uid") or ""),
        is_cordoned=spec.get("unschedulable") is True,
        address=_address(status.get("addresses")),
    )
    try:
        capacity, count = _capacity(status.get("capacity"), resources)
    except ValueError as error:
        return replace(base, problem=str(error))
    if not capacity:
        return replace(base, problem=f"no {resources.memory} in its capacity")
    annotation = _members(metadata.get("annotations") or {}).get(names.GPUS)
    problem = ""
    if annotation is not None:
        try:
            return replace(base, capacity=capacity, gpus=read_annotation(annotation))
        except ValueError as error:
            problem = f"annotation {names.GPUS} ignored: {error}"
    if not 1 <= count <= MAX_GPUS:
        return replace(base, problem=problem or f"{resources.count} is not a number of GPUs ({count})")
    gpus = tuple(NodeGpu(index=index, units=capacity // count) for index in range(count))
    return replace(base, capacity=capacity, gpus=gpus, problem=problem)


def node_annotation(gpus: Iterable[NodeGpu]) -> str:
    """Return the value of cdigen's annotation for a node with GPUS; the order of GPUS does not matter."""
    rows = [
        {"index": gpu.index, "uuid": gpu.uuid, "units": gpu.units, "healthy": gpu.is_healthy}
        for gpu in sorted(gpus, key=lambda gpu: gpu.index)
    ]
    return json.dumps({"gpus": rows}, separators=(",", ":"))


def read_annotation(text: object) -> tuple[NodeGpu, ...]:
    """Return the GPUs in the annotation TEXT, sorted by index, or raise ValueError if TEXT is invalid."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise ValueError("not a text, or too long")
    try:
        rows = _members(json.loads(text)).get("gpus")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_GPUS:
        raise ValueError(f"not a list of 1 to {MAX_GPUS} GPUs")
    gpus = sorted(map(_gpu, rows), key=lambda gpu: gpu.index)
    if len({gpu.index for gpu in gpus}) < len(gpus):
        raise ValueError("two GPUs have the same index")
    return tuple(gpus)


def unhealthy_gpus(configmap: object) -> tuple[str, frozenset[int]] | None:
    """Return the node and its unhealthy GPUs from gpushare's CONFIGMAP, or None for any other ConfigMap.

    An invalid index is ignored, so that the other unhealthy GPUs are still excluded.
    """
    document = _members(configmap)
    name = _members(document.get("metadata") or {}).get("name")
    prefix = next((each for each in names.UNHEALTHY if str(name).startswith(each)), "")
    if not isinstance(name, str) or not prefix:
        return None
    text = _members(document.get("data") or {}).get(names.UNHEALTHY_KEY)
    words = [word.strip() for word in text.split(",")] if isinstance(text, str) else []
    indices = (int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= 9)
    return name.removeprefix(prefix), frozenset(index for index in indices if index < MAX_GPUS)


def _capacity(status_capacity: object, resources: Resources) -> tuple[int, int]:
    """Return the units and the number of GPUs in STATUS_CAPACITY, or raise ValueError for invalid values."""
    capacity = _members(status_capacity or {})
    units, count = (parse_quantity(capacity.get(name, 0)) for name in (resources.memory, resources.count))
    if units < 0:
        raise ValueError(f"invalid capacity of {resources.memory} ({units})")
    return units, count


def _gpu(row: object) -> NodeGpu:
    values = _members(row)
    index, units, healthy = values.get("index"), values.get("units"), values.get("healthy", True)
    if not _is_number(index, MAX_GPUS - 1) or not _is_number(units, 1 << 40) or not isinstance(healthy, bool):
        raise ValueError("a GPU has no valid index, units or health")
    return NodeGpu(index=int(str(index)), units=int(str(units)), uuid=str(values.get("uuid") or "")[:63],
               is_healthy=healthy)  # fmt: skip


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _address(addresses: object) -> str:
    rows = addresses if isinstance(addresses, list) else []
    found = (row.get("address") for row in rows if isinstance(row, dict) and row.get("type") == "InternalIP")
    return next((each for each in found if isinstance(each, str)), "")


def _members(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - an invalid document is a ValueError
    return value
