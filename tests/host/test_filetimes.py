"""A file time shows a later change of the file, unless the file time is too young."""

from __future__ import annotations

import pytest

from cdigen.host.filetimes import shows_changes

NOW = 1_795_420_800_123_456_789
SECOND = 1_795_420_800_000_000_000


@pytest.mark.parametrize(
    ("age_ns", "shows"), [(0, False), (10_000_000, False), (20_000_000, True), (-5_000_000_000, True)]
)
def test_a_file_time_does_not_show_a_change_within_one_tick_of_the_clock(age_ns: int, *, shows: bool) -> None:
    assert shows_changes(NOW - age_ns, NOW) is shows


@pytest.mark.parametrize(("age_s", "shows"), [(0.5, False), (1.9, False), (2.1, True)])
def test_a_file_time_in_whole_seconds_shows_changes_after_two_seconds(age_s: float, *, shows: bool) -> None:
    assert shows_changes(SECOND, SECOND + int(age_s * 1e9)) is shows
