"""What a container is told of its share: gpushare's variables, and MPS's limit. Pure.

Nothing of it is enforced by us: a program that reads the variables can restrain itself, and MPS enforces its
limit where a control daemon runs.
"""

from __future__ import annotations

from cdigen.gpushare import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.kubelet.resources.memory import MemoryGpu
    from cdigen.kubelet.shares.settling import Settled

# "<device ordinal>=<size>", of the devices that the process sees: one (docs.nvidia.com/deploy/mps,
# "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"). It is a limit for each process, not for the container.
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def variables(gpu: MemoryGpu, units: int, settled: Settled | None) -> tuple[tuple[str, str], ...]:
    """Return gpushare's variables for a container with UNITS of GPU; SETTLED tells which one it is."""
    total = settled.bound.pod.ask.total if settled else units
    return (
        (names.INDEX, str(gpu.index)),
        (names.OF_POD, str(total)),
        (names.OF_CONTAINER, str(units)),
        (names.OF_GPU, str(gpu.units)),
    )


def mps_limit(units: int, unit_mib: int) -> tuple[str, str]:
    """Return the variable that limits what each process of a container with UNITS can have."""
    return (LIMIT, f"0={units * unit_mib}M")
