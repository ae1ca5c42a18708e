"""A configuration that makes another agent: one of the two answers the kubelet's requests meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.host_offering import configure, given, made, memory_desk, put
from support.kubelet.offering import sized, with_gpus
from support.kubelet.resources import listed
from support.kubelet.shares_side import PATIENT, Side, bound, wait
from support.kubelet.shares_world import NODE
from support.kubernetes.shared_pods import RESOURCES
from support.waiting import PATIENCE_S

from cdigen.config import KubeletConfig, SharedMemory
from cdigen.gpushare.names import Resources
from cdigen.kubeapi.credentials import from_kubeconfig
from cdigen.kubelet.shares.agent import Agent
from cdigen.kubelet.shares.desk import LatestPromises
from cdigen.kubelet.shares.settling import ShareRefused

if TYPE_CHECKING:
    from pathlib import Path


def shared_by(count: str) -> KubeletConfig:
    return KubeletConfig(
        shared_memory=SharedMemory(
            unit="GiB", devices=("0", "1"), resource=RESOURCES.memory, count=count, namespace="kube-system"
        )
    )


def test_a_request_at_a_reload_is_answered(side: Side, tmp_path: Path) -> None:
    def agent(shared: SharedMemory) -> Agent:
        api = from_kubeconfig(str(side.server.kubeconfig(tmp_path / "kubeconfig")))
        resources = Resources(memory=shared.resource, count=shared.count)
        found = Agent(api, NODE, shared.namespace, resources, print, limits=PATIENT)
        found.start()
        return found

    of = made(shared_by(RESOURCES.count), agents=agent)
    desk = memory_desk(of, put(tmp_path / "host", with_gpus(sized(0, 4096), sized(1, 6144))))
    of.set_pods(listed())
    bound(side, 3)
    # The kubelet still asks by the list of before: another follows once the host was read.
    configure(of, shared_by("example.com/gpus"))
    answer = given(desk, *(unit.id for unit in desk.resource.units[:3]))
    assert dict(answer.variables)["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    of.stop()


def test_a_request_that_found_the_former_agent_is_the_next_ones(side: Side, tmp_path: Path) -> None:
    former = Side(side.world, side.server, tmp_path).agent
    former.stop()
    agents = iter((former,))
    promises = LatestPromises(lambda: next(agents, side.agent))
    name = bound(side, 3)
    wait(lambda: side.agent.state().pods == 1)
    settled = promises.settle(0, frozenset(("GPU-0-_-0", "GPU-0-_-1", "GPU-0-_-2"))).result(PATIENCE_S)
    assert settled.bound.pod.name == name


def test_where_no_agent_follows_a_request_is_refused_with_a_reason(side: Side, tmp_path: Path) -> None:
    with pytest.raises(ShareRefused, match="nobody tells any more which pods ask for it"):
        LatestPromises(lambda: None).settle(0, frozenset())
    former = Side(side.world, side.server, tmp_path).agent
    former.stop()
    with pytest.raises(ShareRefused, match="the configuration has changed at this moment"):
        LatestPromises(lambda: former).settle(0, frozenset())
