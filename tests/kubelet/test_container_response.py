"""build_response returns the container response for the units of a request, or a refusal."""

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

from cdigen.kubelet.allocation.container_response import (
    CAUSES,
    AllocationPolicy,
    AllocationRefusal,
    ContainerResponse,
    Mps,
    PassedPath,
    annotation_key,
    build_response,
)
from cdigen.kubelet.resources.model import Resource
from cdigen.model.health import Cause
from cdigen.value import replace


def response(
    gpus: Resource,
    *positions: int,
    policy: AllocationPolicy = AllocationPolicy(),  # noqa: B008 - a frozen value
    more: tuple[str, ...] = (),
) -> ContainerResponse:
    names = {*spec_names(gpus), *more}
    answer = build_response(gpus, ids(gpus, positions), policy, is_in_spec=names.__contains__)
    assert isinstance(answer, ContainerResponse), answer
    return answer


def refused(
    gpus: Resource,
    requested: list[str],
    policy: AllocationPolicy = AllocationPolicy(),  # noqa: B008 - a frozen value
    **more: Any,
) -> AllocationRefusal:
    answer = build_response(gpus, requested, policy, **{"is_in_spec": spec_names(gpus).__contains__, **more})
    assert isinstance(answer, AllocationRefusal), answer
    assert answer.cause in CAUSES
    assert "\n" not in answer.reason
    return answer


def test_by_default_a_response_has_only_cdi_names_in_the_cdi_field_and_in_an_annotation() -> None:
    names = (f"{GPU}=GPU-1", f"{GPU}=GPU-0")

    assert response(resource(2), 1, 0) == ContainerResponse(
        names=names,
        cdi_devices=names,
        annotations=(("cdi.k8s.io/cdigen_nvidia.com_gpu", ",".join(names)),),
    )


def test_the_cdi_field_and_the_annotation_can_each_be_disabled() -> None:
    field = response(resource(1), 0, policy=AllocationPolicy(uses_annotation=False))
    annotation = response(resource(1), 0, policy=AllocationPolicy(uses_field=False))

    assert (field.cdi_devices, field.annotations) == ((f"{GPU}=GPU-0",), ())
    assert annotation.cdi_devices == ()
    assert annotation.annotations[0][1] == f"{GPU}=GPU-0"


def test_a_response_for_several_replicas_of_a_gpu_has_the_cdi_name_of_the_gpu_once() -> None:
    assert response(replicas(2, 3), 0, 1, 4).names == (f"{GPU}=GPU-0", f"{GPU}=GPU-1")


def test_a_response_has_all_cdi_names_of_a_unit() -> None:
    gpus = Resource(name="x.com/y", units=(unit(card(0), cdi_names=("x.com/y=1", "x.com/y=2")),))

    assert response(gpus, 0).names == ("x.com/y=1", "x.com/y=2")


def test_annotations_of_two_resources_have_different_keys() -> None:
    assert annotation_key("nvidia.com/gpu") != annotation_key("amd.com/gpu")


NAMES = st.from_regex(
    r"[a-z0-9]([a-z0-9.-]{0,70}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", fullmatch=True
)


@given(NAMES)
@example("a" * 250 + "/" + "b" * 63)
@example("a" * 60 + "/b")
def test_an_annotation_key_is_valid_for_kubernetes_and_the_cdi_library(name: str) -> None:
    prefix, key = annotation_key(name).split("/")

    assert prefix == "cdi.k8s.io"
    assert len(key) <= 63
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", key)


@given(NAMES, NAMES)
def test_different_long_resource_names_have_different_annotation_keys(one: str, other: str) -> None:
    long = "a" * 60
    assert (annotation_key(f"{long}{one}") == annotation_key(f"{long}{other}")) == (one == other)


def test_the_environment_variable_has_the_uuid_of_each_device_once() -> None:
    by_uuid = AllocationPolicy(variable="NVIDIA_VISIBLE_DEVICES")

    assert response(replicas(2, 2), 0, 1, 2, policy=by_uuid).variables == (
        ("NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1"),
    )
    assert response(migs(2, 2), 1, 2, policy=by_uuid).variables[0][1] == "MIG-0-1,MIG-1-0"


def test_the_environment_variable_has_the_index_of_a_gpu_whose_uuid_is_unknown() -> None:
    gpus = Resource(name=GPU, units=(unit(card(3, uuid=None, minor=5), id="3", cdi_names=(f"{GPU}=3",)),))
    by_uuid = AllocationPolicy(variable="NVIDIA_VISIBLE_DEVICES")

    assert response(gpus, 0, policy=by_uuid).variables[0][1] == "3"


def test_device_nodes_are_passed_if_configured_and_common_nodes_are_not_repeated() -> None:
    policy = AllocationPolicy(passes_nodes=True, common_nodes=(node("/dev/nvidiactl"),))

    assert response(resource(3), 0, 2, policy=policy).nodes == tuple(
        PassedPath(host_path=path, path=path) for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia2")
    )


def test_a_partition_with_an_address_has_only_its_own_nodes() -> None:
    whole = migs(1, 1)
    part = whole.units[0].partition
    assert part is not None
    gpus = changed(whole, 0, partition=replace(part, address="amdgpu_xcp_0"))
    nodes = response(gpus, 0, policy=AllocationPolicy(passes_nodes=True)).nodes
    assert [one.path for one in nodes] == [one.path for one in part.nodes]


def test_a_mig_instance_has_the_nodes_of_its_gpu_and_its_own_nodes() -> None:
    nodes = response(migs(1, 2), 0, 1, policy=AllocationPolicy(passes_nodes=True)).nodes

    assert [one.path for one in nodes] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap0",
        "/dev/nvidia-caps/nvidia-cap1",
    ]


