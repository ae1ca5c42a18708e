"""A stand-in of NVML with a GPU that is in use."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.command.fixtures import GPUS
from support.nvml.standin import Machine, gpu, install, trusted_folder

GIB = 1 << 30
BUSY = (
    f"memory-used 0 {10 * GIB}",
    "nvmlDeviceGetTemperature 0 56",
    "nvmlDeviceGetPowerUsage 0 346120",
    "nvmlDeviceGetEnforcedPowerLimit 0 700000",
    "nvmlDeviceGetUtilizationRates 0 97 31",
    "nvmlDeviceGetClockInfo 1 1755",
    "nvmlDeviceGetCurrPcieLinkGeneration 0 4",
    "nvmlDeviceGetMaxPcieLinkGeneration 0 5",
    "nvmlDeviceGetCurrPcieLinkWidth 0 16",
    "nvmlDeviceGetMaxPcieLinkWidth 0 16",
    "nvmlDeviceGetEccMode 0 1 1",
    "nvmlDeviceGetTotalEccErrors 0 12",
    "nvmlDeviceGetTotalEccErrors 1 3",
)


@contextmanager
def busy(*, faults: tuple[str, ...] = ()) -> Iterator[Path]:
    """Yield an NVML with two GPUs: this process uses the first GPU, and the second GPU reports few values."""
    first, second = (gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid) for each in GPUS[:2])
    at_work = gpu(
        first.minor or 0,
        address=first.address,
        uuid=first.uuid,
        results=BUSY,
        processes=((os.getpid(), 9 * GIB),),
    )
    with trusted_folder() as folder:
        yield install(folder, Machine(gpus=(at_work, second), faults=faults))
