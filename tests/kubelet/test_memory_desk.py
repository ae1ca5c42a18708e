"""Who has units of a GPU's memory: what they get with MPS and without, and never what others have whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.host_offering import AnyPod, PodLister, given, made, memory_desk, mps_control, pod, put
from support.kubelet.offering import h100, sized, with_gpus
from support.kubelet.resources import GPU

from cdigen.config import SharedMemory
from cdigen.kubelet.wire.server import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.desks import MemoryDesk
    from cdigen.kubelet.offering import HostOffering

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


SHARED = SharedMemory(unit="GiB", devices=("0",))


def sharing(shared: SharedMemory = SHARED, **settings: Any) -> HostOffering:
    return made(agents=lambda _: AnyPod(), shared_memory=shared, **settings)


def desk(of: HostOffering, root: Path) -> MemoryDesk:
    return memory_desk(of, put(root, with_gpus(sized(0, 81559))))


def units(of: MemoryDesk, count: int) -> tuple[str, ...]:
    return tuple(unit.id for unit in of.resource.units[:count])


def test_with_mps_a_container_reaches_its_daemon_and_each_process_is_held_to_its_share(
    tmp_path: Path,
) -> None:
    root = tmp_path / "mps"
    shared = SharedMemory(unit="256MiB", devices=("0",), mps=True, resource="m/gpu")
    of = desk(sharing(shared, mps_root=str(root)), tmp_path / "host")
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
    of = desk(sharing(), tmp_path)
    answer = given(of, *units(of, 2))
    assert answer.folders == ()
    assert {name for name, _ in answer.variables}.isdisjoint({PIPE, LIMIT})
    assert dict(answer.variables)["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"


@pytest.mark.parametrize("id_", [h100(0).uuid, f"{h100(0).uuid}::1"])
def test_units_of_a_gpu_that_a_container_has_whole_are_refused(tmp_path: Path, id_: str) -> None:
    host = sharing()
    of = desk(host, tmp_path)
    PodLister(host, pod(GPU, id_))
    with pytest.raises(Refused, match=r"another container has what is asked for .*as nvidia\.com/gpu"):
        given(of, *units(of, 2))


def test_before_the_kubelet_has_told_anything_it_is_asked(tmp_path: Path) -> None:
    host = sharing()
    of = desk(host, tmp_path)
    kubelet = PodLister(host, has_told=False)
    kubelet.pods = (pod(GPU, str(h100(0).uuid)),)
    with pytest.raises(Refused, match=r"as nvidia\.com/gpu"):
        given(of, *units(of, 1))
