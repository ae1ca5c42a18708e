import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.shared_pods import RESOURCES, container, pod_object

from cdigen.gpushare.claims import READ, Claim, Placement, claim_of, is_assigned, read_placement, written
from cdigen.gpushare.names import ALLOCATION, ASSIGNED, INDEX, OF_POD
from cdigen.gpushare.pods import Ask, Pod, read_pod


def pod(*units: object, inits: int = 0, **annotations: str) -> Pod:
    keys = {"index": INDEX, "allocation": ALLOCATION, "assigned": ASSIGNED, "of_pod": OF_POD}
    given = {keys[name]: value for name, value in annotations.items()}
    early = [container(inits)] if inits else []
    found = read_pod(pod_object("p", *units, inits=early, annotations=given), RESOURCES, READ)
    assert found is not None
    return found


def claim(found: Pod) -> Claim:
    return claim_of(found.ask, read_placement(found))


def test_gpushares_index_says_where_a_pod_is() -> None:
    assert claim(pod(3, 2, index="1")) == Claim(on=((1, 5),))


def test_the_allocation_is_read_before_the_index() -> None:
    allocation = '{"0":{"1":3},"1":{"0":2}}'
    assert claim(pod(3, 2, index="1", allocation=allocation)) == Claim(on=((0, 2), (1, 3)))


@pytest.mark.parametrize(
    "allocation",
    [
        "{", "null", "[]", "{}", '{"0":{"1":3}}', '{"0":{"1":3},"1":{"0":1,"1":1}}',
        '{"0":{"1":99},"1":{"0":2}}',
        '{"0":{"1":-3},"1":{"0":2}}', '{"0":{"-1":3},"1":{"0":2}}', '{"0":{"1":3},"1":{"x":2}}',
        '{"0":{"1":true},"1":{"0":2}}', "[" * 9000, '{"0":{"99999999999":3},"1":{"0":2}}',
    ],
)  # fmt: skip
def test_a_torn_allocation_leaves_the_index(allocation: str) -> None:
    assert claim(pod(3, 2, index="1", allocation=allocation)) == Claim(on=((1, 5),))


@pytest.mark.parametrize("index", ["", "-1", "0,1", "1.0", "one", "\u0661", "99999", " 1"])
def test_without_a_gpu_that_is_told_the_pod_floats(index: str) -> None:
    assert claim(pod(3, index=index)) == Claim(floating=3)


def test_annotations_never_change_how_much_a_pod_counts() -> None:
    assert claim(pod(3, index="0", of_pod="1000000")) == Claim(on=((0, 3),))


def test_a_pod_whose_init_container_asks_counts_its_most_on_one_gpu() -> None:
    assert claim(pod(3, inits=5, index="1")) == Claim(on=((1, 5),))
    # The kubelet has torn it apart: what the init container had besides is counted wherever it may be.
    assert claim(pod(1, 1, inits=5, allocation='{"0":{"0":1},"1":{"1":1}}')) == Claim(on=((0, 4), (1, 4)))
    assert claim(pod(4, 1, inits=5, allocation='{"0":{"0":4},"1":{"1":1}}')) == Claim(on=((0, 4), (1, 1)))


def test_only_the_nodes_true_means_assigned() -> None:
    assert is_assigned(pod(3, assigned="true"))
    assert not any(is_assigned(pod(3, assigned=text)) for text in ("false", "True", ""))


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 15)), min_size=1, max_size=6))
def test_what_is_written_is_read_back(rows: list[tuple[int, int]]) -> None:
    ask = Ask(shares=tuple((place, units) for place, (units, _) in enumerate(rows)))
    gpus = {gpu for _, gpu in rows}
    placement = Placement(
        containers=tuple((place, gpu) for place, (_, gpu) in enumerate(rows)),
        gpu=gpus.pop() if len(gpus) == 1 else -1,
    )
    given = written(ask, placement, {gpu: 90 for _, gpu in rows}, 5)
    found = read_pod(pod_object("p", *(units for units, _ in rows), annotations=given), RESOURCES, READ)
    assert found is not None
    assert read_placement(found) == placement
    assert json.loads(given[ALLOCATION]).keys() == {str(place) for place in range(len(rows))}
