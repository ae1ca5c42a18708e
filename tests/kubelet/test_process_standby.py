"""`cdigen kubelet --standby`: the kubelet has the devices again at once and keeps them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.kubelet.process import Process, Side, cdigen_kubelet, daemon, side_of
from support.kubelet.resources import GPU
from support.waiting import limited, pause, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process
# Of issue 21: what the gap in allocatable may be.
GAP_S = 3.0


@pytest.fixture
def side() -> Iterator[Side]:
    with side_of() as made, daemon(made):
        made.kubelet.start()
        yield made


@contextmanager
def standby(side: Side) -> Iterator[tuple[Process, object]]:
    """Run two instances, of which the first serves; gives this one and its endpoint at the kubelet."""
    with cdigen_kubelet(side, "--standby") as first:
        assert until(lambda: side.lists(8))
        with cdigen_kubelet(side, "--standby", log="second") as second:
            assert until(lambda: second.lines("stands by"))
            yield first, side.kubelet.endpoints[GPU]


@limited(GAP_S)
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_the_kubelet_has_the_devices_again_at_once_when_the_one_that_serves_ends(
    side: Side, ending: str, within_s: float
) -> None:
    with standby(side) as (first, old):
        # The standby imports its modules meanwhile.
        pause(1.0)
        began = time.monotonic()
        getattr(first, ending)()
        assert until(lambda: side.kubelet.endpoints[GPU] is not old and side.lists(8))
        assert time.monotonic() - began < within_s
        assert len(side.kubelet.registered) == 2
        assert until(lambda: side.status()["state"] == "registered")
        assert side.get("/readyz")[0] == 200


@pytest.mark.parametrize("late_s", [0.2, 0.8, 1.5])
def test_a_kubelet_that_handles_the_old_ones_end_late_forgets_nothing_of_the_new_one(
    side: Side, late_s: float
) -> None:
    side.kubelet.forgets_after_s = late_s
    with standby(side) as (first, old):
        first.stop()
        assert until(lambda: side.kubelet.forgotten)
        assert until(lambda: side.kubelet.endpoints.get(GPU, old) is not old and side.lists(8))
        assert len(side.kubelet.registered) == 2
