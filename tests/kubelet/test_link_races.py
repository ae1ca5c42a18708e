"""Restarts of kubelets, also of kubelets that remove a new endpoint if the old connection ends late."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised import listing, registered
from support.kubelet.resources import GPU
from support.waiting import pause, until

if TYPE_CHECKING:
    from support.kubelet.double import Kubelet

    from cdigen.kubelet.registration.link import KubeletLink

STEPS = 10
NAMES = (GPU, "amd.com/gpu", "gpu.intel.com/xe")


def remove_our_sockets(kubelet: Kubelet) -> None:
    for path in kubelet.plugins.glob("cdigen-*"):
        with suppress(OSError):
            path.unlink()


# The double removes an endpoint 0.5 s (half of GRACE_S) after the end of the endpoint's stream.
@pytest.mark.wall_clock
def test_a_late_end_of_the_old_connection_does_not_remove_the_new_endpoint(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.forgets_after_s = 0.5
    kubelet.shows = False
    former = registered(kubelet, link, "a")
    remove_our_sockets(kubelet)
    link.check_folder()
    assert until(lambda: kubelet.endpoints[GPU] is not former and kubelet.lists("a"))
    assert until(lambda: kubelet.forgotten)
    assert kubelet.lists("a")


def test_a_socket_that_a_starting_kubelet_has_removed_is_not_registered(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    kubelet.start()
    kubelet.kill()
    link.advertise((listing("a"),))
    assert until(lambda: link.statuses()[0].reason.startswith("UNAVAILABLE"))
    # The link gets no event of the new kubelet before the next attempt.
    kubelet.start()
    assert until(lambda: link.statuses()[0].reason == "the plugin's socket was removed")
    link.check_folder()
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 1


def test_an_endpoint_that_the_kubelet_removes_during_a_stream_is_registered_again(
    kubelet: Kubelet, link: KubeletLink
) -> None:
    registered(kubelet, link, "a")
    # The stream continues. Only the pod resources API shows the change.
    del kubelet.endpoints[GPU]
    assert until(lambda: kubelet.lists("a"))
    assert len(kubelet.registered) == 2


@pytest.mark.parametrize("seed", range(3))
def test_after_any_order_of_restarts_and_removed_sockets_every_resource_is_listed(
    kubelet: Kubelet, link: KubeletLink, seed: int
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
        link.advertise(tuple(listing(*map(str, range(count)), resource=name) for name in NAMES))
        chance.choice((restart, end_a_stream, lambda: remove_our_sockets(kubelet)))()
        link.check_folder()
        pause(chance.choice((0.0, 0.05, 0.3, 1.2)))
    ids = [str(number) for number in range(count)]
    for name in NAMES:
        assert until(partial(kubelet.lists, *ids, resource=name)), link.statuses()
    assert until(lambda: len(list(kubelet.plugins.glob("cdigen-*"))) == len(NAMES))
