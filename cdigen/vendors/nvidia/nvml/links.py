"""The links of a GPU in NVML's reply (``NvmlLinks``). child/links.py writes these values."""

from __future__ import annotations

from cdigen.model.strict import InvalidValue, many, number, typed_record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR, address, perhaps_empty, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.vendors.nvidia.nvml.shapes import NvmlError


@frozen
class NvmlLinks:
    """The links of a GPU. If ``error`` is set, the values are incomplete.

    ``peers`` maps the address of another GPU to the number of links with that GPU. ``down`` is the number of
    links that are not up. ``switched`` is the number of links to switches. ``reached`` are the addresses of
    the GPUs that the switches connect with this GPU. ``fabric`` is the name of the partition in a cluster's
    fabric, or empty. ``is_joining`` is true if the GPU has not joined the fabric yet.
    """

    error: NvmlError | None
    peers: Mapping[str, int]
    down: int
    switched: int
    reached: tuple[str, ...]
    fabric: str
    is_joining: bool


def _peers(value: object, path: str) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise InvalidValue(path, "an object")
    return {address(key, path): number(count, f"{path}.{key}") for key, count in value.items()}


READER = typed_record(NvmlLinks, error=ERROR, peers=_peers, reached=many(address), fabric=perhaps_empty(text))
