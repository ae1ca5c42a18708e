"""`until` waits for late events and for missing entries of a list, up to a deadline."""

import pytest
from support.waiting import until


def test_until_waits_for_an_entry_that_comes_late() -> None:
    journal: list[int] = []
    calls: list[None] = []

    def comes() -> bool:
        calls.append(None)
        if len(calls) == 3:
            journal.append(7)
        return journal[-1] == 7

    assert until(comes)
    assert len(calls) == 3


def test_until_returns_false_or_raises_a_lookup_error_at_the_deadline() -> None:
    assert not until(lambda: False, within_s=0.05)
    status: dict[str, int] = {}
    with pytest.raises(KeyError, match="missed"):
        until(lambda: status["missed"], within_s=0.05)
