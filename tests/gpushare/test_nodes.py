from typing import Any

import pytest
from support.kubernetes.shared_pods import COUNT, MEMORY, RESOURCES, node_object

from cdigen.gpushare.names import GPUS
from cdigen.gpushare.nodes import Gpu, node_annotation, read_annotation, read_node, unhealthy_gpus


def node(*, annotation: object = None, **capacity: object) -> dict[str, Any]:
    found = node_object(with_annotation=False)
    found["status"]["capacity"] = {
        {"memory": MEMORY, "count": COUNT}[name]: value for name, value in capacity.items()
    }
    found["metadata"]["annotations"] = {} if annotation is None else {GPUS: annotation}
    return found


def test_without_our_annotation_all_gpus_are_equal() -> None:
    offer = read_node(node(memory="17", count="2"), RESOURCES)
    assert offer.gpus == (Gpu(index=0, units=8), Gpu(index=1, units=8))
    assert offer.is_uniform


def test_with_it_each_gpu_has_its_own_size_and_health() -> None:
    gpus = (Gpu(index=0, units=80, uuid="GPU-a"), Gpu(index=3, units=16, uuid="GPU-b", is_healthy=False))
    offer = read_node(node(memory="96", count="2", annotation=node_annotation(reversed(gpus))), RESOURCES)
    assert offer.gpus == gpus
    assert not offer.is_uniform


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"gpus":[]}', '{"gpus":[{"index":0}]}', '{"gpus":[{"index":0,"units":-1}]}', "[" * 9000,
     '{"gpus":[{"index":0,"units":1},{"index":0,"units":2}]}', '{"gpus":[{"index":true,"units":1}]}',
     '{"gpus":[{"index":99999,"units":1}]}', '{"gpus":[{"index":0,"units":1,"healthy":"yes"}]}', 7],
)  # fmt: skip
def test_a_torn_annotation_is_a_problem_and_not_used(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_annotation(text)
    offer = read_node(node(memory="16", count="2", annotation=text), RESOURCES)
    assert [gpu.units for gpu in offer.gpus] == [8, 8]
    assert GPUS in offer.problem


@pytest.mark.parametrize(
    "capacity",
    [{}, {"memory": "0", "count": "2"}, {"memory": "8"}, {"memory": "8", "count": "0"},
     {"memory": "-8", "count": "2"},
     {"memory": "8", "count": "1000000000"}, {"memory": "x", "count": "2"}, {"memory": "8", "count": "-1"}],
)  # fmt: skip
def test_a_node_of_which_nothing_can_be_made_offers_nothing_and_says_why(capacity: dict[str, str]) -> None:
    offer = read_node(node(**capacity), RESOURCES)
    assert offer.gpus == ()
    assert offer.problem


def test_gpushares_configmap_lists_sick_gpus() -> None:
    def listed(name: str, gpus: object) -> object:
        return unhealthy_gpus({"metadata": {"name": name}, "data": {"gpus": gpus}})

    assert listed("unhealthy-gpu-node1", "0, 2,x,,-1,99999999999") == ("node1", frozenset({0, 2}))
    assert listed("unhealthy-node1", "1") == ("node1", frozenset({1}))
    assert listed("unhealthy-gpu-node1", None) == ("node1", frozenset())
    assert listed("extension-apiserver-authentication", "1") is None
