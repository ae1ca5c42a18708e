"""Times of files: which of them tell a later change apart."""

from __future__ import annotations

import pytest

from cdigen.host.filetimes import shows_changes

NOW = 1_795_420_800_123_456_789
SECOND = 1_795_420_800_000_000_000


@pytest.mark.parametrize(
    ("age_ns", "shows"), [(0, False), (10_000_000, False), (20_000_000, True), (-5_000_000_000, True)]
)
def test_a_change_within_a_step_of_the_kernel_s_clock_does_not_show(age_ns: int, *, shows: bool) -> None:
    assert shows_changes(NOW - age_ns, NOW) is shows


@pytest.mark.parametrize(("age_s", "shows"), [(0.5, False), (1.9, False), (2.1, True)])
def test_whole_seconds_are_those_of_a_file_system_that_keeps_no_more(age_s: float, *, shows: bool) -> None:
    assert shows_changes(SECOND, SECOND + int(age_s * 1e9)) is shows
