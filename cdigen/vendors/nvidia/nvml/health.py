"""What NVML says of a GPU's health (``NvmlHealth``), as the child's file of that name writes it."""

from __future__ import annotations

from cdigen.model.strict import flag, number, optional, record
from cdigen.value import frozen
from cdigen.vendors.nvidia.nvml.shapes import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.vendors.nvidia.nvml.shapes import NvmlError


@frozen
class NvmlHealth:
    """Whether a GPU can be used; what it does not support, or came after ``error``, is None.

    ``recovery_action`` is nvmlDeviceGpuRecoveryAction_t (0: nothing has to be done); drivers that do not know
    it say whether the GPU needs a ``reset``, or had better be drained and then have one
    (``drain_and_reset``). ``remap_failed``: a row of memory could not be remapped, ever. ``ecc_uncorrected``
    counts since the GPU was reset. ``fabric_state`` is nvmlGpuFabricState_t, and ``fabric_status`` the
    nvmlReturn_t of a completed one.
    """

    error: NvmlError | None
    recovery_action: int | None
    reset: bool | None
    drain_and_reset: bool | None
    remap_failed: bool | None
    ecc_uncorrected: int | None
    fabric_state: int | None
    fabric_status: int | None


READER = record(
    NvmlHealth,
    error=ERROR,
    recovery_action=optional(number),
    reset=optional(flag),
    drain_and_reset=optional(flag),
    remap_failed=optional(flag),
    ecc_uncorrected=optional(number),
    fabric_state=optional(number),
    fabric_status=optional(number),
)
