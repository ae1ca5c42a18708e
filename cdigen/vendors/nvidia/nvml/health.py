"""The health of a GPU in NVML's reply (``NvmlHealth``). child/health.py writes these values."""

from __future__ import annotations

from cdigen.model.strict import typed_record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError


@frozen
class NvmlHealth:
    """The values that show whether a GPU can be used.

    A value is None if the GPU does not support it, or if it was not read because of ``error``.
    ``recovery_action`` is an nvmlDeviceGpuRecoveryAction_t. 0 means no action. Drivers without this value
    report whether the GPU needs a reset (``reset``), or a drain and then a reset (``drain_and_reset``).
    ``remap_failed`` is true if the remapping of a memory row has ever failed. ``ecc_uncorrected`` is the
    number of uncorrected ECC errors since the driver was loaded or the GPU was reset. ``fabric_state`` is an
    nvmlGpuFabricState_t. If the state is completed, ``fabric_status`` is an nvmlReturn_t.
    """

    error: NvmlError | None
    recovery_action: int | None
    reset: bool | None
    drain_and_reset: bool | None
    remap_failed: bool | None
    ecc_uncorrected: int | None
    fabric_state: int | None
    fabric_status: int | None


READER = typed_record(NvmlHealth, error=ERROR)
