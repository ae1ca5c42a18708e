"""Creates pods of random sizes on shared GPUs, and restarts programs of the cluster: `Traffic`."""

from __future__ import annotations

import signal
from collections import Counter
from http.client import HTTPException
from itertools import count
from typing import TYPE_CHECKING

from support.cluster.api import ApiError
from support.cluster.gpu_memory_node import SCHEDULERS, SIZES, GpuMemoryCluster
from support.cluster.node import NODE

if TYPE_CHECKING:
    import random

# The highest number of pods at one time. With so many pods, some pods have to wait for free units.
ALIVE = 40
RESTARTED = (
    "plugin", "kubelet", *(f"{what}-{which}" for what in ("extender", "scheduler") for which in SCHEDULERS)
)  # fmt: skip
CONTROL_PLANE = ("api-server", "etcd")
# One unit more than the largest GPU has.
TOO_MUCH = 1 + max(units for sizes in SIZES.values() for units in sizes)


class Traffic:
    """Creates and deletes random pods, and restarts random programs from PROGRAMS.

    CHANCE is the random generator. The names of the pods begin with PREFIX.
    """

    def __init__(
        self,
        shared: GpuMemoryCluster,
        chance: random.Random,
        prefix: str,
        programs: tuple[str, ...] = RESTARTED,
    ) -> None:
        self._programs = programs
        self.restarts: Counter[str] = Counter()
        self.created = 0
        self._shared = shared
        self._chance = chance
        self._names = (f"{prefix}{number}" for number in count())
        self._alive: list[str] = []

    def create(self) -> None:
        """Create a random pod, and delete pods while there are too many; ignore errors of the API server."""
        chance, name = self._chance, next(self._names)
        # The sizes 2, 3 and 4 are frequent. The kubelet may allocate to pods of the same size in any order.
        sizes = (2, 3, 4, *range(1, 10))
        units = [chance.choice(sizes) for _ in range(chance.choice([1, 1, 1, 1, 1, 2, 2, 3]))]
        if chance.random() < 0.05:
            units = [chance.choice([0, 16, TOO_MUCH])]
        inits = (chance.randint(1, 9),) if chance.random() < 0.12 else ()
        on = NODE if chance.random() < 0.5 else ""
        try:
            self._shared.create(name, *units, scheduler=chance.choice(sorted(SCHEDULERS)), inits=inits, on=on)
            self.created += 1
            self._alive.append(name)
            while len(self._alive) > chance.randint(ALIVE // 2, ALIVE):
                self._shared.remove(self._alive.pop(chance.randrange(len(self._alive))))
        except (ApiError, OSError, HTTPException):
            return

    def restart(self) -> str:
        """Restart a random program with a random signal; return the name of the program."""
        name = self._chance.choice(self._programs)
        number = self._chance.choice((signal.SIGTERM, signal.SIGKILL))
        if name == "api-server":  # after SIGTERM, the API server waits a minute for the end of watches
            number = signal.SIGKILL
        self._shared.restart(name, number)
        self.restarts[f"{name} {number.name}"] += 1
        return name
