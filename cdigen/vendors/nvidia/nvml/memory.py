"""How much memory NVML says a GPU has (``NvmlMemory``), as the child's file of that name writes it."""

from __future__ import annotations

from cdigen.model.strict import InvalidValue, optional, record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError

# Above it a size is none, but an error of the library.
MAX_BYTES = 1 << 50


@frozen
class NvmlMemory:
    """The memory of a GPU in bytes, None where it tells none; an ``error`` says that it could not."""

    error: NvmlError | None
    total: int | None


def _size(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_BYTES:
        raise InvalidValue(path, f"a whole number from 0 to {MAX_BYTES}")
    return value


READER = record(NvmlMemory, error=ERROR, total=optional(_size))
