"""What a node offers: ``read_node`` makes an ``Offer`` of the API's object, ``node_annotation`` writes ours.

gpushare knows one size for all GPUs of a node. Our annotation has each GPU's own, and its health; it is
written by the node's side. Without it all sizes are equal, as gpushare has it.
"""

from __future__ import annotations

import json

from cdigen.gpushare import names
from cdigen.gpushare.quantity import whole
from cdigen.value import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdigen.gpushare.names import Resources

# More than any machine has; a number beyond it is an error, and would be a list of that length.
MAX_GPUS = 1024
_MAX_TEXT = 1 << 18  # what all annotations of an object may have


@frozen
class Gpu:
    """A GPU of a node: its units are 0 where it is offered as a whole; ``uuid`` is its lasting name."""

    index: int
    units: int
    uuid: str = ""
    is_healthy: bool = True


@frozen
class Offer:
    """What a node offers: ``capacity`` units in all, on ``gpus``; ``problem`` says why none, or less.

    ``is_uniform``: sizes are the capacity divided by the number, since the node has no annotation of ours.
    """

    node: str
    uid: str = ""
    capacity: int = 0
    gpus: tuple[Gpu, ...] = ()
    is_uniform: bool = True
    is_cordoned: bool = False
    address: str = ""
    problem: str = ""


def read_node(found: object, resources: Resources) -> Offer:
    """Return what the node that the API's object FOUND describes offers; ValueError: it is no node."""
    node = _members(found)
    metadata, status, spec = (_members(node.get(key) or {}) for key in ("metadata", "status", "spec"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("the node has no name")
    base = Offer(
        node=name,
        uid=str(metadata.get("uid") or ""),
        is_cordoned=spec.get("unschedulable") is True,
        address=_address(status.get("addresses")),
    )
    try:
        capacity, count = _capacity(status.get("capacity"), resources)
    except ValueError as error:
        return replace(base, problem=str(error))
    if not capacity:
        return replace(base, problem=f"it has no {resources.memory}")
    given = _members(metadata.get("annotations") or {}).get(names.GPUS)
    problem = ""
    if given is not None:
        try:
            return replace(base, capacity=capacity, gpus=read_annotation(given), is_uniform=False)
        except ValueError as error:
            problem = f"its annotation {names.GPUS} is not used: {error}"
    if not 1 <= count <= MAX_GPUS:
        return replace(base, problem=problem or f"{resources.count} is {count}, not a number of GPUs")
    gpus = tuple(Gpu(index=index, units=capacity // count) for index in range(count))
    return replace(base, capacity=capacity, gpus=gpus, problem=problem)


def node_annotation(gpus: Iterable[Gpu]) -> str:
    """Return the value of our annotation for a node with GPUS, the same text for the same GPUs."""
    rows = [
        {"index": gpu.index, "uuid": gpu.uuid, "units": gpu.units, "healthy": gpu.is_healthy}
        for gpu in sorted(gpus, key=lambda gpu: gpu.index)
    ]
    return json.dumps({"gpus": rows}, separators=(",", ":"))


def read_annotation(text: object) -> tuple[Gpu, ...]:
    """Return the GPUs of our annotation TEXT, by index; ValueError: it is torn, or not ours."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise ValueError("it is no text, or too long")
    try:
        rows = _members(json.loads(text)).get("gpus")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_GPUS:
        raise ValueError(f"it does not list 1 to {MAX_GPUS} GPUs")
    gpus = sorted(map(_gpu, rows), key=lambda gpu: gpu.index)
    if len({gpu.index for gpu in gpus}) < len(gpus):
        raise ValueError("it has an index twice")
    return tuple(gpus)


def unhealthy_gpus(found: object) -> tuple[str, frozenset[int]] | None:
    """Return the node and the indices that gpushare's ConfigMap FOUND lists; None: another ConfigMap.

    What is no index is passed over: one bad word keeps no sick GPU in use.
    """
    document = _members(found)
    name = _members(document.get("metadata") or {}).get("name")
    prefix = next((each for each in names.UNHEALTHY if str(name).startswith(each)), "")
    if not isinstance(name, str) or not prefix:
        return None
    text = _members(document.get("data") or {}).get(names.UNHEALTHY_KEY)
    words = [word.strip() for word in text.split(",")] if isinstance(text, str) else []
    indices = (int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= 9)
    return name.removeprefix(prefix), frozenset(index for index in indices if index < MAX_GPUS)


def _capacity(given: object, resources: Resources) -> tuple[int, int]:
    """Return units and number of GPUs of a status' capacity; ValueError: no such numbers."""
    capacity = _members(given or {})
    units, count = (whole(capacity.get(name, 0)) for name in (resources.memory, resources.count))
    if units < 0:
        raise ValueError(f"it has {units} of {resources.memory}")
    return units, count


def _gpu(row: object) -> Gpu:
    values = _members(row)
    index, units, healthy = values.get("index"), values.get("units"), values.get("healthy", True)
    if not _is_number(index, MAX_GPUS - 1) or not _is_number(units, 1 << 40) or not isinstance(healthy, bool):
        raise ValueError("a GPU lacks its index, units or health")
    return Gpu(index=int(str(index)), units=int(str(units)), uuid=str(values.get("uuid") or "")[:63],
               is_healthy=healthy)  # fmt: skip


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _address(addresses: object) -> str:
    rows = addresses if isinstance(addresses, list) else []
    found = (row.get("address") for row in rows if isinstance(row, dict) and row.get("type") == "InternalIP")
    return next((each for each in found if isinstance(each, str)), "")


def _members(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - of a document, not of code
    return value
