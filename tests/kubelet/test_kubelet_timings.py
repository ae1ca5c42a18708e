"""The kubelet receives a changed list within a second, and after its start a registration within 0.5 s."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised import listing, registered
from support.kubelet.advertised_resources import h100, in_mig, with_gpus
from support.kubelet.process import Side, cdigen_kubelet, daemon, serving
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.kubelet.double import Kubelet

    from cdigen.kubelet.registration.link import KubeletLink

pytestmark = [pytest.mark.process, pytest.mark.wall_clock]
LISTED_S = 1.0
REGISTERED_S = 0.5


def listed_s(kubelet: Kubelet, change: Callable[[], object], is_listed: Callable[[], object]) -> float:
    """Return the seconds from CHANGE until the kubelet receives the list that makes IS_LISTED true."""
    changed_s = time.monotonic()
    change()
    assert until(is_listed)
    return kubelet.endpoints[GPU].times[-1] - changed_s


def test_the_link_sends_a_changed_list_within_a_second(kubelet: Kubelet, link: KubeletLink) -> None:
    registered(kubelet, link, "a")
    changed = (listing("a", "b"),)
    assert (
        listed_s(kubelet, lambda: link.advertise(changed), lambda: len(kubelet.list_of(GPU)) == 2) < LISTED_S
    )


def test_the_kubelet_lists_a_change_of_the_host_within_a_second(side: Side) -> None:
    kubelet = side.kubelet
    unhealthy = unhealthy_gpus.with_causes(side.inventories, 0, unhealthy_gpus.FELL)
    split = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    with daemon(side), serving(side):
        assert until(lambda: side.resource()["state"] == "registered")
        assert (
            listed_s(kubelet, lambda: side.put(unhealthy), lambda: "Unhealthy" in kubelet.health()) < LISTED_S
        )
        assert listed_s(kubelet, side.driver_goes, lambda: side.lists(0)) < LISTED_S
        assert listed_s(kubelet, lambda: side.put(side.inventories), lambda: side.lists(8)) < LISTED_S
        assert listed_s(kubelet, lambda: side.put(split), lambda: not side.lists(8)) < LISTED_S


def test_cdigen_registers_within_half_a_second_after_a_start_of_the_kubelet(side: Side) -> None:
    side.kubelet.kill()
    shutil.rmtree(side.kubelet_dir)
    with cdigen_kubelet(side):
        assert until(side.serves_http)
        assert until(lambda: side.resource()["state"] == "waiting")
        for _ in range(3):
            side.kubelet.start()
            started_s = time.monotonic()
            assert until(lambda: side.lists(8))
            assert side.kubelet.registered[-1][0] - started_s < REGISTERED_S
            # cdigen waits a second between two registrations.
            time.sleep(1.1)
            side.kubelet.kill()
