"""A unit that is in use under another resource name is refused if the kubelet lists the pods in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from support.kubelet.host_resources import (
    PodLister,
    allocate,
    allocator,
    configure,
    made,
    pod,
    preferred,
    put,
)
from support.kubelet.resources import GPU
from support.values import unhealthy_gpus

from cdigen.config import KubeletConfig, SharingRow
from cdigen.kubelet.pods import PodList
from cdigen.kubelet.wire.server import AllocateError

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.advertised_resources import AdvertisedResources
    from cdigen.kubelet.allocators import ResourceAllocator

OTHER = "nvidia.com/h100"


@pytest.fixture
def advertised() -> AdvertisedResources:
    return made()


@pytest.fixture
def gpus(advertised: AdvertisedResources, tmp_path: Path) -> ResourceAllocator:
    return allocator(advertised, put(tmp_path, unhealthy_gpus.example()))


def first(gpus: ResourceAllocator) -> str:
    return gpus.resource.units[0].id


def test_the_kubelet_is_not_queried_if_no_listed_pod_has_the_unit_under_another_name(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    kubelet = PodLister(
        advertised, pod(GPU, first(gpus)), pod(OTHER, gpus.resource.units[1].id), pod("x.com/y", "z")
    )

    assert allocate(gpus, first(gpus)).names
    assert kubelet.requests == 0


def test_a_unit_is_not_refused_if_the_kubelet_does_not_respond(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    kubelet = PodLister(advertised, pod(OTHER, first(gpus)))
    kubelet.pods = None

    assert allocate(gpus, first(gpus)).names
    assert kubelet.requests == 1


def test_a_new_list_of_pods_has_precedence_over_an_older_list(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    kubelet = PodLister(advertised, pod(OTHER, first(gpus)))
    with pytest.raises(AllocateError, match=f"pod ml/a, container main, as {OTHER}"):
        allocate(gpus, first(gpus))
    kubelet.pods = ()

    assert allocate(gpus, first(gpus)).names
    # The new list has no such user, and the kubelet is not queried again.
    assert allocate(gpus, first(gpus)).names
    assert kubelet.requests == 2


def test_an_empty_list_of_a_restarted_kubelet_is_ignored_and_the_kubelet_is_queried(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    kubelet = PodLister(advertised, pod(OTHER, first(gpus)))
    # A kubelet that has just started without its API server lists no pods, although containers use devices.
    # The list is complete before the kubelet admits a pod.
    for _ in range(3):
        advertised.kubelet.set_pods(PodList(devices=(), names=frozenset()))

        with pytest.raises(AllocateError, match=f"pod ml/a, container main, as {OTHER}"):
            allocate(gpus, first(gpus))
    assert kubelet.requests == 3


def test_after_a_failed_request_for_a_list_the_previous_list_still_causes_a_query(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    # The request for a list fails, for example, during a restart of the kubelet.
    kubelet = PodLister(advertised, pod(OTHER, first(gpus)))
    advertised.kubelet.set_pods(None)

    with pytest.raises(AllocateError, match=f"pod ml/a, container main, as {OTHER}"):
        allocate(gpus, first(gpus))
    kubelet.pods = ()
    assert allocate(gpus, first(gpus)).names


def test_a_recent_allocation_under_another_name_causes_a_query(tmp_path: Path) -> None:
    # The GPU is shared under another resource name after the allocation.
    row = SharingRow(resource=GPU, replicas=2, rename="nvidia.com/gpu.shared")
    advertised = made()
    host = put(tmp_path, unhealthy_gpus.example())
    before = allocator(advertised, host)
    kubelet = PodLister(advertised)
    id_ = first(before)
    assert allocate(before, id_).names
    configure(advertised, KubeletConfig(sharing=(row,)))
    after = allocator(advertised, host, "nvidia.com/gpu.shared")
    kubelet.pods = (pod(GPU, id_),)

    with pytest.raises(AllocateError, match=f"container main, as {GPU}"):
        allocate(after, f"{id_}::0")


def test_a_gpu_that_is_no_longer_shared_is_refused_while_its_replicas_are_in_use(tmp_path: Path) -> None:
    advertised = made()
    unshared = allocator(advertised, put(tmp_path, unhealthy_gpus.example()))
    id_, other = (unit.id for unit in unshared.resource.units[:2])
    PodLister(advertised, pod(GPU, f"{id_}::3"))

    with pytest.raises(AllocateError, match="pod ml/a, container main"):
        allocate(unshared, id_)
    assert allocate(unshared, other).names


def test_replicas_of_a_gpu_are_refused_while_the_whole_gpu_is_in_use(tmp_path: Path) -> None:
    row = SharingRow(resource=GPU, replicas=2)
    advertised = made(sharing=(row,))
    shared = allocator(advertised, put(tmp_path, unhealthy_gpus.example()))
    whole = first(shared).partition("::")[0]
    kubelet = PodLister(advertised, pod(GPU, whole))

    with pytest.raises(AllocateError, match="pod ml/a, container main"):
        allocate(shared, f"{whole}::0")
    # Replica 7 is from a configuration with more replicas. Replicas of a GPU do not exclude each other.
    kubelet.pods = (pod(GPU, f"{whole}::7"),)
    assert allocate(shared, f"{whole}::0").names


def test_units_in_use_under_another_name_are_preferred_last(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    ids = tuple(unit.id for unit in gpus.resource.units)
    PodLister(advertised, pod(OTHER, *ids[:4]))

    assert set(preferred(gpus, ids, (), 4)) == set(ids[4:])
    # The preferred ids include each required id, and have the requested number.
    assert ids[0] in preferred(gpus, ids, (ids[0],), 4)
    assert len(preferred(gpus, ids, (), 5)) == 5


def test_a_unit_that_was_allocated_a_moment_ago_is_preferred_last(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    # The kubelet 1.20.2 loses an allocation if a program lists the pods meanwhile, and offers the unit again.
    ids = tuple(unit.id for unit in gpus.resource.units)
    PodLister(advertised)
    allocate(gpus, ids[5])

    assert set(preferred(gpus, ids, (), len(ids) - 1)) == {*ids} - {ids[5]}
    assert len(preferred(gpus, ids, (), len(ids))) == len(ids)


def test_requests_of_the_kubelet_cause_no_list_if_no_container_seems_to_have_the_unit(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    # During a list, the kubelet 1.20.2 loses the devices that it allocates at that moment.
    ids = tuple(unit.id for unit in gpus.resource.units)
    kubelet = PodLister(advertised, pod(OTHER, ids[0]), pod(GPU, ids[1]), has_list=False)

    assert preferred(gpus, ids, (), 4)
    assert allocate(gpus, ids[0]).names
    advertised.kubelet.set_pods(PodList(devices=(), names=frozenset()))
    assert preferred(gpus, ids, (), 4)
    assert allocate(gpus, ids[2]).names
    assert kubelet.requests == 0


def test_two_requests_at_the_same_time_get_different_units(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    # The kubelet 1.20.2 allocates the devices of a pod that was deleted during its start again, at the same
    # time as the devices of another pod. It offers the same units for both.
    ids = tuple(unit.id for unit in gpus.resource.units)
    PodLister(advertised)

    async def both() -> list[tuple[str, ...]]:
        requests = (gpus.preferred_allocation(ids, (), count) for count in (3, 3))
        return await asyncio.gather(*requests)

    one, two = asyncio.run(both())
    assert set(one).isdisjoint(two)


def test_the_kubelet_is_not_queried_while_it_has_reserved_units(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    ids = tuple(unit.id for unit in gpus.resource.units)
    kubelet = PodLister(advertised, pod(GPU, ids[0]))

    assert ids[1] in preferred(gpus, ids, (ids[1],), 2)
    assert kubelet.requests == 0


def test_allocate_does_not_wait_if_no_pod_has_the_unit_under_another_name(
    advertised: AdvertisedResources, gpus: ResourceAllocator
) -> None:
    PodLister(advertised)
    loop = asyncio.new_event_loop()
    answer = gpus.allocate((first(gpus),))
    # A coroutine that never waits ends at its first step.
    with pytest.raises(StopIteration) as done:
        answer.send(None)
    loop.close()
    assert done.value.value.names
