"""A unit that a container has under another name is not given twice, if the kubelet says so in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from support.kubelet.host_offering import PodLister, configure, desk, given, made, pod, put
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig, SharingRow
from cdigen.kubelet.pods import PodList
from cdigen.kubelet.wire.server import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.desks import Desk
    from cdigen.kubelet.offering import HostOffering

OTHER = "nvidia.com/h100"


@pytest.fixture
def of() -> HostOffering:
    return made()


@pytest.fixture
def gpus(of: HostOffering, tmp_path: Path) -> Desk:
    return desk(of, put(tmp_path, unhealthy_gpus.example()))


def first(of: Desk) -> str:
    return of.resource.units[0].id


def test_nobody_is_asked_about_a_unit_that_nobody_seems_to_have(of: HostOffering, gpus: Desk) -> None:
    kubelet = PodLister(of, pod(GPU, first(gpus)), pod(OTHER, gpus.resource.units[1].id), pod("x.com/y", "z"))

    assert given(gpus, first(gpus)).names
    assert kubelet.asked == 0


def test_a_kubelet_that_does_not_answer_refuses_nobody(of: HostOffering, gpus: Desk) -> None:
    kubelet = PodLister(of, pod(OTHER, first(gpus)))
    kubelet.pods = None

    assert given(gpus, first(gpus)).names
    assert kubelet.asked == 1


def test_the_kubelets_word_at_the_request_counts_and_not_an_older_one(of: HostOffering, gpus: Desk) -> None:
    kubelet = PodLister(of, pod(OTHER, first(gpus)))
    with pytest.raises(Refused, match=f"pod ml/a, container main, as {OTHER}"):
        given(gpus, first(gpus))
    kubelet.pods = ()

    assert given(gpus, first(gpus)).names
    # It was told so, and is not asked again.
    assert given(gpus, first(gpus)).names
    assert kubelet.asked == 2


def test_a_kubelet_that_knows_no_pod_yet_takes_nothing_back_and_is_asked(
    of: HostOffering, gpus: Desk
) -> None:
    kubelet = PodLister(of, pod(OTHER, first(gpus)))
    # It has just started, and its API server is away for long: it knows its pods before it admits the next.
    for _ in range(3):
        of.set_pods(PodList(devices=(), names=frozenset()))

        with pytest.raises(Refused, match=f"pod ml/a, container main, as {OTHER}"):
            given(gpus, first(gpus))
    assert kubelet.asked == 3


def test_what_a_kubelet_told_counts_as_a_suspicion_also_when_it_was_not_there_later(
    of: HostOffering, gpus: Desk
) -> None:
    # As while it restarts: the next question may be a minute away.
    kubelet = PodLister(of, pod(OTHER, first(gpus)))
    of.set_pods(None)

    with pytest.raises(Refused, match=f"pod ml/a, container main, as {OTHER}"):
        given(gpus, first(gpus))
    kubelet.pods = ()
    assert given(gpus, first(gpus)).names


def test_what_was_just_given_under_another_name_is_asked_about(tmp_path: Path) -> None:
    # As where a GPU is shared under another name from now on.
    row = SharingRow(resource=GPU, replicas=2, rename="nvidia.com/gpu.shared")
    of = made()
    host = put(tmp_path, unhealthy_gpus.example())
    before = desk(of, host)
    kubelet = PodLister(of)
    id_ = first(before)
    assert given(before, id_).names
    configure(of, KubeletConfig(sharing=(row,)))
    after = desk(of, host, "nvidia.com/gpu.shared")
    kubelet.pods = (pod(GPU, id_),)

    with pytest.raises(Refused, match=f"container main, as {GPU}"):
        given(after, f"{id_}::0")


def test_a_gpu_that_is_no_longer_shared_is_not_given_beside_its_former_shares(tmp_path: Path) -> None:
    of = made()
    alone = desk(of, put(tmp_path, unhealthy_gpus.example()))
    id_, other = (unit.id for unit in alone.resource.units[:2])
    PodLister(of, pod(GPU, f"{id_}::3"))

    with pytest.raises(Refused, match="pod ml/a, container main"):
        given(alone, id_)
    assert given(alone, other).names


def test_a_gpu_that_is_shared_now_is_not_given_beside_who_had_all_of_it(tmp_path: Path) -> None:
    row = SharingRow(resource=GPU, replicas=2)
    of = made(sharing=(row,))
    shared = desk(of, put(tmp_path, unhealthy_gpus.example()))
    whole = first(shared).partition("::")[0]
    kubelet = PodLister(of, pod(GPU, whole))

    with pytest.raises(Refused, match="pod ml/a, container main"):
        given(shared, f"{whole}::0")
    # Shares that are fewer than before are shares all the same.
    kubelet.pods = (pod(GPU, f"{whole}::7"),)
    assert given(shared, f"{whole}::0").names


def test_units_in_use_under_another_name_are_preferred_last(of: HostOffering, gpus: Desk) -> None:
    ids = tuple(unit.id for unit in gpus.resource.units)
    PodLister(of, pod(OTHER, *ids[:4]))

    assert set(gpus.prefer(ids, (), 4)) == set(ids[4:])
    # What the kubelet must have, it gets; and as many as it asks for.
    assert ids[0] in gpus.prefer(ids, (ids[0],), 4)
    assert len(gpus.prefer(ids, (), 5)) == 5


def test_allocate_waits_for_nothing_where_nothing_is_suspicious(of: HostOffering, gpus: Desk) -> None:
    PodLister(of)
    loop = asyncio.new_event_loop()
    answer = gpus.allocate((first(gpus),))
    # A coroutine that never waits ends at its first step.
    with pytest.raises(StopIteration) as done:
        answer.send(None)
    loop.close()
    assert done.value.value.names
