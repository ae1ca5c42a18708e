"""Read the part ``memory`` of a GPU's entry: the memory size of the GPU.

If the GPU has no memory or does not report the size, the size is None.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml


def blank() -> dict[str, Any]:
    """Return the part ``memory`` without values."""
    return {"total": None}


def read(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Write the memory size of the GPU HANDLE in bytes into PART, or raise NvmlCallError."""
    info = nvml.value("nvmlDeviceGetMemoryInfo", handle)
    part["total"] = None if info is None else info.total
