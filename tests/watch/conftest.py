"""A recorder of triggers, whose sources are stopped when the test ends."""

from collections.abc import Iterator

import pytest
from support.daemon.watching import TriggerRecorder


@pytest.fixture
def recorder() -> Iterator[TriggerRecorder]:
    """Return a recorder, which starts sources and records their triggers."""
    recorder = TriggerRecorder()
    yield recorder
    recorder.stop()
