"""policy_of returns the allocation policy of a resource for a configuration."""

from typing import Any

from support.kubelet.resources import GPU, card, node, replicas, resource, unit
from support.values.devices import inventory

from cdigen.config import KubeletConfig
from cdigen.kubelet.allocation.container_response import AllocationPolicy, Mps
from cdigen.kubelet.allocation.policies import policy_of
from cdigen.kubelet.resources.model import Resource
from cdigen.value import replace

HOST = {
    "nvidia": replace(inventory("nvidia", card(0)), nodes=(node("/dev/nvidiactl"),)),
    "amd": replace(inventory("amd"), nodes=(node("/dev/kfd"),)),
}
AMD = Resource(name="amd.com/gpu", units=(unit(card(0), cdi_names=("amd.com/gpu=0",)),))


def policy(advertised: Resource, **settings: Any) -> AllocationPolicy:
    return policy_of(advertised, KubeletConfig(**settings), HOST)


def test_the_default_policy_uses_only_the_cdi_field_and_the_annotation() -> None:
    assert policy(resource(1)) == AllocationPolicy()
    assert AllocationPolicy().uses_field
    assert AllocationPolicy().uses_annotation


def test_the_configuration_selects_the_cdi_field_or_the_annotation_for_cdi_names() -> None:
    assert not policy(resource(1), device_list_strategy=("cdi_devices",)).uses_annotation
    assert not policy(resource(1), device_list_strategy=("annotation",)).uses_field


def test_nvidias_environment_variable_and_families_are_only_for_nvidias_devices() -> None:
    settings: Any = {"environment": True, "families": ("imex", "gds", "gdrcopy", "mofed")}

    assert policy(resource(1), **settings).variable == "NVIDIA_VISIBLE_DEVICES"
    assert policy(resource(1), **settings).families == (
        "nvidia.com/imex-channel=0",
        "nvidia.com/gds=all",
        "nvidia.com/gdrcopy=all",
        "nvidia.com/mofed=all",
    )
    assert policy(AMD, **settings) == AllocationPolicy()


def test_nvidias_devices_are_recognized_under_any_resource_name() -> None:
    renamed = replace(resource(1), name="example.com/a100")

    assert policy(renamed, environment=True).variable


def test_a_resource_with_devices_of_two_vendors_has_no_vendor_specific_parts() -> None:
    both = Resource(name="example.com/any", units=(*resource(1).units, *AMD.units))
    for advertised in (both, replace(both, units=both.units[::-1])):
        found = policy(advertised, environment=True, families=("gds",), device_nodes=True)
        assert found == AllocationPolicy(passes_nodes=True)


def test_device_nodes_include_the_nodes_that_every_container_needs() -> None:
    assert [one.path for one in policy(resource(1), device_nodes=True).common_nodes] == ["/dev/nvidiactl"]
    assert [one.path for one in policy(AMD, device_nodes=True).common_nodes] == ["/dev/kfd"]


def test_a_resource_that_is_shared_by_mps_has_the_folders_of_its_control_daemon() -> None:
    shared = replace(replicas(1, 2), by_mps=True)
    found = policy(shared, mps_root="/run/mps/")
    assert found.mps == Mps(pipe_directory=f"/run/mps/{GPU}/pipe", shm_directory="/run/mps/shm")
    assert policy(replicas(1, 2)).mps is None
