"""The journal joins allocations with the kubelet's list of pods, and reports the units that are in use."""

import pytest
from support.kubelet.advertised_resources import offered, resource_of
from support.kubelet.resources import GPU, migs, replicas, resource
from support.values.unhealthy_gpus import example

from cdigen.kubelet.allocation.journal import (
    Allocation,
    AllocationEntry,
    device_of,
    entries,
    used_units,
)
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.value import replace


def allocation(at_s: float, *ids: str, cause: str = "", reason: str = "") -> Allocation:
    return Allocation(at_s=at_s, resource=GPU, ids=ids, cause=cause, reason=reason)


def pod(name: str, *ids: str, container: str = "main", resource_name: str = GPU) -> PodDevices:
    return PodDevices(namespace="ml", pod=name, container=container, resource=resource_name, ids=ids)


def test_an_allocation_is_joined_with_the_container_that_has_its_units() -> None:
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-1", "GPU-2")
    first, second = pod("a", "GPU-0"), pod("b", "GPU-2", "GPU-1")

    assert entries((one, two), (second, first)) == (
        AllocationEntry(state="held", allocation=one, pod=first),
        AllocationEntry(state="held", allocation=two, pod=second),
    )


def test_an_allocation_whose_units_no_container_has_gets_the_state_ended() -> None:
    one = allocation(1, "GPU-0")

    assert entries((one,), ()) == (AllocationEntry(state="ended", allocation=one),)


def test_only_the_last_allocation_of_a_unit_gets_the_state_held() -> None:
    # For example, a container gets the unit of an init container of the same pod.
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-0")
    present = pod("a", "GPU-0")

    assert entries((one, two), (present,)) == (
        AllocationEntry(state="ended", allocation=one),
        AllocationEntry(state="held", allocation=two, pod=present),
    )


def test_without_a_list_of_pods_the_last_allocation_of_a_unit_gets_the_state_unknown() -> None:
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-0")

    assert [entry.state for entry in entries((one, two), None)] == ["ended", "unknown"]


def test_a_refusal_has_no_container_even_if_a_container_has_the_unit() -> None:
    present, refusal = pod("a", "GPU-0"), allocation(2, "GPU-0", cause="in_use", reason="…")

    assert entries((allocation(1, "GPU-0"), refusal), (present,))[-1] == AllocationEntry(
        state="refused", allocation=refusal
    )
    assert entries((allocation(1, "GPU-0"), refusal), (present,))[0].pod == present


def test_containers_that_got_units_before_the_start_of_cdigen_come_first() -> None:
    old, new = pod("old", "GPU-7"), pod("new", "GPU-0")
    one = allocation(1, "GPU-0")

    assert entries((one,), (new, old)) == (
        AllocationEntry(state="held", pod=old),
        AllocationEntry(state="held", allocation=one, pod=new),
    )


def test_an_allocation_whose_units_are_in_two_containers_gets_the_state_ended() -> None:
    one = allocation(1, "GPU-0", "GPU-1")

    assert entries((one,), (pod("a", "GPU-0"), pod("b", "GPU-1")))[-1] == AllocationEntry(
        state="ended", allocation=one
    )


def test_a_unit_that_a_container_has_is_in_use() -> None:
    gpus = resource(2)

    assert used_units(gpus, (pod("a", "GPU-1"),)) == {"GPU-1": "pod ml/a, container main"}


def test_a_gpu_that_a_container_has_under_another_name_is_in_use() -> None:
    assert used_units(resource(2), (pod("a", "GPU-1", resource_name="nvidia.com/h100"),)) == {
        "GPU-1": "pod ml/a, container main, as nvidia.com/h100"
    }


def test_a_replica_in_use_excludes_the_whole_gpu_but_no_replica_under_another_name() -> None:
    has_replica = pod("a", "GPU-0::0", resource_name="x.com/shared")
    has_gpu = pod("a", "GPU-0", resource_name="x.com/whole")

    assert used_units(replicas(1, 2), (has_replica,)) == {}
    assert {*used_units(resource(2), (has_replica,))} == {"GPU-0"}
    assert {*used_units(replicas(1, 2), (has_gpu,))} == {"GPU-0::0", "GPU-0::1"}


def memory(gpus: int, units: int, name: str = "aliyun.com/gpu-mem") -> Resource:
    shared = replicas(gpus, units)
    made = (replace(unit, id=unit.id.replace("::", "-_-")) for unit in shared.units)
    return Resource(name=name, units=tuple(made))


def test_a_memory_unit_in_use_excludes_the_whole_gpu_and_its_replicas() -> None:
    has_unit = pod("a", "GPU-0-_-0", resource_name="x.com/mem")

    assert {*used_units(resource(2), (has_unit,))} == {"GPU-0"}
    assert {*used_units(replicas(1, 2), (has_unit,))} == {"GPU-0::0", "GPU-0::1"}
    assert {*used_units(memory(1, 2), (pod("a", "GPU-0::1"),))} == {"GPU-0-_-0", "GPU-0-_-1"}
    assert {*used_units(memory(2, 2), (pod("a", "GPU-0"),))} == {"GPU-0-_-0", "GPU-0-_-1"}


def test_only_the_memory_unit_that_a_container_has_under_another_name_is_in_use() -> None:
    assert used_units(memory(1, 3), (pod("a", "GPU-0-_-1", resource_name="x.com/mem"),)) == {
        "GPU-0-_-1": "pod ml/a, container main, as x.com/mem"
    }


@pytest.mark.parametrize(
    ("id_", "device"),
    [
        ("GPU-0-_-12", "GPU-0"),
        ("0000:19:00.0-_-0", "0000:19:00.0"),
        ("GPU-0::3", "GPU-0"),
        ("GPU-0", "GPU-0"),
    ],
)
def test_an_id_contains_the_id_of_its_device(id_: str, device: str) -> None:
    assert device_of(id_) == device


def test_a_mig_instance_in_use_excludes_its_gpu_but_no_other_instance() -> None:
    parts = migs(1, 2)
    whole = Resource(name=GPU, units=(replace(parts.units[0], id="GPU-0", partition=None),))

    assert {*used_units(parts, (pod("a", "MIG-0-0", resource_name="x.com/small"),))} == {"MIG-0-0"}
    assert {*used_units(whole, (pod("a", "MIG-0-0", resource_name=parts.name),))} == {"GPU-0"}
    assert {*used_units(parts, (pod("a", "GPU-0"),))} == {"MIG-0-0", "MIG-0-1"}


def test_amds_first_partition_in_use_excludes_no_other_partition() -> None:
    parts = resource_of(offered(example("ubuntu-2xmi300x-cpx"), amd_strategy="mixed"), "amd.com/cpx_nps1")
    first = parts.units[0]
    assert first.id == first.accelerator.address

    assert {*used_units(parts, (pod("a", first.id, resource_name="amd.com/gpu"),))} == {first.id}


def test_devices_in_use_that_are_not_in_the_resource_exclude_no_unit() -> None:
    gpus = resource(1)

    assert used_units(gpus, (pod("a", "x", resource_name="example.com/fpga"), pod("b", "GPU-9"))) == {}
