"""`cdigen kubelet --standby`: the standby registers the devices when the active instance ends."""

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
# The longest time without allocatable devices, from issue 21.
GAP_S = 3.0


@pytest.fixture
def side() -> Iterator[Side]:
    with side_of() as made, daemon(made):
        made.kubelet.start()
        yield made


@contextmanager
def standby(side: Side) -> Iterator[tuple[Process, object]]:
    """Run an active instance and a standby; yield the active instance and its endpoint at the kubelet."""
    with cdigen_kubelet(side, "--standby") as first:
        assert until(lambda: side.lists(8))
        with cdigen_kubelet(side, "--standby", log="second") as second:
            assert until(lambda: second.lines("standby"))
            yield first, side.kubelet.endpoints[GPU]


@limited(GAP_S)
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_the_standby_registers_the_devices_at_once_when_the_active_instance_ends(
    side: Side, ending: str, within_s: float
) -> None:
    with standby(side) as (first, old):
        # During this pause, the standby imports its modules.
        pause(1.0)
        began = time.monotonic()
        getattr(first, ending)()
        assert until(lambda: side.kubelet.endpoints[GPU] is not old and side.lists(8))
        assert time.monotonic() - began < within_s
        assert len(side.kubelet.registered) == 2
        assert until(lambda: side.status()["state"] == "registered")
        assert side.get("/readyz")[0] == 200


@pytest.mark.parametrize("late_s", [0.2, 0.8, 1.5])
def test_a_late_end_of_the_old_instance_does_not_remove_the_devices_of_the_new_instance(
    side: Side, late_s: float
) -> None:
    with standby(side) as (first, old):
        # On a busy machine, the active instance may have registered twice.
        side.kubelet.forgets_after_s, registered = late_s, len(side.kubelet.registered)
        first.stop()
        assert until(lambda: side.kubelet.forgotten)
        assert until(lambda: side.kubelet.endpoints.get(GPU, old) is not old and side.lists(8))
        assert len(side.kubelet.registered) == registered + 1
