"""A GPU in one form at a time: where the configuration changes, nobody gets it twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.host_offering import AnyPod, configure, made, pod, put
from support.kubelet.offering import h100, sized, with_gpus
from support.kubelet.resources import GPU, listed
from support.kubernetes.shared_pods import MEMORY

from cdigen.config import KubeletConfig, SharedMemory, SharingRow
from cdigen.kubelet.pods import PodList
from cdigen.model.errors import ConfigError
from cdigen.store import unit_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.frontend.host_state import HostState
    from cdigen.kubelet.pods import PodDevices

FIRST, SECOND = str(h100(0).uuid), str(h100(1).uuid)
WHOLE = KubeletConfig()


def in_units(**settings: Any) -> KubeletConfig:
    return KubeletConfig(shared_memory=SharedMemory(**{"unit": "GiB", "devices": ("0", "1"), **settings}))


class Node:
    """A host with two sized GPUs of eight; `agents` are those that were made, and by what."""

    def __init__(self, root: Path, settings: KubeletConfig) -> None:
        self.host: HostState = put(root, with_gpus(sized(0, 4096), sized(1, 4096)))
        self.agents: list[tuple[SharedMemory, AnyPod | None]] = []
        self.problem = ""
        self.of = made(settings, agents=self.make, state_dir=str(root / "state"))

    def make(self, shared: SharedMemory) -> AnyPod | None:
        if self.problem:
            raise ConfigError(self.problem)
        agent = None if shared.unit == "none" else AnyPod()
        self.agents.append((shared, agent))
        return agent

    def configure(self, settings: KubeletConfig) -> None:
        configure(self.of, settings)

    def tell(self, *pods: PodDevices) -> bool:
        """Let the kubelet say that containers have PODS; returns whether that changes what is offered."""
        self.of.set_pods(listed(*pods))
        return self.of.has_changed()

    def free(self, name: str = MEMORY) -> dict[str, int]:
        """Return how many units of NAME may be given now, by GPU."""
        found: dict[str, int] = {}
        for resource, _ in self.of.resources(self.host) or ():
            for unit in resource.units if resource.name == name else ():
                device = unit.id.partition("-_-")[0].partition("::")[0]
                found[device] = found.get(device, 0) + (unit.health != "unhealthy")
        return {device: count for device, count in found.items() if device in {FIRST, SECOND}}

    def held(self) -> list[str]:
        return [one.message for one in self.of.findings() if one.rule == "shared-memory-held"]

    def shown(self) -> list[bool]:
        """Return whether the GPUs are healthy as the API server is told."""
        agent = self.agents[-1][1]
        assert agent is not None
        assert agent.shown is not None
        return [gpu.is_healthy for gpu in agent.shown.gpus]


@pytest.mark.parametrize("id_", [FIRST, f"{FIRST}::1"])
def test_a_gpu_that_becomes_units_has_none_to_give_while_a_container_has_it(tmp_path: Path, id_: str) -> None:
    node = Node(tmp_path, WHOLE)
    assert node.free(GPU) == {FIRST: 1, SECOND: 1}
    node.tell(pod(GPU, id_))
    node.configure(in_units())
    assert node.free() == {FIRST: 0, SECOND: 4}
    assert node.free(GPU) == {}
    assert node.held() == [
        f"4 of {FIRST} cannot be given as {MEMORY}: pod ml/a, container main, as nvidia.com/gpu, has it"
    ]
    assert node.shown() == [False, True]
    assert not node.tell(pod(GPU, id_))
    assert node.tell()
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert (node.held(), node.shown()) == ([], [True, True])


def test_a_gpu_whose_units_a_container_has_is_not_given_whole_or_in_replicas(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.tell(pod(MEMORY, f"{FIRST}-_-2"))
    for settings in (WHOLE, KubeletConfig(sharing=(SharingRow(resource=GPU, replicas=3),))):
        node.configure(settings)
        assert node.free(GPU)[FIRST] == 0
        assert node.free(GPU)[SECOND] > 0
        assert f"cannot be given as {GPU}: pod ml/a, container main, as {MEMORY}, has it" in node.held()[0]
    assert node.tell()
    assert node.free(GPU)[FIRST] == 3


def test_under_another_name_the_units_that_a_container_has_are_not_given_and_others_are(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.tell(pod(MEMORY, f"{FIRST}-_-1", f"{FIRST}-_-2", f"{FIRST}-_-3"))
    node.configure(in_units(resource="example.com/memory"))
    assert node.free("example.com/memory") == {FIRST: 1, SECOND: 4}
    assert node.shown() == [True, True]
    assert len(node.held()) == 1


@pytest.mark.parametrize("unit", ["MiB", "512MiB", "2GiB"])
def test_units_of_another_size_wait_for_containers_with_those_of_before(tmp_path: Path, unit: str) -> None:
    """One of 1 GiB counts in the kubelet's books as one of 512 MiB, as it has the id of such a one."""
    node = Node(tmp_path, in_units())
    node.free()
    node.tell(pod(MEMORY, f"{FIRST}-_-0"))
    node.configure(in_units(unit=unit))
    free = node.free()
    assert free[FIRST] == 0
    assert free[SECOND] > 0
    assert node.shown() == [False, True]
    assert "in units of 1024 MiB" in node.held()[0]
    # Back again, the rest of the GPU can be given.
    node.configure(in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
    node.configure(in_units(unit=unit))
    assert node.tell()
    assert node.free() == {FIRST: free[SECOND], SECOND: free[SECOND]}


def test_a_kubelet_that_has_just_started_frees_no_gpu_by_a_list_without_pods(tmp_path: Path) -> None:
    node = Node(tmp_path, WHOLE)
    node.tell(pod(GPU, FIRST))
    node.configure(in_units())
    assert node.free() == {FIRST: 0, SECOND: 4}
    empty = PodList(devices=(), names=frozenset())
    node.of.set_pods(empty)
    assert not node.of.has_changed()
    assert node.free() == {FIRST: 0, SECOND: 4}
    # That of a node without pods is no other the next time.
    node.of.set_pods(empty)
    assert node.of.has_changed()
    assert node.free() == {FIRST: 4, SECOND: 4}


def test_of_which_size_units_are_is_known_to_a_later_start(tmp_path: Path) -> None:
    """The kubelet keeps the ids, and those of 1 GiB are also ids of 512 MiB."""
    before = Node(tmp_path, in_units())
    before.free()
    before.tell(pod(MEMORY, f"{FIRST}-_-0"))
    before.free()
    node = Node(tmp_path, in_units(unit="512MiB"))
    # Until the kubelet has told who has what, any may have some.
    assert node.free() == {FIRST: 0, SECOND: 0}
    assert "has not told yet whether a container has units of 1024 MiB" in node.held()[0]
    assert node.tell(pod(MEMORY, f"{FIRST}-_-0"))
    assert node.free() == {FIRST: 0, SECOND: 8}
    assert node.tell()
    assert node.free() == {FIRST: 8, SECOND: 8}
    assert Node(tmp_path, in_units(unit="512MiB")).free() == {FIRST: 8, SECOND: 8}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"schema": 1, "sizes": {"GPU-x": -1}}', b'{"schema": 2, "sizes": {}}']
)
def test_a_torn_file_of_sizes_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    Node(tmp_path, in_units()).free()
    file = tmp_path / "state" / unit_sizes.FILE
    assert unit_sizes.read(str(file.parent)) == {FIRST: 1024, SECOND: 1024}
    file.write_bytes(content)
    assert unit_sizes.read(str(file.parent)) == {}
    assert Node(tmp_path, in_units(unit="512MiB")).free() == {FIRST: 8, SECOND: 8}


