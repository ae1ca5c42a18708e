"""Kubelets of before 1.36, which forget the new endpoint at the old one's late end; restarts in any order."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.kubelet.offered import offer, registered
from support.kubelet.resources import GPU
from support.waiting import pause, until

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.link import Link

STEPS = 10
NAMES = (GPU, "amd.com/gpu", "gpu.intel.com/xe")


def remove_our_sockets(kubelet: Kubelet) -> None:
    for path in kubelet.plugins.glob("cdigen-*"):
        with suppress(OSError):
            path.unlink()


# The double forgets by a clock of its own, half of MOMENT_S after the end.
@pytest.mark.wall_clock
def test_the_late_end_of_the_old_connection_takes_nothing_away(kubelet: Kubelet, link: Link) -> None:
    kubelet.forgets_after_s = 0.5
    kubelet.shows = False
    former = registered(kubelet, link, "a")
    remove_our_sockets(kubelet)
    link.look()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert until(lambda: kubelet.forgotten)
    assert kubelet.lists("a")


def test_a_kubelet_that_starts_when_the_next_try_is_due_is_told_of_no_socket_that_it_has_removed(
    kubelet: Kubelet, link: Link
) -> None:
    kubelet.start()
    kubelet.kill()
    link.offer((offer("a"),))
    assert until(lambda: link.statuses()[0].reason.startswith("UNAVAILABLE"))
    # Nothing tells the link of it before it tries again.
    kubelet.start()
    assert until(lambda: link.statuses()[0].reason == "its socket was removed")
    link.look()
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_an_endpoint_that_the_kubelet_has_forgotten_all_the_same_is_registered_again(
    kubelet: Kubelet, link: Link
) -> None:
    registered(kubelet, link, "a")
    # The stream goes on: nothing but the pod resources can tell.
    del kubelet.endpoints[GPU]
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 2


@pytest.mark.parametrize("seed", range(3))
def test_restarts_and_removals_in_any_order_end_with_every_resource_listed(
    kubelet: Kubelet, link: Link, seed: int
) -> None:
    chance = random.Random(seed)
    kubelet.forgets_after_s = 0.1

    def restart() -> None:
        kubelet.kill()
        pause(chance.choice((0.0, 0.0, 0.3)))
        kubelet.start()

    def end_a_stream() -> None:
        for endpoint in list(kubelet.endpoints.values())[:1]:
            endpoint.stop()

    kubelet.start()
    count = 1
    for _ in range(STEPS):
        count += 1
        link.offer(tuple(offer(*map(str, range(count)), resource=name) for name in NAMES))
        chance.choice((restart, end_a_stream, lambda: remove_our_sockets(kubelet)))()
        link.look()
        pause(chance.choice((0.0, 0.05, 0.3, 1.2)))
    ids = [str(number) for number in range(count)]
    for name in NAMES:
        assert until(partial(kubelet.lists, *ids, resource=name)), link.statuses()
    assert until(lambda: len(list(kubelet.plugins.glob("cdigen-*"))) == len(NAMES))
