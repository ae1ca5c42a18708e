"""What a container gets for the units that the kubelet chose."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.kubelet.resources import (
    GPU,
    card,
    changed,
    ids,
    migs,
    node,
    replicas,
    resource,
    spec_names,
    unit,
)

from cdigen.kubelet.answers import (
    CAUSES,
    Answer,
    Mps,
    PassedFolder,
    PassedNode,
    Policy,
    Refusal,
    allocate,
    annotation_key,
)
from cdigen.kubelet.resources.model import Resource
from cdigen.model.health import Cause
from cdigen.value import replace


def given_to(of: Resource, *places: int, policy: Policy = Policy(), more: tuple[str, ...] = ()) -> Answer:  # noqa: B008 - a value
    answer = allocate(of, ids(of, places), policy, is_offered={*spec_names(of), *more}.__contains__)
    assert isinstance(answer, Answer), answer
    return answer


def refused(of: Resource, asked: list[str], policy: Policy = Policy(), **more: Any) -> Refusal:  # noqa: B008 - a value
    answer = allocate(of, asked, policy, **{"is_offered": spec_names(of).__contains__, **more})
    assert isinstance(answer, Refusal), answer
    assert answer.cause in CAUSES
    assert "\n" not in answer.reason
    return answer


def test_by_default_an_answer_holds_cdi_names_in_both_ways_and_nothing_else() -> None:
    names = (f"{GPU}=GPU-1", f"{GPU}=GPU-0")

    assert given_to(resource(2), 1, 0) == Answer(
        names=names,
        cdi_devices=names,
        annotations=(("cdi.k8s.io/cdigen_nvidia.com_gpu", ",".join(names)),),
    )


def test_each_of_the_two_ways_can_be_switched_off() -> None:
    field = given_to(resource(1), 0, policy=Policy(uses_annotation=False))
    annotation = given_to(resource(1), 0, policy=Policy(uses_field=False))

    assert (field.cdi_devices, field.annotations) == ((f"{GPU}=GPU-0",), ())
    assert annotation.cdi_devices == ()
    assert annotation.annotations[0][1] == f"{GPU}=GPU-0"


def test_replicas_of_one_gpu_name_it_once() -> None:
    assert given_to(replicas(2, 3), 0, 1, 4).names == (f"{GPU}=GPU-0", f"{GPU}=GPU-1")


def test_a_unit_that_needs_several_names_gives_all_of_them() -> None:
    of = Resource(name="x.com/y", units=(unit(card(0), cdi_names=("x.com/y=1", "x.com/y=2")),))

    assert given_to(of, 0).names == ("x.com/y=1", "x.com/y=2")


def test_annotations_of_two_resources_have_different_keys() -> None:
    assert annotation_key("nvidia.com/gpu") != annotation_key("amd.com/gpu")


NAMES = st.from_regex(
    r"[a-z0-9]([a-z0-9.-]{0,70}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True
)


@given(NAMES)
@example("a" * 250 + "/" + "b" * 63)
@example("a" * 60 + "/b")
def test_an_annotations_key_is_one_that_kubernetes_and_the_cdi_library_take(name: str) -> None:
    prefix, key = annotation_key(name).split("/")

    assert prefix == "cdi.k8s.io"
    assert len(key) <= 63
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", key)


@given(NAMES, NAMES)
def test_long_names_of_resources_keep_their_keys_apart(one: str, other: str) -> None:
    long = "a" * 60
    assert (annotation_key(f"{long}{one}") == annotation_key(f"{long}{other}")) == (one == other)


def test_the_variable_lists_each_device_once_by_its_uuid() -> None:
    by_uuid = Policy(variable="NVIDIA_VISIBLE_DEVICES")

    assert given_to(replicas(2, 2), 0, 1, 2, policy=by_uuid).variables == (
        ("NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1"),
    )
    assert given_to(migs(2, 2), 1, 2, policy=by_uuid).variables[0][1] == "MIG-0-1,MIG-1-0"


def test_a_gpu_whose_uuid_is_not_known_is_listed_by_its_index() -> None:
    of = Resource(name=GPU, units=(unit(card(3, uuid=None, minor=5), id="3", cdi_names=(f"{GPU}=3",)),))

    assert given_to(of, 0, policy=Policy(variable="NVIDIA_VISIBLE_DEVICES")).variables[0][1] == "3"


def test_device_nodes_are_passed_by_option_the_common_ones_once() -> None:
    policy = Policy(passes_nodes=True, common_nodes=(node("/dev/nvidiactl"),))

    assert given_to(resource(3), 0, 2, policy=policy).nodes == tuple(
        PassedNode(host_path=path, path=path) for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia2")
    )


def test_a_partition_with_an_address_has_its_own_nodes_alone() -> None:
    whole = migs(1, 1)
    part = whole.units[0].partition
    assert part is not None
    of = changed(whole, 0, partition=replace(part, address="amdgpu_xcp_0"))
    nodes = given_to(of, 0, policy=Policy(passes_nodes=True)).nodes
    assert [one.path for one in nodes] == [one.path for one in part.nodes]


def test_a_mig_instance_has_its_gpus_nodes_and_its_own() -> None:
    nodes = given_to(migs(1, 2), 0, 1, policy=Policy(passes_nodes=True)).nodes

    assert [one.path for one in nodes] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap0",
        "/dev/nvidia-caps/nvidia-cap1",
    ]


def test_families_are_added_where_a_spec_offers_them_and_named_where_none_does() -> None:
    policy = Policy(families=("nvidia.com/gds=all", "nvidia.com/gdrcopy=all"))

    answer = given_to(resource(1), 0, policy=policy, more=("nvidia.com/gds=all",))

    assert answer.cdi_devices == (f"{GPU}=GPU-0", "nvidia.com/gds=all")
    assert answer.left_out == ("nvidia.com/gdrcopy=all",)


def test_a_container_on_mps_gets_the_pipe_directory_of_the_control_daemon() -> None:
    answer = given_to(
        replicas(1, 4),
        2,
        policy=Policy(mps=Mps(pipe_directory="/run/mps/pipe", shm_directory="/run/mps/shm")),
    )

    assert answer.variables == (("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/pipe"),)
    assert answer.folders == (
        PassedFolder(host_path="/run/mps/pipe", path="/run/mps/pipe"),
        PassedFolder(host_path="/run/mps/shm", path="/dev/shm"),
    )


def test_without_the_control_daemon_a_container_on_mps_is_refused_with_the_reason() -> None:
    gone = Mps(pipe_directory="/run/mps/pipe", problem="no control daemon listens in /run/mps/pipe")

    found = refused(replicas(1, 4), ["GPU-0::1"], Policy(mps=gone))

    assert found == Refusal(cause="no_mps", reason=f"{GPU} is shared by MPS: {gone.problem}")


def test_an_id_that_is_not_ours_is_refused_by_its_name() -> None:
    found = refused(resource(2), ["GPU-0", "GPU-7"])

    assert found == Refusal(cause="unknown_id", reason=f"{GPU} has no GPU-7 (any more); it has 2 devices now")


def test_a_reason_names_three_and_counts_the_others() -> None:
    found = refused(resource(1), [f"GPU-{n}" for n in range(1, 7)])

    assert "GPU-1, GPU-2, GPU-3 and 3 more" in found.reason


def test_a_reason_is_short_whatever_the_kubelet_asks_for() -> None:
    assert len(refused(resource(1), ["x" * 1_000_000, "y" * 1_000_000]).reason) < 400


def test_what_another_container_has_is_refused_with_its_name() -> None:
    found = refused(resource(2), ["GPU-1"], held={"GPU-1": "ml/train-0, container main"})

    assert found.cause == "taken"
    assert "GPU-1 (ml/train-0, container main)" in found.reason


def test_one_unit_twice_in_one_request_is_refused() -> None:
    assert refused(resource(2), ["GPU-1", "GPU-1"]).cause == "taken"


def test_an_unhealthy_unit_is_refused_with_its_causes() -> None:
    cause = Cause(cause="xid-79", since="", detail="", clears_when="")
    of = Resource(name=GPU, units=(unit(card(0, health="unhealthy", causes=(cause,))), unit(card(1))))

    assert refused(of, ["GPU-0"]) == Refusal(
        cause="unhealthy", reason=f"of {GPU}, GPU-0 (xid-79) is unhealthy"
    )
    assert isinstance(allocate(of, ["GPU-1"], Policy(), is_offered=spec_names(of).__contains__), Answer)


def test_a_unit_that_is_unhealthy_as_no_spec_has_it_is_refused_for_that() -> None:
    of = changed(resource(1), 0, health="unhealthy", cdi_names=())

    assert refused(of, ["GPU-0"]).cause == "no_spec"


def test_a_gpu_that_cannot_be_used_is_refused_with_its_problem() -> None:
    of = changed(resource(1, problem="its node is missing"), 0, health="unhealthy", cdi_names=())

    assert refused(of, ["GPU-0"]).reason == f"of {GPU}, GPU-0 (its node is missing) is unhealthy"


def test_a_unit_of_unknown_health_is_given() -> None:
    assert given_to(resource(1, health="unknown"), 0).names


@pytest.mark.parametrize("names", [(f"{GPU}=GPU-0",), ()])
def test_a_unit_whose_spec_has_vanished_is_refused(names: tuple[str, ...]) -> None:
    of = changed(resource(2), 0, cdi_names=names)

    found = refused(of, ["GPU-0"], is_offered={f"{GPU}=GPU-1"}.__contains__)

    assert found.cause == "no_spec"
    assert "GPU-0 is in no CDI spec now" in found.reason


def test_more_than_one_replica_is_refused_only_where_the_configuration_says_so() -> None:
    strict = Policy(fails_many=True)

    assert refused(replicas(2, 2), ["GPU-0::0", "GPU-1::0"], strict).cause == "too_many"
    assert given_to(replicas(2, 2), 0, 2).names
    assert given_to(replicas(2, 2), 0, policy=strict).names
    assert given_to(resource(2), 0, 1, policy=strict).names


@given(st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-2", "", "GPU-9", "\n"]), max_size=5))
def test_any_request_gets_what_it_named_or_one_reason(asked: list[str]) -> None:
    of = changed(resource(3), 2, health="unhealthy")

    answer = allocate(of, asked, Policy(), is_offered=spec_names(of).__contains__)

    is_good = len(set(asked)) == len(asked) and {*asked} <= {"GPU-0", "GPU-1"}
    assert isinstance(answer, Answer) == is_good
    if isinstance(answer, Answer):
        assert answer.names == tuple(f"{GPU}={id_}" for id_ in asked)
    else:
        assert "\n" not in answer.reason
