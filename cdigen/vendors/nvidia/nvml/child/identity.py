"""What a GPU and its MIG devices are: the part ``identity``."""

from __future__ import annotations

import re

from session import INVALID_ARGUMENT, NOT_FOUND, NvmlCallError, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml

# A MIG device's name is its GPU's and then this (nvmlDeviceGetName): "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb".
_PROFILE = re.compile(r"(?:^|\s)MIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)", re.ASCII)


def blank() -> dict[str, Any]:
    """Return the part of a GPU of which nothing is known."""
    return {"uuid": None, "mig_mode": None, "migs": []}


def tell(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Fill in PART of the GPU HANDLE; raises NvmlCallError, and leaves what it has read by then."""
    part["uuid"] = text(nvml.value("nvmlDeviceGetUUID", handle))
    part["mig_mode"] = mig_mode(nvml, handle)
    if part["mig_mode"]:
        for position in range(nvml.value("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            add_mig_device(nvml, part, handle, position)


def mig_mode(nvml: Nvml, handle: object) -> bool | None:
    """Return whether MIG is on now (not: after the next reset); None for a GPU without it."""
    modes = nvml.value("nvmlDeviceGetMigMode", handle)
    return None if modes is None else bool(modes[0])


def add_mig_device(nvml: Nvml, entry: dict[str, Any], handle: object, position: int) -> None:
    """Add the MIG device at POSITION to ENTRY; one that fails is the GPU's error, the others stay."""
    try:
        device = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
    except NvmlCallError as refusal:
        # Positions without a device are as good as any: NVML numbers 0 to the most there can be.
        if refusal.code not in {NOT_FOUND, INVALID_ARGUMENT}:
            entry["error"] = refusal.document
        return
    try:
        name = profile(nvml, handle, device)
        entry["migs"].append(
            {
                "index": position,
                "uuid": text(nvml.call("nvmlDeviceGetUUID", device)),
                "gpu_instance": nvml.call("nvmlDeviceGetGpuInstanceId", device),
                "compute_instance": nvml.call("nvmlDeviceGetComputeInstanceId", device),
                "profile": name,
                "graphics": "+gfx" in name,
                "memory_mib": memory_mib(nvml, device),
            }
        )
    except NvmlCallError as refusal:
        entry["error"] = refusal.document


def memory_mib(nvml: Nvml, device: object) -> int | None:
    """Return the memory of a MIG device, None where NVML does not tell: its name is worth more than that."""
    try:
        sizes = nvml.value("nvmlDeviceGetAttributes_v2", device)
    except NvmlCallError:
        return None
    return None if sizes is None else int(sizes.memorySizeMB)


def profile(nvml: Nvml, handle: object, device: object) -> str:
    """Return a MIG device's profile, such as ``1g.10gb``; empty where neither name nor sizes tell."""
    found = _PROFILE.search(nvml.value("nvmlDeviceGetName", device) or "")
    if found:
        return str(found[1])
    sizes = nvml.value("nvmlDeviceGetAttributes_v2", device)
    memory = nvml.value("nvmlDeviceGetMemoryInfo", handle)
    if sizes is None or memory is None or not memory.total or not sizes.gpuInstanceSliceCount:
        return ""
    slices, compute = sizes.gpuInstanceSliceCount, sizes.computeInstanceSliceCount
    part = f"{compute}c." if compute and compute < slices else ""
    return f"{part}{slices}g.{profile_gigabytes(sizes.memorySizeMB, memory.total)}gb"


def profile_gigabytes(instance_mib: int, gpu_bytes: int) -> int:
    """Return the size in a profile's name: the eighths of the GPU's memory, rounded to whole GiB.

    The rule is go-nvlib's (pkg/nvlib/device, getMigMemorySizeInGB): 9984 MiB of 80 GiB are an eighth, so 10.
    """
    eighths = -(-(instance_mib << 20) * 8 // gpu_bytes)
    whole = -(-gpu_bytes // (1 << 30))
    return (eighths * whole + 4) // 8
