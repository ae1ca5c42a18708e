"""A GPU has one allocation mode at a time, so a change of the configuration allocates no GPU twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.advertised_resources import h100, sized, with_gpus
from support.kubelet.host_resources import AnyPod, configure, made, pod, put
from support.kubelet.resources import GPU, listed
from support.kubernetes.gpu_memory_pods import MEMORY

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.kubelet.pods import PodList
from cdigen.model.errors import ConfigError
from cdigen.store.records import unit_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.kubelet.pods import PodDevices
    from cdigen.service.host_state import HostState

FIRST, SECOND = str(h100(0).uuid), str(h100(1).uuid)
WHOLE = KubeletConfig()


def in_units(**settings: Any) -> KubeletConfig:
    return KubeletConfig(shared_memory=SharedMemory(**{"unit": "GiB", "devices": ("0", "1"), **settings}))


class Node:
    """A host with eight GPUs; the memory of two GPUs is known. `agents` has each agent with its settings."""

    def __init__(self, root: Path, settings: KubeletConfig) -> None:
        self.host: HostState = put(root, with_gpus(sized(0, 4096), sized(1, 4096)))
        self.agents: list[tuple[SharedMemory, AnyPod | None]] = []
        self.problem = ""
        self.advertised = made(settings, make_agent=self.make, state_dir=str(root / "state"))

    def make(self, shared: SharedMemory) -> AnyPod | None:
        if self.problem:
            raise ConfigError(self.problem)
        agent = None if shared.unit == "none" else AnyPod()
        self.agents.append((shared, agent))
        return agent

    def configure(self, settings: KubeletConfig) -> None:
        configure(self.advertised, settings)

    def list_pods(self, *pods: PodDevices) -> bool:
        """Set the kubelet's list of pods to PODS; return whether the resources change."""
        self.advertised.kubelet.set_pods(listed(*pods))
        return self.advertised.has_changed()

    def free(self, name: str = MEMORY) -> dict[str, int]:
        """Return the number of units of the resource NAME that are not unhealthy, for FIRST and SECOND."""
        found: dict[str, int] = {}
        for resource, _ in self.advertised.resources(self.host) or ():
            for unit in resource.units if resource.name == name else ():
                device = unit.id.partition("-_-")[0].partition("::")[0]
                found[device] = found.get(device, 0) + (unit.health != "unhealthy")
        return {device: count for device, count in found.items() if device in {FIRST, SECOND}}

    def held(self) -> list[str]:
        return [one.message for one in self.advertised.findings() if one.rule == "shared-memory-held"]

    def gpu_health(self) -> list[bool]:
        """Return whether each GPU that the agent advertises to the API server is healthy."""
        agent = self.agents[-1][1]
        assert agent is not None
        assert agent.advertised is not None
        return [gpu.is_healthy for gpu in agent.advertised.gpus]


@pytest.mark.parametrize("id_", [FIRST, f"{FIRST}::1"])
def test_memory_units_of_a_gpu_are_unhealthy_while_a_container_uses_the_gpu(tmp_path: Path, id_: str) -> None:
    node = Node(tmp_path, WHOLE)
    assert node.free(GPU) == {FIRST: 1, SECOND: 1}
    node.list_pods(pod(GPU, id_))
    node.configure(in_units())
    assert node.free() == {FIRST: 0, SECOND: 4}
    assert node.free(GPU) == {}
    use = "the device is in use by pod ml/a, container main, as nvidia.com/gpu"
    assert node.held() == [f"4 units of {FIRST} cannot be allocated as {MEMORY}: {use}"]
    assert node.gpu_health() == [False, True]
    assert not node.list_pods(pod(GPU, id_))
    assert node.list_pods()
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert (node.held(), node.gpu_health()) == ([], [True, True])


