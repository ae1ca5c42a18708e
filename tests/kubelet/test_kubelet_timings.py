"""How soon the kubelet has what changes: a second for a list, half a second for a registration."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from support.kubelet.offered import offer
from support.kubelet.offering import h100, in_mig, with_gpus
from support.kubelet.process import GPU, Side, cdigen_kubelet, daemon, side_of
from support.values import unhealthy_gpus
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.kubelet.double import Kubelet

    from cdigen.kubelet.link import Link

pytest_plugins = ("support.kubelet.link",)
pytestmark = [pytest.mark.process, pytest.mark.wall_clock]
LISTED_S = 1.0
REGISTERED_S = 0.5


@pytest.fixture
def side() -> Iterator[Side]:
    with side_of() as made:
        yield made


def listed_s(kubelet: Kubelet, change: Callable[[], object], is_there: Callable[[], object]) -> float:
    """Return how long after CHANGE the kubelet gets the list by which IS_THERE holds."""
    changed_s = time.monotonic()
    change()
    assert until(is_there)
    return kubelet.endpoints[GPU].times[-1] - changed_s


def test_a_link_sends_a_change_within_a_second(kubelet: Kubelet, link: Link) -> None:
    kubelet.start()
    link.offer((offer("a"),))
    assert until(lambda: kubelet.list_of(GPU))
    offered = (offer("a", "b"),)
    assert listed_s(kubelet, lambda: link.offer(offered), lambda: len(kubelet.list_of(GPU)) == 2) < LISTED_S


def test_the_kubelet_has_what_changes_on_the_host_within_a_second(side: Side) -> None:
    side.kubelet.start()
    sick = unhealthy_gpus.ill(side.inventories, 0, unhealthy_gpus.FELL)
    few = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: side.lists(8))
        assert until(lambda: side.resource()["state"] == "registered")

        def is_ill() -> bool:
            return "Unhealthy" in [health for health, _ in side.kubelet.list_of(GPU).values()]

        assert listed_s(side.kubelet, lambda: side.put(sick), is_ill) < LISTED_S
        assert listed_s(side.kubelet, side.driver_goes, lambda: side.lists(0)) < LISTED_S
        assert listed_s(side.kubelet, lambda: side.put(side.inventories), lambda: side.lists(8)) < LISTED_S
        assert listed_s(side.kubelet, lambda: side.put(few), lambda: not side.lists(8)) < LISTED_S


def test_a_kubelet_that_starts_or_restarts_is_registered_with_within_half_a_second(side: Side) -> None:
    side.kubelet_dir.rmdir()
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


def test_a_kubelet_that_hangs_when_it_is_asked_holds_no_container_up_for_long(side: Side) -> None:
    side.kubelet.start()
    containers = [
        {"name": "main", "devices": [{"resource_name": "nvidia.com/h100", "device_ids": side.ids[:1]}]}
    ]
    side.kubelet.listed = [{"name": "train", "namespace": "ml", "containers": containers}]
    with daemon(side), cdigen_kubelet(side):
        assert until(lambda: side.lists(8))
        plugin = side.kubelet.endpoints[GPU]
        assert until(lambda: side.ids[0] not in plugin.prefer(side.ids, [], 7))
        side.kubelet.lists_at_once.clear()
        begun_s = time.monotonic()
        assert plugin.allocate(side.ids[0]).cdi_devices
        assert time.monotonic() - begun_s < 2.0
        side.kubelet.lists_at_once.set()
