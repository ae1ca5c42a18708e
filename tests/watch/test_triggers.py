"""The trigger queue is limited in size, and is correct while threads and signal handlers put triggers."""

from __future__ import annotations

import signal
import threading
import time

from support.daemon.threads import beside
from support.waiting import PATIENCE_S

from cdigen.watch.triggers import MAX_REASONS, Batch, Trigger, TriggerQueue


def trigger(reason: str) -> Trigger:
    return Trigger(source="test", reason=reason)


def test_equal_triggers_are_merged_and_every_event_is_counted() -> None:
    queue = TriggerQueue()
    for _ in range(3):
        queue.put(trigger("a"))
    queue.put(trigger("b"))
    batch = queue.take()
    assert batch.triggers == (trigger("a"), trigger("b"))
    assert batch.events == 4


def test_reasons_beyond_the_maximum_are_only_counted() -> None:
    queue = TriggerQueue()
    for number in range(1000):
        queue.put(trigger(str(number)))
    batch = queue.take()
    assert (batch.events, len(batch.triggers)) == (1000, MAX_REASONS)


def test_the_times_of_the_first_and_the_last_event_are_kept() -> None:
    times = iter((5.0, 7.0, 9.0))
    queue = TriggerQueue(clock=lambda: next(times))
    queue.put(trigger("a"))
    queue.put(trigger("a"))
    assert (queue.peek().first_s, queue.peek().last_s) == (5.0, 7.0)
    queue.take()
    queue.put(trigger("a"))
    assert (queue.take().first_s, queue.take()) == (9.0, Batch())


def test_a_wait_ends_at_once_while_a_trigger_is_pending() -> None:
    queue = TriggerQueue()
    queue.put(trigger("a"))
    assert queue.wait(None)
    assert queue.wait(0)
    queue.peek()
    assert queue.wait(None)


def test_a_wait_without_triggers_lasts_until_its_timeout_even_after_a_take() -> None:
    queue = TriggerQueue()
    queue.put(trigger("a"))
    queue.take()
    began = time.monotonic()
    assert not queue.wait(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_trigger_from_another_thread_ends_the_wait() -> None:
    queue = TriggerQueue()
    threading.Timer(0.05, queue.put, [trigger("a")]).start()
    assert queue.wait(PATIENCE_S)


def test_no_trigger_is_lost_while_many_threads_put_and_one_thread_takes_triggers() -> None:
    queue = TriggerQueue()

    def put_many() -> None:
        for _ in range(2000):
            queue.put(trigger("a"))

    received = 0
    with beside(put_many, count=4):
        while received < 8000 and queue.wait(PATIENCE_S):
            received += queue.take().events
    assert received == 8000


def test_a_signal_handler_may_put_a_trigger_at_any_moment() -> None:
    queue, handled, received = TriggerQueue(), 0, 0

    def handler(*_: object) -> None:
        nonlocal handled
        handled += 1
        queue.put(trigger("signal"))

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while handled < 500 and time.monotonic() < deadline:
            queue.wait(0.01)
            received += queue.take().events
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled >= 500
    assert received + queue.take().events == handled


def test_a_signal_ends_a_wait_without_a_time_limit() -> None:
    queue = TriggerQueue()
    before = signal.signal(signal.SIGALRM, lambda *_: queue.put(trigger("signal")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert queue.wait(None)
    finally:
        signal.signal(signal.SIGALRM, before)
