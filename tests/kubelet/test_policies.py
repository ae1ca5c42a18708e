"""How each resource is answered, as the configuration says."""

from typing import Any

from support.kubelet.resources import GPU, card, node, replicas, resource, unit
from support.values.devices import inventory

from cdigen.config import KubeletConfig
from cdigen.kubelet.answers import Mps, Policy
from cdigen.kubelet.policies import policy_of
from cdigen.kubelet.resources.model import Resource
from cdigen.kubelet.resources.offer import Offer
from cdigen.value import replace

HOST = {
    "nvidia": replace(inventory("nvidia", card(0)), nodes=(node("/dev/nvidiactl"),)),
    "amd": replace(inventory("amd"), nodes=(node("/dev/kfd"),)),
}
AMD = Resource(name="amd.com/gpu", units=(unit(card(0), cdi_names=("amd.com/gpu=0",)),))


def policy(of: Resource, offer: Offer = Offer(), **settings: Any) -> Policy:  # noqa: B008 - a value
    return policy_of(of, offer, KubeletConfig(**settings), HOST, lambda _: "")


def test_without_configuration_names_travel_in_both_ways_and_nothing_else_does() -> None:
    assert policy(resource(1)) == Policy()
    assert Policy().uses_field
    assert Policy().uses_annotation


def test_the_configuration_says_in_which_way_names_travel() -> None:
    assert not policy(resource(1), answer=("cdi_devices",)).uses_annotation
    assert not policy(resource(1), answer=("annotation",)).uses_field


def test_nvidias_variable_and_families_come_with_nvidias_devices_alone() -> None:
    more: Any = {"environment": True, "families": ("imex", "gds", "gdrcopy", "mofed")}

    assert policy(resource(1), **more).variable == "NVIDIA_VISIBLE_DEVICES"
    assert policy(resource(1), **more).families == (
        "nvidia.com/imex-channel=0",
        "nvidia.com/gds=all",
        "nvidia.com/gdrcopy=all",
        "nvidia.com/mofed=all",
    )
    assert policy(AMD, **more) == Policy()


def test_devices_are_nvidias_under_whatever_resource() -> None:
    renamed = replace(resource(1), name="example.com/a100")

    assert policy(renamed, environment=True).variable


def test_a_resource_of_two_vendors_has_nothing_that_is_of_one_alone() -> None:
    both = Resource(name="example.com/any", units=(*resource(1).units, *AMD.units))
    for of in (both, replace(both, units=both.units[::-1])):
        found = policy(of, environment=True, families=("gds",), device_nodes=True)
        assert found == Policy(passes_nodes=True)


def test_device_nodes_come_with_those_that_every_container_needs() -> None:
    assert [one.path for one in policy(resource(1), device_nodes=True).common_nodes] == ["/dev/nvidiactl"]
    assert [one.path for one in policy(AMD, device_nodes=True).common_nodes] == ["/dev/kfd"]


def test_a_resource_of_which_one_replica_is_enough_fails_requests_for_more() -> None:
    assert policy(replicas(1, 2), Offer(fails_many=frozenset({GPU}))).fails_many
    assert not policy(replicas(1, 2), Offer(fails_many=frozenset({"x.com/y"}))).fails_many


def test_a_resource_that_is_shared_by_mps_has_its_control_daemons_folders() -> None:
    offer = Offer(by_mps=frozenset({GPU}))
    asked: list[str] = []

    def problem(pipe: str) -> str:
        asked.append(pipe)
        return "nobody listens"

    found = policy_of(replicas(1, 2), offer, KubeletConfig(mps_root="/run/mps/"), HOST, problem)

    assert found.mps == Mps(
        pipe_directory=f"/run/mps/{GPU}/pipe", shm_directory="/run/mps/shm", problem="nobody listens"
    )
    assert asked == [f"/run/mps/{GPU}/pipe"]
    assert policy(replicas(1, 2)).mps is None
