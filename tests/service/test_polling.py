"""A query that hangs does not delay a caller beyond the caller's timeout."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from support.daemon.threads import beside
from support.waiting import PATIENCE_S, until

from cdigen.service.polling import FRESH_S, BackgroundPoller

STALE_S = 15.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def poller(clock: Clock) -> BackgroundPoller:
    return BackgroundPoller("users", max_waiting=1, clock=clock)


def test_a_fresh_result_is_used_again(poller: BackgroundPoller, clock: Clock) -> None:
    answers = iter("abc")
    question = {"q": lambda: next(answers)}
    for age_s, answer in ((0, "a"), (FRESH_S - 1, "a"), (1, "b")):
        clock.now += age_s
        poller.start(question)
        assert poller.wait(PATIENCE_S, stale_s=STALE_S) == {"q": answer}


def test_a_hanging_query_runs_once_and_does_not_delay_other_queries(
    poller: BackgroundPoller, clock: Clock
) -> None:
    go, calls = threading.Event(), []

    def hangs() -> str:
        calls.append(1)
        go.wait(PATIENCE_S)
        return "late"

    for _ in range(5):
        poller.start({"hangs": hangs, "works": lambda: "here"})
        assert until(lambda: poller.wait(0.05, stale_s=STALE_S) == {"works": "here"}, PATIENCE_S)
        clock.now += 1
    assert calls == [1]
    go.set()
    assert poller.wait(PATIENCE_S, stale_s=STALE_S)["hangs"] == "late"
    clock.now += STALE_S + 1
    assert poller.wait(0, stale_s=STALE_S) == {}


def test_while_one_caller_waits_other_callers_get_the_present_results(poller: BackgroundPoller) -> None:
    go = threading.Event()
    poller.start({"hangs": lambda: go.wait(3 * PATIENCE_S)})
    with beside(partial(poller.wait, stale_s=STALE_S), PATIENCE_S) as (first,):
        assert until(lambda: vars(poller)["_waiting"] == 1)
        # This call returns while the first caller still waits.
        assert poller.wait(2 * PATIENCE_S, stale_s=STALE_S) == {}
        assert first.is_alive()
        go.set()


def test_a_failed_query_has_no_result_and_a_dropped_query_is_forgotten(poller: BackgroundPoller) -> None:
    poller.start({"fails": lambda: 1 // 0, "works": lambda: 1})
    assert poller.wait(PATIENCE_S, stale_s=STALE_S) == {"works": 1}
    poller.start({})
    assert poller.wait(0, stale_s=STALE_S) == {}
