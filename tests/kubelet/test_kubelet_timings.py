"""How soon the kubelet has what changes: a second for a list, half a second for a registration."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
from support.kubelet.offered import offer, registered
from support.kubelet.offering import h100, in_mig, with_gpus
from support.kubelet.process import Side, cdigen_kubelet, daemon, serving
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.kubelet.double import Kubelet

    from cdigen.kubelet.link import Link

pytestmark = [pytest.mark.process, pytest.mark.wall_clock]
LISTED_S = 1.0
REGISTERED_S = 0.5


def listed_s(kubelet: Kubelet, change: Callable[[], object], is_there: Callable[[], object]) -> float:
    """Return how long after CHANGE the kubelet gets the list by which IS_THERE holds."""
    changed_s = time.monotonic()
    change()
    assert until(is_there)
    return kubelet.endpoints[GPU].times[-1] - changed_s


def test_a_link_sends_a_change_within_a_second(kubelet: Kubelet, link: Link) -> None:
    registered(kubelet, link, "a")
    offered = (offer("a", "b"),)
    assert listed_s(kubelet, lambda: link.offer(offered), lambda: len(kubelet.list_of(GPU)) == 2) < LISTED_S


def test_the_kubelet_has_what_changes_on_the_host_within_a_second(side: Side) -> None:
    kubelet = side.kubelet
    sick = unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL)
    few = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    with daemon(side), serving(side):
        assert until(lambda: side.resource()["state"] == "registered")
        assert listed_s(kubelet, lambda: side.put(sick), lambda: "Unhealthy" in kubelet.health()) < LISTED_S
        assert listed_s(kubelet, side.driver_goes, lambda: side.lists(0)) < LISTED_S
        assert listed_s(kubelet, lambda: side.put(side.inventories), lambda: side.lists(8)) < LISTED_S
        assert listed_s(kubelet, lambda: side.put(few), lambda: not side.lists(8)) < LISTED_S


def test_a_kubelet_that_starts_or_restarts_is_registered_with_within_half_a_second(side: Side) -> None:
    side.kubelet.kill()
    shutil.rmtree(side.kubelet_dir)
    with cdigen_kubelet(side):
        assert until(side.serves_http)
        assert until(lambda: side.resource()["state"] == "waiting")
        for _ in range(3):
            side.kubelet.start()
            there_s = time.monotonic()
            assert until(lambda: side.lists(8))
            assert side.kubelet.registered[-1][0] - there_s < REGISTERED_S
            # Registrations are a second apart.
            time.sleep(1.1)
            side.kubelet.kill()
