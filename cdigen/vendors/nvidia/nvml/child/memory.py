"""How much memory a GPU has: the part ``memory``. What a GPU does not tell is None, as where it has none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml


def blank() -> dict[str, Any]:
    """Return the part of a GPU of which nothing is known."""
    return {"total": None}


def tell(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Fill in PART of the GPU HANDLE, in bytes; raises NvmlCallError."""
    info = nvml.value("nvmlDeviceGetMemoryInfo", handle)
    part["total"] = None if info is None else info.total
