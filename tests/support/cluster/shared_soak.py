"""Pods of random sizes that come and go on shared GPUs, and what is restarted below them: `Traffic`."""

from __future__ import annotations

import signal
from collections import Counter
from http.client import HTTPException
from itertools import count
from typing import TYPE_CHECKING

from support.cluster.api import ApiError
from support.cluster.node import NODE
from support.cluster.shared_node import SCHEDULERS, SIZES, Shared

if TYPE_CHECKING:
    import random

# So many are there at a time at the most: some have to wait then.
ALIVE = 40
RESTARTED = (
    "plugin", "kubelet", *(f"{what}-{which}" for what in ("extender", "scheduler") for which in SCHEDULERS)
)  # fmt: skip
CONTROL_PLANE = ("api-server", "etcd")
# More than any GPU of any node has.
TOO_MUCH = 1 + max(units for sizes in SIZES.values() for units in sizes)


class Traffic:
    """Creates and deletes pods, with names that begin with PREFIX, as CHANCE has it.

    PROGRAMS are those that are restarted.
    """

    def __init__(
        self, shared: Shared, chance: random.Random, prefix: str, programs: tuple[str, ...] = RESTARTED
    ) -> None:
        self._programs = programs
        self.restarts: Counter[str] = Counter()
        self.created = 0
        self._shared = shared
        self._chance = chance
        self._names = (f"{prefix}{number}" for number in count())
        self._alive: list[str] = []

    def create(self) -> None:
        """Create a pod, and delete one if there are too many; an API server that is away is left alone."""
        chance, name = self._chance, next(self._names)
        # Some sizes are frequent: then the kubelet asks for others of the same size first.
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
        """Restart a program, by a signal or the other; returns which."""
        name = self._chance.choice(self._programs)
        number = self._chance.choice((signal.SIGTERM, signal.SIGKILL))
        if name == "api-server":  # told to end, it waits a minute for those who watch
            number = signal.SIGKILL
        self._shared.restart(name, number)
        self.restarts[f"{name} {number.name}"] += 1
        return name
