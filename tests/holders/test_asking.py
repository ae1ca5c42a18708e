"""Questions that hang cost nobody more than they want to wait."""

from __future__ import annotations

import threading

import pytest
from support.daemon.threads import beside
from support.waiting import PATIENCE_S, until

from cdigen.holders.asking import FRESH_S, STALE_S, Asking


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking(clock: Clock) -> Asking:
    return Asking(clock=clock)


def test_an_answer_is_good_for_all_while_it_is_fresh(asking: Asking, clock: Clock) -> None:
    answers = iter("abc")
    question = {"q": lambda: next(answers)}
    for age_s, answer in ((0, "a"), (FRESH_S - 1, "a"), (1, "b")):
        clock.now += age_s
        asking.begin(question)
        assert asking.answers(PATIENCE_S) == {"q": answer}


def test_one_that_hangs_is_asked_once_and_costs_no_other_its_answer(asking: Asking, clock: Clock) -> None:
    go, asked = threading.Event(), []

    def hangs() -> str:
        asked.append(1)
        go.wait(PATIENCE_S)
        return "late"

    for _ in range(5):
        asking.begin({"hangs": hangs, "works": lambda: "here"})
        assert until(lambda: asking.answers(0.05) == {"works": "here"}, PATIENCE_S)
        clock.now += 1
    assert asked == [1]
    go.set()
    assert asking.answers(PATIENCE_S)["hangs"] == "late"
    clock.now += STALE_S + 1
    assert asking.answers(0) == {}


def test_while_one_waits_others_take_what_is_known(asking: Asking) -> None:
    go = threading.Event()
    asking.begin({"hangs": lambda: go.wait(3 * PATIENCE_S)})
    with beside(asking.answers, PATIENCE_S) as (first,):
        assert until(lambda: vars(asking)["_waiting"] == 1)
        # It is answered while the first, who began earlier, still waits.
        assert asking.answers(2 * PATIENCE_S) == {}
        assert first.is_alive()
        go.set()


def test_a_question_that_fails_has_no_answer_and_one_not_asked_is_forgotten(asking: Asking) -> None:
    asking.begin({"fails": lambda: 1 // 0, "works": lambda: 1})
    assert asking.answers(PATIENCE_S) == {"works": 1}
    asking.begin({})
    assert asking.answers(0) == {}
