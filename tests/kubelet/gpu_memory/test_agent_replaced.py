"""After a reload that starts another agent, the old or the new agent responds to each kubelet request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised_resources import sized, with_gpus
from support.kubelet.gpu_memory_side import PATIENT, Side, bound, wait
from support.kubelet.gpu_memory_world import NODE
from support.kubelet.host_resources import allocate, configure, made, memory_allocator, put
from support.kubelet.resources import listed
from support.kubernetes.gpu_memory_pods import RESOURCES
from support.waiting import PATIENCE_S

from cdigen.config import KubeletConfig, SharedMemory
from cdigen.gpushare.names import Resources
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.allocators import assign
from cdigen.kubelet.gpu_memory.agent import Agent
from cdigen.kubelet.gpu_memory.assign import AllocationRefusedError

if TYPE_CHECKING:
    from pathlib import Path


def shared_by(count: str) -> KubeletConfig:
    return KubeletConfig(
        shared_memory=SharedMemory(
            unit="GiB", devices=("0", "1"), resource=RESOURCES.memory, count=count, namespace="kube-system"
        )
    )


def test_a_request_during_a_reload_gets_a_response(side: Side, tmp_path: Path) -> None:
    def agent(shared: SharedMemory) -> Agent:
        api = from_kubeconfig(str(side.server.kubeconfig(tmp_path / "kubeconfig")))
        resources = Resources(memory=shared.resource, count=shared.count)
        found = Agent(api, NODE, shared.namespace, resources, print, limits=PATIENT)
        found.start()
        return found

    advertised = made(shared_by(RESOURCES.count), make_agent=agent)
    allocator = memory_allocator(
        advertised, put(tmp_path / "host", with_gpus(sized(0, 4096), sized(1, 6144)))
    )
    advertised.kubelet.set_pods(listed())
    bound(side, 3)
    # The kubelet still uses the old list. The new list follows after the next read of the host.
    configure(advertised, shared_by("example.com/gpus"))
    answer = allocate(allocator, *(unit.id for unit in allocator.resource.units[:3]))
    assert dict(answer.variables)["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    advertised.stop()


def test_the_next_agent_responds_to_a_request_to_a_stopped_agent(side: Side, tmp_path: Path) -> None:
    former = Side(side.world, side.server, tmp_path).agent
    former.stop()
    agents = iter((former,))
    name = bound(side, 3)
    wait(lambda: side.agent.state().pods == 1)
    units = frozenset(("GPU-0-_-0", "GPU-0-_-1", "GPU-0-_-2"))
    assignment = assign(lambda: next(agents, side.agent), 0, units)
    assert assignment.result(PATIENCE_S).bound.pod.name == name


def test_a_request_without_a_running_agent_is_refused_with_a_reason(side: Side, tmp_path: Path) -> None:
    with pytest.raises(AllocationRefusedError, match="GPUs are no longer shared by memory"):
        assign(lambda: None, 0, frozenset())
    former = Side(side.world, side.server, tmp_path).agent
    former.stop()
    with pytest.raises(AllocationRefusedError, match="the configuration changed during the request"):
        assign(lambda: former, 0, frozenset())
