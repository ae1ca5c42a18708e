"""A daemon whose NVML has stats, and HTTP requests to the daemon."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.daemon.host import Daemon, Host, daemon
from support.daemon.http_client import answer
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Machine, gpu, install, trusted_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


BUSY = ("nvmlDeviceGetPowerUsage 0 346120", "nvmlDeviceGetTemperature 0 56")
# The first NVML function that a query of a GPU's stats calls. Nothing else calls it.
FIRST = "nvmlDeviceGetMemoryInfo_v2"


@contextmanager
def scraped(
    tmp_path: Path, *, switched_on: bool = True, faults: tuple[str, ...] = (), last: tuple[str, ...] = ()
) -> Iterator[tuple[Daemon, Path]]:
    """Run the daemon of a host with two GPUs; yield the daemon, and the file with NVML's calls of FIRST.

    FAULTS are faults of NVML. LAST are NVML's faults for the last GPU.
    """
    host = Host(tmp_path / "host").make()
    host.configure(device_metrics="true" if switched_on else "false")
    gpus = tuple(
        gpu(
            each.minor,
            address=f"0000{each.bdf.upper()}",
            uuid=each.uuid,
            results=BUSY,
            faults=last if each.minor else (),
        )
        for each in example_gpus(2)
    )
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=gpus, faults=(f"{FIRST} trace", *faults)))
        with daemon(host, "--nvml", str(library)) as running:
            yield running, folder / "calls"


def got(running: Daemon, target: str) -> tuple[int, str]:
    """Return status and body of the daemon's response to TARGET."""
    return answer(running.host.http, target)


def starts(calls: Path) -> int:
    """Return how often NVML was queried for the stats of both GPUs."""
    return calls.read_text().split().count(FIRST) // 2 if calls.exists() else 0
