"""The arithmetic of debounce."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdigen.watch.triggers import Debounce

TIMES = st.floats(min_value=0, max_value=1e9)
SPANS = st.floats(min_value=0, max_value=1e4)


def test_a_single_event_is_due_after_the_debounce_time() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 10) == 10.25


def test_each_event_delays_the_check_again() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 11) == 11.25


def test_endless_events_are_due_when_the_maximum_delay_is_reached() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 14.9) == 15


@given(TIMES, SPANS, SPANS, SPANS)
def test_a_check_is_due_within_the_maximum_delay_and_the_debounce_time(
    first: float, length: float, quiet: float, bound: float
) -> None:
    due = Debounce(debounce_s=quiet, max_delay_s=bound).due(first, first + length)
    assert due <= first + bound
    assert due <= first + length + quiet
