"""The inbox: bounded, never waiting, and right when threads and signals put at any moment."""

from __future__ import annotations

import signal
import threading
import time

from support.daemon.threads import beside
from support.waiting import PATIENCE_S

from cdigen.watch.triggers import MAX_REASONS, NO_EVENTS, Inbox, Trigger


def trigger(reason: str) -> Trigger:
    return Trigger(source="test", reason=reason)


def test_equal_triggers_are_one_and_every_event_counts() -> None:
    inbox = Inbox()
    for _ in range(3):
        inbox.put(trigger("a"))
    inbox.put(trigger("b"))
    batch = inbox.take()
    assert batch.triggers == (trigger("a"), trigger("b"))
    assert (batch.events, batch.unnamed) == (4, 0)


def test_reasons_beyond_the_bound_are_only_counted() -> None:
    inbox = Inbox()
    for number in range(1000):
        inbox.put(trigger(str(number)))
    batch = inbox.take()
    assert len(batch.triggers) == MAX_REASONS
    assert (batch.events, batch.unnamed) == (1000, 1000 - MAX_REASONS)


def test_the_times_of_the_first_and_the_last_event_are_kept() -> None:
    times = iter((5.0, 7.0, 9.0))
    inbox = Inbox(clock=lambda: next(times))
    inbox.put(trigger("a"))
    inbox.put(trigger("a"))
    assert (inbox.peek().first_s, inbox.peek().last_s) == (5.0, 7.0)
    inbox.take()
    inbox.put(trigger("a"))
    assert (inbox.take().first_s, inbox.take()) == (9.0, NO_EVENTS)


def test_waiting_ends_at_once_while_something_is_pending() -> None:
    inbox = Inbox()
    inbox.put(trigger("a"))
    assert inbox.wait(None)
    assert inbox.wait(0)
    inbox.peek()
    assert inbox.wait(None)


def test_waiting_for_nothing_lasts_for_its_time_even_after_a_take() -> None:
    inbox = Inbox()
    inbox.put(trigger("a"))
    inbox.take()
    began = time.monotonic()
    assert not inbox.wait(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_put_of_another_thread_ends_the_wait() -> None:
    inbox = Inbox()
    threading.Timer(0.05, inbox.put, [trigger("a")]).start()
    assert inbox.wait(PATIENCE_S)


def test_nothing_is_lost_while_many_put_and_one_takes() -> None:
    inbox = Inbox()

    def put_many() -> None:
        for _ in range(2000):
            inbox.put(trigger("a"))

    taken = 0
    with beside(put_many, count=4):
        while taken < 8000 and inbox.wait(PATIENCE_S):
            taken += inbox.take().events
    assert taken == 8000


def test_a_signal_handler_may_put_at_any_moment() -> None:
    inbox, handled, taken = Inbox(), 0, 0

    def handler(*_: object) -> None:
        nonlocal handled
        handled += 1
        inbox.put(trigger("signal"))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while handled < 500 and time.monotonic() < deadline:
            inbox.wait(0.01)
            taken += inbox.take().events
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled >= 500
    assert taken + inbox.take().events == handled


def test_a_signal_ends_a_wait_that_has_no_bound() -> None:
    inbox = Inbox()
    before = signal.signal(signal.SIGALRM, lambda *_: inbox.put(trigger("signal")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert inbox.wait(None)
    finally:
        signal.signal(signal.SIGALRM, before)
