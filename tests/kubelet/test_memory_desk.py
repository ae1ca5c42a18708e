"""Who has units of a GPU's memory: what they get with MPS and without, and never what others have whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.kubelet import offering
from support.kubelet.host_offering import GPU, AnyPod, Kubelet, mps_control, pod, put

from cdigen.config import KubeletConfig, SharedMemory
from cdigen.kubelet.desks import MemoryDesk
from cdigen.kubelet.offering import HostOffering
from cdigen.kubelet.wire.server import Refused
from cdigen.model.profile import DEFAULT
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.answers import Answer
    from cdigen.kubelet.shares.agent import Agent

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


def sharing(**settings: Any) -> HostOffering:
    given = KubeletConfig(**settings)
    return HostOffering(given, (DEFAULT,), "/var/lib/kubelet", agents=lambda _: cast("Agent", AnyPod()))


def desk(of: HostOffering, root: Path, *sizes: int) -> MemoryDesk:
    gpus = [replace(offering.h100(index), memory_mib=mib) for index, mib in enumerate(sizes or (81559,))]
    host = put(root, offering.with_gpus(*gpus))
    return next(one for _, one in of.resources(host) or () if isinstance(one, MemoryDesk))


def units(of: MemoryDesk, count: int) -> tuple[str, ...]:
    return tuple(unit.id for unit in of.resource.units[:count])


def given(of: MemoryDesk, *ids: str) -> Answer:
    return asyncio.run(of.allocate(ids))


def test_with_mps_a_container_reaches_its_daemon_and_each_process_is_held_to_its_share(
    tmp_path: Path,
) -> None:
    root = tmp_path / "mps"
    shared = SharedMemory(unit="256MiB", devices=("0",), mps=True, resource="m/gpu")
    of = desk(sharing(shared_memory=shared, mps_root=str(root)), tmp_path / "host")
    with pytest.raises(Refused, match=r"m/gpu is shared by MPS: .*control: No such file"):
        given(of, *units(of, 3))
    pipe = root / "m/gpu/pipe"
    with mps_control(pipe):
        answer = given(of, *units(of, 3))
    assert [folder.path for folder in answer.folders] == [str(pipe), "/dev/shm"]
    assert {name: text for name, text in answer.variables if name in {PIPE, LIMIT}} == {
        PIPE: str(pipe),
        LIMIT: "0=768M",
    }
    with pytest.raises(Refused, match="no control daemon listens"):
        given(of, *units(of, 3))


def test_without_mps_nothing_says_that_a_share_is_enforced(tmp_path: Path) -> None:
    of = desk(sharing(shared_memory=SharedMemory(unit="GiB", devices=("0",))), tmp_path)
    answer = given(of, *units(of, 2))
    assert answer.folders == ()
    assert {name for name, _ in answer.variables}.isdisjoint({PIPE, LIMIT})
    assert dict(answer.variables)["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"


@pytest.mark.parametrize("id_", [offering.h100(0).uuid, f"{offering.h100(0).uuid}::1"])
def test_units_of_a_gpu_that_a_container_has_whole_are_refused(tmp_path: Path, id_: str) -> None:
    host = sharing(shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    of = desk(host, tmp_path)
    Kubelet(host, pod(GPU, id_))
    with pytest.raises(Refused, match=r"another container has what is asked for .*as nvidia\.com/gpu"):
        given(of, *units(of, 2))


def test_before_the_kubelet_has_told_anything_it_is_asked(tmp_path: Path) -> None:
    host = sharing(shared_memory=SharedMemory(unit="GiB", devices=("0",)))
    of = desk(host, tmp_path)
    kubelet = Kubelet(host, has_told=False)
    kubelet.pods = (pod(GPU, str(offering.h100(0).uuid)),)
    with pytest.raises(Refused, match=r"as nvidia\.com/gpu"):
        given(of, *units(of, 1))
