"""Takes samples of a node during a test (`sampling`), and reads the containers of the node's runtime."""

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
    """Call SAMPLE repeatedly in a thread until the context ends; then call END in the same thread."""
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
    """Return the ids of running containers; raises CriError."""
    return [row.id for row in cri.call("ListContainers").containers if row.state == RUNNING]


def container_info(cri: Cri, container: str) -> dict[str, Any]:
    """Return containerd's data about a container, such as `config` and `runtimeSpec`; raises CriError."""
    info: dict[str, Any] = json.loads(
        cri.call("ContainerStatus", container_id=container, verbose=True).info["info"]
    )
    return info
