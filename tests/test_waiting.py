"""How tests wait: for what comes late, also for an entry of a list, and not for ever."""

import pytest
from support.waiting import until


def test_an_entry_that_comes_late_is_waited_for() -> None:
    journal: list[int] = []
    asked: list[None] = []

    def comes() -> bool:
        asked.append(None)
        if len(asked) == 3:
            journal.append(7)
        return journal[-1] == 7

    assert until(comes)
    assert len(asked) == 3


def test_what_never_comes_is_said() -> None:
    assert not until(lambda: False, within_s=0.05)
    status: dict[str, int] = {}
    with pytest.raises(KeyError, match="missed"):
        until(lambda: status["missed"], within_s=0.05)