def test_a_gpu_with_memory_units_in_use_is_not_allocated_whole_or_in_replicas(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.list_pods(pod(MEMORY, f"{FIRST}-_-2"))
    for settings in (WHOLE, KubeletConfig(sharing=(SharingRow(resource=GPU, replicas=3),))):
        node.configure(settings)
        assert node.free(GPU)[FIRST] == 0
        assert node.free(GPU)[SECOND] > 0
        assert f"{GPU}: the device is in use by pod ml/a, container main, as {MEMORY}" in node.held()[0]
    assert node.list_pods()
    assert node.free(GPU)[FIRST] == 3


def test_units_in_use_under_another_resource_name_are_unhealthy_and_other_units_are_not(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.list_pods(pod(MEMORY, f"{FIRST}-_-1", f"{FIRST}-_-2", f"{FIRST}-_-3"))
    node.configure(in_units(resource="example.com/memory"))
    assert node.free("example.com/memory") == {FIRST: 1, SECOND: 4}
    assert node.gpu_health() == [True, True]
    assert len(node.held()) == 1


@pytest.mark.parametrize("unit", ["MiB", "512MiB", "2GiB"])
def test_units_of_a_new_size_are_unhealthy_while_a_container_has_units_of_the_old_size(
    tmp_path: Path, unit: str
) -> None:
    """The kubelet cannot distinguish units of 1 GiB and of 512 MiB, because their ids are equal."""
    node = Node(tmp_path, in_units())
    node.free()
    node.list_pods(pod(MEMORY, f"{FIRST}-_-0"))
    node.configure(in_units(unit=unit))
    free = node.free()
    assert free[FIRST] == 0
    assert free[SECOND] > 0
    assert node.gpu_health() == [False, True]
    assert "in units of 1024 MiB" in node.held()[0]
    # With the former size, no unit of the GPU is unhealthy.
    node.configure(in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
    node.configure(in_units(unit=unit))
    assert node.list_pods()
    assert node.free() == {FIRST: free[SECOND], SECOND: free[SECOND]}


def test_the_empty_list_of_a_kubelet_that_has_just_started_frees_no_gpu(tmp_path: Path) -> None:
    node = Node(tmp_path, WHOLE)
    node.list_pods(pod(GPU, FIRST))
    node.configure(in_units())
    assert node.free() == {FIRST: 0, SECOND: 4}
    empty = PodList(devices=(), names=frozenset())
    node.advertised.kubelet.set_pods(empty)
    assert not node.advertised.has_changed()
    assert node.free() == {FIRST: 0, SECOND: 4}
    # The kubelet of a node without pods also sends a second empty list.
    node.advertised.kubelet.set_pods(empty)
    assert node.advertised.has_changed()
    assert node.free() == {FIRST: 4, SECOND: 4}


def test_the_size_of_memory_units_is_stored_for_a_later_start(tmp_path: Path) -> None:
    """The kubelet stores only ids, which are equal for units of 1 GiB and of 512 MiB."""
    before = Node(tmp_path, in_units())
    before.free()
    before.list_pods(pod(MEMORY, f"{FIRST}-_-0"))
    before.free()
    node = Node(tmp_path, in_units(unit="512MiB"))
    # Before the kubelet has listed the pods, any GPU may have units in use.
    assert node.free() == {FIRST: 0, SECOND: 0}
    assert "a container may have units of 1024 MiB" in node.held()[0]
    assert node.list_pods(pod(MEMORY, f"{FIRST}-_-0"))
    assert node.free() == {FIRST: 0, SECOND: 8}
    assert node.list_pods()
    assert node.free() == {FIRST: 8, SECOND: 8}
    assert Node(tmp_path, in_units(unit="512MiB")).free() == {FIRST: 8, SECOND: 8}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1, "sizes": {"GPU-x": -1}}', b'{"schema": 2, "sizes": {}}']
)
def test_an_invalid_file_of_unit_sizes_is_ignored(tmp_path: Path, content: bytes) -> None:
    Node(tmp_path, in_units()).free()
    file = tmp_path / "state" / unit_sizes.FILE
    assert unit_sizes.read(str(file.parent)) == {FIRST: 1024, SECOND: 1024}
    file.write_bytes(content)
    assert unit_sizes.read(str(file.parent)) == {}
    assert Node(tmp_path, in_units(unit="512MiB")).free() == {FIRST: 8, SECOND: 8}


def test_unit_sizes_that_cannot_be_stored_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    node = Node(tmp_path, in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert f"{tmp_path}/state/{unit_sizes.FILE}" in [one.path for one in node.advertised.findings()]


def test_devices_in_use_in_their_present_mode_stay_healthy(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.list_pods(pod(MEMORY, f"{FIRST}-_-0"), pod(GPU, str(h100(2).uuid)), pod("x.com/nic", "a-_-b"))
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert node.held() == []
    assert not node.list_pods(pod(MEMORY, f"{FIRST}-_-0", f"{FIRST}-_-1"), pod("x.com/nic", "a-_-b"))


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"resource": "example.com/memory"}, 2),
        ({"count": "example.com/gpus"}, 2),
        ({"namespace": "gpu"}, 2),
        ({"unit": "none"}, 2),
        ({"unit": "256MiB"}, 1),
        ({"devices": ("0",)}, 1),
        ({"mps": True}, 1),
    ],
)
def test_the_agent_is_replaced_only_if_a_setting_of_the_agent_changes(
    tmp_path: Path, change: dict[str, Any], count: int
) -> None:
    node = Node(tmp_path, in_units())
    node.configure(in_units(**change))
    assert len(node.agents) == count
    _, former = node.agents[0]
    assert former is not None
    assert former.is_stopped is (count > 1)
    assert count == 1 or node.agents[1][0] == in_units(**change).shared_memory


def test_a_new_agent_gets_the_list_of_pods(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.list_pods(pod(MEMORY, f"{FIRST}-_-0"))
    node.configure(in_units(count="example.com/gpus"))
    node.free("none")
    agent = node.agents[-1][1]
    assert agent is not None
    assert agent.pods == listed(pod(MEMORY, f"{FIRST}-_-0"))


def test_after_a_reload_without_a_usable_kubeconfig_no_units_are_advertised(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.problem = "the kubeconfig /x cannot be read"
    node.configure(in_units(namespace="gpu"))
    assert node.free() == {}
    assert node.free(GPU) == {}
    (finding,) = (one for one in node.advertised.findings() if one.rule == "shared-memory-without-api")
    assert "the kubeconfig /x cannot be read" in finding.message
    node.problem = ""
    node.configure(in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
