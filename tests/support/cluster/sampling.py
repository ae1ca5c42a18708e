"""Samples of a node, taken all the time that a test acts: `sampling`; and its runtime's containers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.containers.cri_client import Cri

EVERY_S = 0.1
RUNNING = 1  # cri.proto: ContainerState


@contextmanager
def sampling(
    sample: Callable[[], None], end: Callable[[], None], *, every_s: float = EVERY_S
) -> Iterator[None]:
    """Call SAMPLE again and again in a thread until the context ends, and then END there."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            sample()
        end()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def running_ids(cri: Cri) -> list[str]:
    """Return the ids of the containers that run; CriError."""
    return [row.id for row in cri.call("ListContainers").containers if row.state == RUNNING]


def container_info(cri: Cri, container: str) -> dict[str, Any]:
    """Return what containerd reports of a container: `config` of CRI, `runtimeSpec` of runc; CriError."""
    info: dict[str, Any] = json.loads(
        cri.call("ContainerStatus", container_id=container, verbose=True).info["info"]
    )
    return info