def test_a_configured_family_is_added_if_a_spec_has_it() -> None:
    policy = AllocationPolicy(families=("nvidia.com/gds=all", "nvidia.com/gdrcopy=all"))

    answer = response(resource(1), 0, policy=policy, more=("nvidia.com/gds=all",))

    assert answer.cdi_devices == (f"{GPU}=GPU-0", "nvidia.com/gds=all")


def test_a_container_that_uses_mps_gets_the_pipe_directory_of_the_control_daemon() -> None:
    answer = response(
        replicas(1, 4),
        2,
        policy=AllocationPolicy(mps=Mps(pipe_directory="/run/mps/pipe", shm_directory="/run/mps/shm")),
    )

    assert answer.variables == (("CUDA_MPS_PIPE_DIRECTORY", "/run/mps/pipe"),)
    assert answer.folders == (
        PassedPath(host_path="/run/mps/pipe", path="/run/mps/pipe"),
        PassedPath(host_path="/run/mps/shm", path="/dev/shm"),
    )


def test_a_container_that_uses_mps_is_refused_if_the_control_daemon_is_not_available() -> None:
    mps = Mps(pipe_directory="/run/mps/pipe", problem="no control daemon listens in /run/mps/pipe")

    found = refused(replicas(1, 4), ["GPU-0::1"], AllocationPolicy(mps=mps))

    assert found == AllocationRefusal(cause="no_mps", reason=f"{GPU}: MPS is not available: {mps.problem}")


def test_an_unknown_id_is_refused_and_named_in_the_reason() -> None:
    found = refused(resource(2), ["GPU-0", "GPU-7"])

    assert found == AllocationRefusal(
        cause="unknown_id", reason=f"{GPU}: unknown device GPU-7; the resource has 2 devices now"
    )


def test_the_reason_of_a_refusal_has_three_ids_and_the_number_of_the_other_ids() -> None:
    found = refused(resource(1), [f"GPU-{n}" for n in range(1, 7)])

    assert "GPU-1, GPU-2, GPU-3 and 3 more" in found.reason


def test_the_reason_of_a_refusal_is_short_even_if_the_requested_ids_are_long() -> None:
    assert len(refused(resource(1), ["x" * 1_000_000, "y" * 1_000_000]).reason) < 400


def test_a_unit_in_use_is_refused_with_the_name_of_its_container() -> None:
    found = refused(resource(2), ["GPU-1"], in_use={"GPU-1": "ml/train-0, container main"})

    assert found.cause == "in_use"
    assert "GPU-1 (ml/train-0, container main)" in found.reason


def test_a_request_that_has_the_same_unit_twice_is_refused() -> None:
    assert refused(resource(2), ["GPU-1", "GPU-1"]).cause == "in_use"


def test_an_unhealthy_unit_is_refused_with_its_causes() -> None:
    cause = Cause(cause="xid-79", since="", detail="", clears_when="")
    gpus = Resource(name=GPU, units=(unit(card(0, health="unhealthy", causes=(cause,))), unit(card(1))))

    assert refused(gpus, ["GPU-0"]) == AllocationRefusal(
        cause="unhealthy", reason=f"{GPU}: GPU-0 (xid-79) is unhealthy"
    )
    assert isinstance(
        build_response(gpus, ["GPU-1"], AllocationPolicy(), is_in_spec=spec_names(gpus).__contains__),
        ContainerResponse,
    )


def test_an_unhealthy_unit_without_a_spec_is_refused_with_the_cause_no_spec() -> None:
    gpus = changed(resource(1), 0, health="unhealthy", cdi_names=())

    assert refused(gpus, ["GPU-0"]).cause == "no_spec"


def test_a_gpu_that_cannot_be_used_is_refused_with_its_problem() -> None:
    gpus = changed(resource(1, problem="its node is missing"), 0, health="unhealthy", cdi_names=())

    assert refused(gpus, ["GPU-0"]).reason == f"{GPU}: GPU-0 (its node is missing) is unhealthy"


def test_a_unit_of_unknown_health_is_allocated() -> None:
    assert response(resource(1, health="unknown"), 0).names


@pytest.mark.parametrize("names", [(f"{GPU}=GPU-0",), ()])
def test_a_unit_whose_spec_was_removed_is_refused(names: tuple[str, ...]) -> None:
    gpus = changed(resource(2), 0, cdi_names=names)

    found = refused(gpus, ["GPU-0"], is_in_spec={f"{GPU}=GPU-1"}.__contains__)

    assert found.cause == "no_spec"
    assert "no CDI spec has " in found.reason
    assert "GPU-0;" in found.reason


def test_more_than_one_replica_is_refused_only_if_configured() -> None:
    strict = replace(replicas(2, 2), fails_many=True)

    assert refused(strict, ["GPU-0::0", "GPU-1::0"]).cause == "too_many"
    assert response(replicas(2, 2), 0, 2).names
    assert response(strict, 0).names
    assert response(replace(resource(2), fails_many=True), 0, 1).names


@given(st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-2", "", "GPU-9", "\n"]), max_size=5))
def test_any_request_gets_its_devices_or_a_reason_in_one_line(requested: list[str]) -> None:
    gpus = changed(resource(3), 2, health="unhealthy")

    answer = build_response(gpus, requested, AllocationPolicy(), is_in_spec=spec_names(gpus).__contains__)

    is_valid = len(set(requested)) == len(requested) and {*requested} <= {"GPU-0", "GPU-1"}
    assert isinstance(answer, ContainerResponse) == is_valid
    if isinstance(answer, ContainerResponse):
        assert answer.names == tuple(f"{GPU}={id_}" for id_ in requested)
    else:
        assert "\n" not in answer.reason
