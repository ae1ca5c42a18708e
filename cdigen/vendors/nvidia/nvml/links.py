"""How NVML says a GPU is linked to the others (``NvmlLinks``), as the child's file of that name writes it."""

from __future__ import annotations

from cdigen.model.strict import InvalidValue, flag, many, number, record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR, address, perhaps_empty, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.vendors.nvidia.nvml.shapes import NvmlError


@frozen
class NvmlLinks:
    """How a GPU is linked to the others; an ``error`` says that this is not all.

    ``peers``: how many links lead to the GPU at an address; ``down``: how many are not up; ``switched``: how
    many lead to switches, and ``reached``: the GPUs that these join it with. ``fabric`` names the part of a
    cluster's fabric that they are of, or is empty; ``is_joining`` says that the GPU has not joined it yet.
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


READER = record(
    NvmlLinks,
    error=ERROR,
    peers=_peers,
    down=number,
    switched=number,
    reached=many(address),
    fabric=perhaps_empty(text),
    is_joining=flag,
)
