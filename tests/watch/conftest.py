"""An inbox whose sources are stopped when the test ends."""

from collections.abc import Iterator

import pytest
from support.daemon.watching import Ear


@pytest.fixture
def ear() -> Iterator[Ear]:
    """Return an inbox that remembers what it has heard."""
    ear = Ear()
    yield ear
    ear.stop()
