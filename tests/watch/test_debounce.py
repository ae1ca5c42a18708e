"""Debounce and back-off, as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.watch.debounce import Backoff, Debounce

TIMES = st.floats(min_value=0, max_value=1e9)
SPANS = st.floats(min_value=0, max_value=1e4)


def test_a_single_event_is_looked_at_after_the_quiet() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 10) == 10.25


def test_each_further_event_puts_the_look_off() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 11) == 11.25


def test_events_without_end_are_looked_at_when_the_bound_is_reached() -> None:
    assert Debounce(debounce_s=0.25, max_delay_s=5).due(10, 14.9) == 15


@given(TIMES, SPANS, SPANS, SPANS)
def test_a_look_is_never_later_than_the_bound_nor_than_the_quiet(
    first: float, length: float, quiet: float, bound: float
) -> None:
    due = Debounce(debounce_s=quiet, max_delay_s=bound).due(first, first + length)
    assert due <= first + bound
    assert due <= first + length + quiet


@pytest.mark.parametrize(
    ("attempts", "delay"), [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (10**6, 60)]
)
def test_delays_double_up_to_their_bound(attempts: int, delay: float) -> None:
    assert Backoff(first_s=1, factor=2, most_s=60).delay(attempts) == delay