def test_sizes_that_cannot_be_kept_are_a_finding(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    node = Node(tmp_path, in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert f"{tmp_path}/state/{unit_sizes.FILE}" in [one.path for one in node.of.findings()]


def test_what_containers_have_in_its_own_form_costs_a_gpu_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.free()
    node.tell(pod(MEMORY, f"{FIRST}-_-0"), pod(GPU, str(h100(2).uuid)), pod("x.com/nic", "a-_-b"))
    assert node.free() == {FIRST: 4, SECOND: 4}
    assert node.held() == []
    assert not node.tell(pod(MEMORY, f"{FIRST}-_-0", f"{FIRST}-_-1"), pod("x.com/nic", "a-_-b"))


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
def test_who_knows_the_pods_follows_the_configuration(
    tmp_path: Path, change: dict[str, Any], count: int
) -> None:
    node = Node(tmp_path, in_units())
    node.configure(in_units(**change))
    assert len(node.agents) == count
    _, former = node.agents[0]
    assert former is not None
    assert former.is_stopped is (count > 1)
    assert count == 1 or node.agents[1][0] == in_units(**change).shared_memory


def test_who_is_new_hears_what_containers_have(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.tell(pod(MEMORY, f"{FIRST}-_-0"))
    node.configure(in_units(count="example.com/gpus"))
    node.free("none")
    agent = node.agents[-1][1]
    assert agent is not None
    assert agent.heard == listed(pod(MEMORY, f"{FIRST}-_-0"))


def test_a_reload_that_cannot_reach_pods_any_more_offers_no_units_and_says_why(tmp_path: Path) -> None:
    node = Node(tmp_path, in_units())
    node.problem = "the kubeconfig /x cannot be read"
    node.configure(in_units(namespace="gpu"))
    assert node.free() == {}
    assert node.free(GPU) == {}
    (finding,) = (one for one in node.of.findings() if one.rule == "shared-memory-without-api")
    assert "the kubeconfig /x cannot be read" in finding.message
    node.problem = ""
    node.configure(in_units())
    assert node.free() == {FIRST: 4, SECOND: 4}
