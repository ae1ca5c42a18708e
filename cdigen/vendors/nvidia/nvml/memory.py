"""The memory of a GPU in NVML's reply (``NvmlMemory``). child/memory.py writes these values."""

from __future__ import annotations

from cdigen.model.strict import optional, record, whole
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


READER = record(NvmlMemory, error=ERROR, total=optional(whole(0, MAX_BYTES)))
