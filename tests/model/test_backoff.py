"""The delays between attempts."""

import pytest

from cdigen.model.times.backoff import Backoff


@pytest.mark.parametrize(
    ("attempts", "delay"), [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (7, 60), (10**6, 60)]
)
def test_delays_double_up_to_their_maximum(attempts: int, delay: float) -> None:
    assert Backoff(first_s=1, most_s=60).delay(attempts) == delay
