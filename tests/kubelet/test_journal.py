"""Which pod has what: allocations joined with the kubelet's own list."""

import pytest
from support.kubelet.offering import offered, resource_of
from support.kubelet.resources import GPU, migs, replicas, resource
from support.values.unhealthy_gpus import example

from cdigen.kubelet.journal import Allocation, Entry, device_of, entries, holders
from cdigen.kubelet.pods import PodDevices
from cdigen.kubelet.resources.model import Resource
from cdigen.value import replace


def allocation(at_s: float, *ids: str, cause: str = "", reason: str = "") -> Allocation:
    return Allocation(at_s=at_s, resource=GPU, ids=ids, cause=cause, reason=reason)


def pod(name: str, *ids: str, container: str = "main", of: str = GPU) -> PodDevices:
    return PodDevices(namespace="ml", pod=name, container=container, resource=of, ids=ids)


def test_an_allocation_is_of_the_container_that_has_its_units() -> None:
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-1", "GPU-2")
    first, second = pod("a", "GPU-0"), pod("b", "GPU-2", "GPU-1")

    assert entries((one, two), (second, first)) == (
        Entry(state="held", allocation=one, pod=first),
        Entry(state="held", allocation=two, pod=second),
    )


def test_what_no_container_has_any_more_has_ended() -> None:
    one = allocation(1, "GPU-0")

    assert entries((one,), ()) == (Entry(state="ended", allocation=one),)


def test_of_two_allocations_of_a_unit_only_the_later_is_held() -> None:
    # As of an init container and a container of one pod.
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-0")
    now = pod("a", "GPU-0")

    assert entries((one, two), (now,)) == (
        Entry(state="ended", allocation=one),
        Entry(state="held", allocation=two, pod=now),
    )


def test_where_the_kubelet_does_not_tell_the_latest_are_of_unknown_containers() -> None:
    one, two = allocation(1, "GPU-0"), allocation(2, "GPU-0")

    assert [entry.state for entry in entries((one, two), None)] == ["ended", "unknown"]


def test_a_refusal_is_nobodys_even_if_somebody_has_the_unit() -> None:
    now, bad = pod("a", "GPU-0"), allocation(2, "GPU-0", cause="taken", reason="…")

    assert entries((allocation(1, "GPU-0"), bad), (now,))[-1] == Entry(state="refused", allocation=bad)
    assert entries((allocation(1, "GPU-0"), bad), (now,))[0].pod == now


def test_what_containers_had_before_we_ran_comes_first() -> None:
    old, new = pod("old", "GPU-7"), pod("new", "GPU-0")
    one = allocation(1, "GPU-0")

    assert entries((one,), (new, old)) == (
        Entry(state="held", pod=old),
        Entry(state="held", allocation=one, pod=new),
    )


def test_units_that_two_containers_have_are_no_ones_allocation() -> None:
    one = allocation(1, "GPU-0", "GPU-1")

    assert entries((one,), (pod("a", "GPU-0"), pod("b", "GPU-1")))[-1] == Entry(state="ended", allocation=one)


def test_a_unit_is_held_by_the_container_that_has_it() -> None:
    of = resource(2)

    assert holders(of, (pod("a", "GPU-1"),)) == {"GPU-1": "pod ml/a, container main"}


def test_a_gpu_that_a_container_has_under_another_name_is_held() -> None:
    assert holders(resource(2), (pod("a", "GPU-1", of="nvidia.com/h100"),)) == {
        "GPU-1": "pod ml/a, container main, as nvidia.com/h100"
    }


def test_replicas_of_a_gpu_are_shared_under_two_names_and_not_with_the_whole_gpu() -> None:
    has_share, has_all = pod("a", "GPU-0::0", of="x.com/shared"), pod("a", "GPU-0", of="x.com/whole")

    assert holders(replicas(1, 2), (has_share,)) == {}
    assert {*holders(resource(2), (has_share,))} == {"GPU-0"}
    assert {*holders(replicas(1, 2), (has_all,))} == {"GPU-0::0", "GPU-0::1"}


def memory(gpus: int, units: int, name: str = "aliyun.com/gpu-mem") -> Resource:
    of = replicas(gpus, units)
    made = (replace(unit, id=unit.id.replace("::", "-_-")) for unit in of.units)
    return Resource(name=name, units=tuple(made))


def test_units_of_a_gpus_memory_are_shared_with_such_units_alone() -> None:
    has_unit = pod("a", "GPU-0-_-0", of="x.com/mem")

    assert {*holders(resource(2), (has_unit,))} == {"GPU-0"}
    assert {*holders(replicas(1, 2), (has_unit,))} == {"GPU-0::0", "GPU-0::1"}
    assert {*holders(memory(1, 2), (pod("a", "GPU-0::1"),))} == {"GPU-0-_-0", "GPU-0-_-1"}
    assert {*holders(memory(2, 2), (pod("a", "GPU-0"),))} == {"GPU-0-_-0", "GPU-0-_-1"}


def test_a_unit_of_memory_that_a_container_has_under_another_name_is_held_and_no_other() -> None:
    assert holders(memory(1, 3), (pod("a", "GPU-0-_-1", of="x.com/mem"),)) == {
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
def test_ids_carry_their_device(id_: str, device: str) -> None:
    assert device_of(id_) == device


def test_a_mig_instance_holds_its_gpu_and_not_its_siblings() -> None:
    parts = migs(1, 2)
    whole = Resource(name=GPU, units=(replace(parts.units[0], id="GPU-0", partition=None),))

    assert {*holders(parts, (pod("a", "MIG-0-0", of="x.com/small"),))} == {"MIG-0-0"}
    assert {*holders(whole, (pod("a", "MIG-0-0", of=parts.name),))} == {"GPU-0"}
    assert {*holders(parts, (pod("a", "GPU-0"),))} == {"MIG-0-0", "MIG-0-1"}


def test_amds_first_partition_has_its_gpus_address_and_holds_no_sibling() -> None:
    parts = resource_of(offered(example("ubuntu-2xmi300x-cpx"), amd_strategy="mixed"), "amd.com/cpx_nps1")
    first = parts.units[0]
    assert first.id == first.accelerator.address

    assert {*holders(parts, (pod("a", first.id, of="amd.com/gpu"),))} == {first.id}


def test_units_that_are_not_ours_hold_nothing() -> None:
    of = resource(1)

    assert holders(of, (pod("a", "x", of="example.com/fpga"), pod("b", "GPU-9"))) == {}
