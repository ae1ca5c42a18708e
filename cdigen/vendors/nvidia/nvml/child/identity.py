"""Read the part ``identity`` of a GPU's entry: the GPU's UUID, the MIG mode and the MIG devices."""

from __future__ import annotations

import re

from session import NO_MIG_DEVICE, NvmlCallError, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml

# The end of a MIG device's name. The beginning is the GPU's name (nvmlDeviceGetName). An example is "NVIDIA
# H100 80GB HBM3 MIG 1c.3g.40gb".
_PROFILE = re.compile(r"(?:^|\s)MIG\s+((?:\d+c\.)?\d+g\.\d+gb\S*)", re.ASCII)


def blank() -> dict[str, Any]:
    """Return the part ``identity`` without values."""
    return {"uuid": None, "mig_mode": None, "migs": []}


def read(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Write the values of the GPU HANDLE into PART, or raise NvmlCallError.

    If the function raises an error, PART contains the values that were read before the error.
    """
    part["uuid"] = text(nvml.value("nvmlDeviceGetUUID", handle))
    part["mig_mode"] = mig_mode(nvml, handle)
    if part["mig_mode"]:
        # While MIG is on, "not supported" is an error: an empty list would mean that no MIG device exists.
        for position in range(nvml.call("nvmlDeviceGetMaxMigDeviceCount", handle)):
            add_mig_device(nvml, part, handle, position)


def mig_mode(nvml: Nvml, handle: object) -> bool | None:
    """Return whether MIG is currently on, or None if the GPU does not support MIG."""
    modes = nvml.value("nvmlDeviceGetMigMode", handle)
    return None if modes is None else bool(modes[0])


def add_mig_device(nvml: Nvml, entry: dict[str, Any], handle: object, position: int) -> None:
    """Add the MIG device at POSITION to ENTRY.

    A failed call is recorded as the error of ENTRY. The other MIG devices remain in ENTRY.
    """
    try:
        device = nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, position)
    except NvmlCallError as refusal:
        if refusal.code not in NO_MIG_DEVICE:
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
    """Return the memory of a MIG device in MiB, or None if NVML does not report it.

    The function raises no error, because an error would remove the whole MIG device from the reply.
    """
    try:
        sizes = nvml.value("nvmlDeviceGetAttributes_v2", device)
    except NvmlCallError:
        return None
    return None if sizes is None else int(sizes.memorySizeMB)


def profile(nvml: Nvml, handle: object, device: object) -> str:
    """Return the profile of a MIG device, such as ``1g.10gb``, or "" if the profile is not known.

    The function reads the profile in the name of the MIG device. If the name contains no profile, the
    function calculates the profile from the number of slices and the memory size.
    """
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
    """Return the memory size in a profile's name.

    The memory of the instance is rounded up to whole eighths of the GPU's memory, and then to GiB. go-nvlib
    uses the same rule (pkg/nvlib/device, getMigMemorySizeInGB). For example, the size of 9984 MiB on a GPU
    with 80 GiB is one eighth: 10.
    """
    eighths = -(-(instance_mib << 20) * 8 // gpu_bytes)
    whole = -(-gpu_bytes // (1 << 30))
    return (eighths * whole + 4) // 8
