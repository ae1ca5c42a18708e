"""Read the part ``health`` of a GPU's entry. The values show whether the GPU can be used.

If the GPU or the driver does not support a value, the value is None.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_int, c_ubyte, c_uint

from session import NOT_AVAILABLE, NvmlCallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from session import Nvml

MAX_COUNT = (1 << 32) - 1

RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
# Older drivers have the fields NVML_FI_DEV_RESET_STATUS and NVML_FI_DEV_DRAIN_AND_RESET_STATUS instead.
RESET, DRAIN_AND_RESET = 226, 227
_UNCORRECTED = 1  # nvmlMemoryErrorType_t
_VOLATILE = 0  # nvmlEccCounterType_t: errors since the driver was loaded or the GPU was reset
_VERSION_2 = 0x0200_0024  # nvmlGpuFabricInfo_v2


class _Fabric(Structure):
    """nvmlGpuFabricInfo_t of nvml.h. In pynvml 12.560 and older, clusterUuid has the wrong length 80."""

    _fields_ = (("clusterUuid", c_ubyte * 16), ("status", c_int), ("cliqueId", c_uint), ("state", c_ubyte))


class _VersionedFabric(Structure):
    """nvmlGpuFabricInfo_v2_t of nvml.h."""

    _fields_ = (("version", c_uint), ("fabric", _Fabric), ("healthMask", c_uint))


def blank() -> dict[str, Any]:
    """Return the part ``health`` without values."""
    names = "recovery_action", "reset", "drain_and_reset", "remap_failed", "ecc_uncorrected"
    return dict.fromkeys((*names, "fabric_state", "fabric_status"))


def read(nvml: Nvml, part: dict[str, Any], handle: object, _handles: list[object | None]) -> None:
    """Write the values of the GPU HANDLE into PART, or raise NvmlCallError.

    If the function raises an error, PART contains the values that were read before the error.
    """
    part["recovery_action"] = field(nvml, handle, RECOVERY_ACTION)
    for name, number in (("reset", RESET), ("drain_and_reset", DRAIN_AND_RESET)):
        is_wanted = field(nvml, handle, number) if part["recovery_action"] is None else None
        part[name] = None if is_wanted is None else bool(is_wanted)
    rows = value(nvml, "nvmlDeviceGetRemappedRows", handle)
    part["remap_failed"] = None if rows is None else bool(rows[3])
    errors = value(nvml, "nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)
    part["ecc_uncorrected"] = None if errors is None else min(errors, MAX_COUNT)
    info = fabric(nvml, handle)
    if info is not None:
        part |= {"fabric_state": info.state, "fabric_status": info.status}


def fabric(nvml: Nvml, handle: object) -> Any:
    """Return NVML's structure with the GPU's fabric, or None if the GPU has no fabric."""
    versioned, unversioned = _VersionedFabric(version=_VERSION_2), _Fabric()
    if value(nvml, "nvmlDeviceGetGpuFabricInfoV", handle, byref(versioned)) is not None:
        return versioned.fabric
    # Drivers before 545 and pynvml before 12.550 have only this function. CUDA 14 will remove it.
    is_read = value(nvml, "nvmlDeviceGetGpuFabricInfo", handle, byref(unversioned)) is not None
    return unversioned if is_read else None


def value(nvml: Nvml, function: str, *arguments: object) -> Any:
    """Return the result of FUNCTION, or None if the GPU or the driver does not support it."""
    try:
        return nvml.call(function, *arguments)
    except NvmlCallError as refusal:
        if refusal.code in NOT_AVAILABLE:
            return None
        raise


def field(nvml: Nvml, handle: object, number: int) -> int | None:
    """Return the 32-bit value of the field NUMBER, or None if the GPU or the driver has no such field."""
    fields = value(nvml, "nvmlDeviceGetFieldValues", handle, [number])
    if fields is None or fields[0].nvmlReturn in NOT_AVAILABLE:
        return None
    if fields[0].nvmlReturn:
        raise nvml.failure("nvmlDeviceGetFieldValues", fields[0].nvmlReturn)
    return int(fields[0].value.uiVal)
