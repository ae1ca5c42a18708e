import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.gpu_memory_pods import RESOURCES, container, pod_object

from cdigen.gpushare.names import ALLOCATION, ASSIGNED, INDEX, OF_POD
from cdigen.gpushare.pods import GpuPod, MemoryRequest, read_pod
from cdigen.gpushare.reservations import (
    ANNOTATION_KEYS,
    ContainerPlacement,
    Reservation,
    is_assigned,
    pod_annotations,
    read_placement,
    reservation_of,
)


def pod(*units: object, inits: int = 0, **annotations: str) -> GpuPod:
    keys = {"index": INDEX, "allocation": ALLOCATION, "assigned": ASSIGNED, "of_pod": OF_POD}
    values = {keys[name]: value for name, value in annotations.items()}
    init_containers = [container(inits)] if inits else []
    found = read_pod(
        pod_object("p", *units, inits=init_containers, annotations=values), RESOURCES, ANNOTATION_KEYS
    )
    assert found is not None
    return found


def reservation(found: GpuPod) -> Reservation:
    return reservation_of(found.request, read_placement(found))


def test_the_index_in_gpushares_annotation_is_the_gpu_of_a_pod() -> None:
    assert reservation(pod(3, 2, index="1")) == Reservation(on=((1, 5),))


def test_the_allocation_annotation_has_precedence_over_the_index_annotation() -> None:
    allocation = '{"0":{"1":3},"1":{"0":2}}'
    assert reservation(pod(3, 2, index="1", allocation=allocation)) == Reservation(on=((0, 2), (1, 3)))


@pytest.mark.parametrize(
    "allocation",
    [
        "{", "null", "[]", "{}", '{"0":{"1":3}}', '{"0":{"1":3},"1":{"0":1,"1":1}}',
        '{"0":{"1":99},"1":{"0":2}}',
        '{"0":{"1":-3},"1":{"0":2}}', '{"0":{"-1":3},"1":{"0":2}}', '{"0":{"1":3},"1":{"x":2}}',
        '{"0":{"1":true},"1":{"0":2}}', "[" * 9000, '{"0":{"99999999999":3},"1":{"0":2}}',
    ],
)  # fmt: skip
def test_with_an_invalid_allocation_annotation_the_index_annotation_is_used(allocation: str) -> None:
    assert reservation(pod(3, 2, index="1", allocation=allocation)) == Reservation(on=((1, 5),))


@pytest.mark.parametrize("index", ["", "-1", "0,1", "1.0", "one", "\u0661", "99999", " 1"])
def test_without_a_valid_index_the_units_are_unplaced(index: str) -> None:
    assert reservation(pod(3, index=index)) == Reservation(unplaced=3)


def test_annotations_never_change_the_units_of_a_pod() -> None:
    assert reservation(pod(3, index="0", of_pod="1000000")) == Reservation(on=((0, 3),))


def test_a_pod_whose_init_container_requests_units_reserves_the_maximum_on_one_gpu() -> None:
    assert reservation(pod(3, inits=5, index="1")) == Reservation(on=((1, 5),))
    # The containers are on two GPUs, so the additional units of the init container may be on either GPU.
    assert reservation(pod(1, 1, inits=5, allocation='{"0":{"0":1},"1":{"1":1}}')) == Reservation(
        on=((0, 4), (1, 4))
    )
    assert reservation(pod(4, 1, inits=5, allocation='{"0":{"0":4},"1":{"1":1}}')) == Reservation(
        on=((0, 4), (1, 1))
    )


def test_a_pod_is_assigned_only_if_the_annotation_has_the_value_true() -> None:
    assert is_assigned(pod(3, assigned="true"))
    assert not any(is_assigned(pod(3, assigned=text)) for text in ("false", "True", ""))


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 15)), min_size=1, max_size=6))
def test_written_annotations_are_read_back(rows: list[tuple[int, int]]) -> None:
    request = MemoryRequest(by_container=tuple((place, units) for place, (units, _) in enumerate(rows)))
    gpus = {gpu for _, gpu in rows}
    placement = ContainerPlacement(
        containers=tuple((place, gpu) for place, (_, gpu) in enumerate(rows)),
        gpu=gpus.pop() if len(gpus) == 1 else -1,
    )
    annotations = pod_annotations(request, placement, {gpu: 90 for _, gpu in rows}, 5)
    found = read_pod(
        pod_object("p", *(units for units, _ in rows), annotations=annotations), RESOURCES, ANNOTATION_KEYS
    )
    assert found is not None
    assert read_placement(found) == placement
    assert json.loads(annotations[ALLOCATION]).keys() == {str(place) for place in range(len(rows))}
