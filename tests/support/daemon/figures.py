"""A daemon whose NVML has figures, and requests to it."""

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
# What NVML is first asked for a GPU's figures, and for nothing else.
FIRST = "nvmlDeviceGetMemoryInfo_v2"


@contextmanager
def scraped(
    tmp_path: Path, *, switched_on: bool = True, faults: tuple[str, ...] = (), last: tuple[str, ...] = ()
) -> Iterator[tuple[Daemon, Path]]:
    """Run the daemon of a host with two GPUs; gives it, and where NVML notes that it was started.

    FAULTS are NVML's, LAST those of the last GPU.
    """
    host = Host(tmp_path / "host").make()
    host.configure(figure_metrics="true" if switched_on else "false")
    gpus = tuple(
        gpu(
            each.minor,
            address=f"0000{each.bdf.upper()}",
            uuid=each.uuid,
            figures=BUSY,
            faults=last if each.minor else (),
        )
        for each in example_gpus(2)
    )
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=gpus, faults=(f"{FIRST} trace", *faults)))
        with daemon(host, "--nvml", str(library)) as running:
            yield running, folder / "calls"


def got(running: Daemon, target: str) -> tuple[int, str]:
    """Return status and body of the daemon's answer to TARGET."""
    return answer(running.host.http, target)


def starts(calls: Path) -> int:
    """Return how often NVML was asked for figures of both GPUs."""
    return calls.read_text().split().count(FIRST) // 2 if calls.exists() else 0
