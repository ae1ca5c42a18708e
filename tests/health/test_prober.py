"""Probes run at long intervals and soon after an error; a probe that hangs delays no other vendor."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.waiting import PATIENCE_S, until

from cdigen.health.prober import FLOOR_S, HANGS_AFTER_S, Prober
from cdigen.model.health import HealthSample

if TYPE_CHECKING:
    from collections.abc import Mapping

PERIOD_S = 600.0


class Library:
    """The libraries of vendors; a library in ``hanging`` responds only after ``resume`` is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.probed: list[str] = []
        self.reported: list[tuple[str, float]] = []
        self.hanging: set[str] = set()
        self.resume = threading.Event()
        self.prober = Prober(self._probe, self._report, clock=lambda: self.now_s)

    def _probe(self, vendor: str) -> HealthSample:
        self.probed.append(vendor)
        if vendor in self.hanging:
            self.resume.wait(PATIENCE_S)
        return HealthSample(source="probe")

    def _report(self, vendor: str, _: HealthSample, began_s: float) -> None:
        self.reported.append((vendor, began_s))

    def turn(
        self, *vendors: str, after_s: float = 0.0, awaited: Mapping[str, float] | None = None
    ) -> float | None:
        """Advance the clock by AFTER_S and call `Prober.turn`; return the seconds until the next call."""
        self.now_s += after_s
        due_s = self.prober.turn(vendors or ("nvidia",), awaited or {}, PERIOD_S)
        assert until(lambda: not self._runs())
        return None if due_s is None else due_s - self.now_s

    def _runs(self) -> bool:
        # threading.enumerate() drops a thread shortly before the thread ends, so the test uses `is_alive`.
        schedules = [one for vendor, one in self.prober._schedules.items() if vendor not in self.hanging]
        return any(each.thread is not None and each.thread.is_alive() for each in schedules)


@pytest.fixture
def library() -> Library:
    return Library()


def test_a_probe_runs_at_the_start_and_then_once_in_each_period(library: Library) -> None:
    library.turn()
    assert library.turn(after_s=1) == PERIOD_S - 1
    library.turn(after_s=PERIOD_S - 2)
    assert library.probed == ["nvidia"]
    library.turn(after_s=1)
    assert library.probed == ["nvidia", "nvidia"]
    assert library.reported == [("nvidia", 1000.0), ("nvidia", 1600.0)]


def test_a_flood_of_errors_causes_at_most_one_probe_in_each_interval_of_floor_s(library: Library) -> None:
    library.turn()
    for _ in range(100):
        library.prober.request("nvidia")
        library.turn(after_s=1)
    assert len(library.probed) == 1 + int(100 // FLOOR_S)


def test_an_error_long_after_the_last_probe_causes_a_probe_at_once(library: Library) -> None:
    library.turn()
    library.turn(after_s=100)
    library.prober.request("nvidia")
    library.turn()
    assert len(library.probed) == 2


def test_a_probe_starts_when_a_recovery_can_clear_a_cause(library: Library) -> None:
    library.turn()
    awaited = {"nvidia": library.now_s + 300}
    assert library.turn(after_s=100, awaited=awaited) == 200
    library.turn(after_s=200, awaited=awaited)
    assert len(library.probed) == 2
    assert library.turn(after_s=1, awaited=awaited) == PERIOD_S - 1


def test_a_probe_that_hangs_is_not_started_again_and_delays_no_other_vendor(library: Library) -> None:
    library.hanging = {"nvidia"}
    library.turn("nvidia", "amd")
    for _ in range(3):
        library.prober.request("nvidia")
        library.turn("nvidia", "amd", after_s=PERIOD_S)
    assert sorted(library.probed) == ["amd"] * 4 + ["nvidia"]
    assert library.now_s > HANGS_AFTER_S
    assert library.prober.hanging() == ("nvidia",)
    library.hanging = set()
    library.resume.set()
    library.turn("nvidia", "amd")
    library.turn("nvidia", "amd")
    assert library.prober.hanging() == ()
    assert library.probed.count("nvidia") == 2
