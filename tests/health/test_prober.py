"""Probes are seldom, soon after an error, and no vendor's waits for another's that hangs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.waiting import PATIENCE_S, until

from cdigen.health.prober import FLOOR_S, HANGS_AFTER_S, Prober
from cdigen.model.health import Look

if TYPE_CHECKING:
    from collections.abc import Mapping

PERIOD_S = 600.0


class Library:
    """Vendors' libraries: those that hang answer when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.asked: list[str] = []
        self.answered: list[tuple[str, float]] = []
        self.hanging: set[str] = set()
        self.goes_on = threading.Event()
        self.prober = Prober(self._ask, self._answer, clock=lambda: self.now_s)

    def _ask(self, vendor: str) -> Look:
        self.asked.append(vendor)
        if vendor in self.hanging:
            self.goes_on.wait(PATIENCE_S)
        return Look(source="probe")

    def _answer(self, vendor: str, _: Look, began_s: float) -> None:
        self.answered.append((vendor, began_s))

    def turn(
        self, *vendors: str, after_s: float = 0.0, awaited: Mapping[str, float] | None = None
    ) -> float | None:
        """Let time pass and turn; returns in how many seconds the next turn is due."""
        self.now_s += after_s
        due_s = self.prober.turn(vendors or ("nvidia",), awaited or {}, PERIOD_S)
        assert until(lambda: not self._runs())
        return None if due_s is None else due_s - self.now_s

    def _runs(self) -> bool:
        # A thread is no longer in threading's list a moment before it has ended.
        asked = [asked for vendor, asked in self.prober._asked.items() if vendor not in self.hanging]
        return any(each.thread is not None and each.thread.is_alive() for each in asked)


@pytest.fixture
def library() -> Library:
    return Library()


def test_a_probe_comes_at_the_start_and_then_once_in_its_period(library: Library) -> None:
    library.turn()
    assert library.turn(after_s=1) == PERIOD_S - 1
    library.turn(after_s=PERIOD_S - 2)
    assert library.asked == ["nvidia"]
    library.turn(after_s=1)
    assert library.asked == ["nvidia", "nvidia"]
    assert library.answered == [("nvidia", 1000.0), ("nvidia", 1600.0)]


def test_an_error_makes_one_soon_and_a_flood_of_errors_no_more_than_the_floor(library: Library) -> None:
    library.turn()
    for _ in range(100):
        library.prober.want("nvidia")
        library.turn(after_s=1)
    assert len(library.asked) == 1 + int(100 // FLOOR_S)


def test_an_error_long_after_the_last_one_makes_one_at_once(library: Library) -> None:
    library.turn()
    library.turn(after_s=100)
    library.prober.want("nvidia")
    library.turn()
    assert len(library.asked) == 2


def test_a_cause_that_waits_for_a_word_makes_one_when_it_would_count(library: Library) -> None:
    library.turn()
    awaited = {"nvidia": library.now_s + 300}
    assert library.turn(after_s=100, awaited=awaited) == 200
    library.turn(after_s=200, awaited=awaited)
    assert len(library.asked) == 2
    assert library.turn(after_s=1, awaited=awaited) == PERIOD_S - 1


def test_one_that_hangs_is_not_started_again_and_keeps_no_other_waiting(library: Library) -> None:
    library.hanging = {"nvidia"}
    library.turn("nvidia", "amd")
    for _ in range(3):
        library.prober.want("nvidia")
        library.turn("nvidia", "amd", after_s=PERIOD_S)
    assert sorted(library.asked) == ["amd"] * 4 + ["nvidia"]
    assert library.now_s > HANGS_AFTER_S
    assert library.prober.hanging() == ("nvidia",)
    library.hanging = set()
    library.goes_on.set()
    library.turn("nvidia", "amd")
    library.turn("nvidia", "amd")
    assert library.prober.hanging() == ()
    assert library.asked.count("nvidia") == 2
