"""The memory of a GPU in NVML's reply (``NvmlMemory``). child/memory.py writes these values."""

from __future__ import annotations

from cdigen.model.strict import InvalidValue, optional, record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError

# A greater size is an error of NVML.
MAX_BYTES = 1 << 50


@frozen
class NvmlMemory:
    """The memory of a GPU.

    ``total`` is the size in bytes, or None if the GPU does not report the size. If the query failed,
    ``error`` is set.
    """

    error: NvmlError | None
    total: int | None


def _size(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_BYTES:
        raise InvalidValue(path, f"a whole number from 0 to {MAX_BYTES}")
    return value


READER = record(NvmlMemory, error=ERROR, total=optional(_size))
