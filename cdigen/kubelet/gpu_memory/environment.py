"""The environment variables for memory units: gpushare's variables, and the limit of MPS. No I/O.

cdigen enforces no limit. A program that reads the variables can limit itself. MPS enforces its limit if a
control daemon runs.
"""

from __future__ import annotations

from cdigen.gpushare import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.gpu_memory.assign import Assignment
    from cdigen.kubelet.resources.memory import MemoryGpu

# The value is "<device ordinal>=<size>", for the only device that the process can use
# (docs.nvidia.com/deploy/mps, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"). The limit is for each process, not for the
# container.
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def variables(gpu: MemoryGpu, units: int, assignment: Assignment | None) -> tuple[tuple[str, str], ...]:
    """Return gpushare's variables for a container with UNITS of GPU; ASSIGNMENT has the pod, or is None."""
    total = assignment.bound.pod.request.total if assignment else units
    return (
        (names.INDEX, str(gpu.index)),
        (names.OF_POD, str(total)),
        (names.OF_CONTAINER, str(units)),
        (names.OF_GPU, str(gpu.units)),
    )


def mps_limit(units: int, unit_mib: int) -> tuple[str, str]:
    """Return the variable that limits the memory of each process in a container with UNITS."""
    return (LIMIT, f"0={units * unit_mib}M")
