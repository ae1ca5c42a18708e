"""Memory units with and without MPS: the variables of a container, and refusals of GPUs that are in use."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.advertised_resources import h100, sized, with_gpus
from support.kubelet.host_resources import (
    AnyPod,
    PodLister,
    allocate,
    made,
    memory_allocator,
    mps_control,
    pod,
    preferred,
    put,
)
from support.kubelet.resources import GPU

from cdigen.config import SharedMemory
from cdigen.kubelet.wire.server import AllocateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cdigen.kubelet.advertised_resources import AdvertisedResources
    from cdigen.kubelet.allocators import MemoryAllocator

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


SHARED = SharedMemory(unit="GiB", devices=("0",))


def sharing(shared: SharedMemory = SHARED, **settings: Any) -> AdvertisedResources:
    return made(make_agent=lambda _: AnyPod(), shared_memory=shared, **settings)


def allocator(advertised: AdvertisedResources, root: Path) -> MemoryAllocator:
    return memory_allocator(advertised, put(root, with_gpus(sized(0, 81559))))


def units(gpu_memory: MemoryAllocator, count: int) -> tuple[str, ...]:
    return tuple(unit.id for unit in gpu_memory.resource.units[:count])


def test_with_mps_a_container_gets_the_pipe_directory_and_a_memory_limit(
    tmp_path: Path,
) -> None:
    root = tmp_path / "mps"
    shared = SharedMemory(unit="256MiB", devices=("0",), mps=True, resource="m/gpu")
    gpu_memory = allocator(sharing(shared, mps_root=str(root)), tmp_path / "host")
    with pytest.raises(AllocateError, match=r"m/gpu: MPS is not available: .*control: No such file"):
        allocate(gpu_memory, *units(gpu_memory, 3))
    pipe = root / "m/gpu/pipe"
    with mps_control(pipe):
        answer = allocate(gpu_memory, *units(gpu_memory, 3))
    assert [folder.path for folder in answer.folders] == [str(pipe), "/dev/shm"]
    assert {name: text for name, text in answer.variables if name in {PIPE, LIMIT}} == {
        PIPE: str(pipe),
        LIMIT: "0=768M",
    }
    with pytest.raises(AllocateError, match="no control daemon listens"):
        allocate(gpu_memory, *units(gpu_memory, 3))


def test_without_mps_a_container_gets_no_variables_and_folders_of_mps(tmp_path: Path) -> None:
    gpu_memory = allocator(sharing(), tmp_path)
    answer = allocate(gpu_memory, *units(gpu_memory, 2))
    assert answer.folders == ()
    assert {name for name, _ in answer.variables}.isdisjoint({PIPE, LIMIT})
    assert dict(answer.variables)["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"


@pytest.mark.parametrize("id_", [h100(0).uuid, f"{h100(0).uuid}::1"])
def test_memory_units_are_refused_while_a_container_has_the_gpu_or_a_replica(
    tmp_path: Path, id_: str
) -> None:
    host = sharing()
    gpu_memory = allocator(host, tmp_path)
    PodLister(host, pod(GPU, id_))
    with pytest.raises(AllocateError, match=r"another container has .*as nvidia\.com/gpu"):
        allocate(gpu_memory, *units(gpu_memory, 2))


def test_two_containers_at_the_same_time_get_different_units_of_a_gpu(tmp_path: Path) -> None:
    host = sharing()
    gpu_memory = allocator(host, tmp_path)
    offered = units(gpu_memory, 4)
    PodLister(host)

    async def both() -> list[tuple[str, ...]]:
        return await asyncio.gather(*(gpu_memory.preferred_allocation(offered, (), 2) for _ in range(2)))

    one, two = asyncio.run(both())
    assert {*one, *two} == set(offered)
    # Without other units of the GPU, these units are chosen, because the kubelet offers them.
    assert len(preferred(gpu_memory, offered, (), 4)) == 4


class FirstWithEnough(AnyPod):
    """An agent that prefers the first GPU with enough free units."""

    def preferred_gpu(self, free: dict[int, int], _must: Sequence[int], count: int) -> Future[int | None]:
        done: Future[int | None] = Future()
        done.set_result(next((gpu for gpu, units in free.items() if units >= count), None))
        return done


def test_recently_chosen_units_of_the_gpu_are_better_than_units_of_another_gpu(tmp_path: Path) -> None:
    shared = SharedMemory(unit="GiB", devices=("0", "1"))
    host = made(make_agent=lambda _: FirstWithEnough(), shared_memory=shared)
    gpu_memory = memory_allocator(host, put(tmp_path, with_gpus(sized(0, 8192), sized(1, 8192))))
    offered = tuple(unit.id for unit in gpu_memory.resource.units)
    own = offered[: len(offered) // 2]
    # A container with units of the first GPU has just ended.
    allocate(gpu_memory, *own[:3])
    assert set(preferred(gpu_memory, offered, (), len(own))) == set(own)
