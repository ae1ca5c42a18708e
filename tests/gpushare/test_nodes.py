from typing import Any

import pytest
from support.kubernetes.gpu_memory_pods import COUNT, MEMORY, RESOURCES, node_object

from cdigen.gpushare.names import GPUS
from cdigen.gpushare.nodes import NodeGpu, node_annotation, read_annotation, read_node, unhealthy_gpus


def node(*, annotation: object = None, **capacity: object) -> dict[str, Any]:
    document = node_object(with_annotation=False)
    document["status"]["capacity"] = {
        {"memory": MEMORY, "count": COUNT}[name]: value for name, value in capacity.items()
    }
    document["metadata"]["annotations"] = {} if annotation is None else {GPUS: annotation}
    return document


def test_without_cdigens_annotation_all_gpus_have_the_same_size() -> None:
    found = read_node(node(memory="17", count="2"), RESOURCES)
    assert found.gpus == (NodeGpu(index=0, units=8), NodeGpu(index=1, units=8))


def test_with_the_annotation_each_gpu_has_its_own_size_and_health() -> None:
    gpus = (
        NodeGpu(index=0, units=80, uuid="GPU-a"),
        NodeGpu(index=3, units=16, uuid="GPU-b", is_healthy=False),
    )
    found = read_node(node(memory="96", count="2", annotation=node_annotation(reversed(gpus))), RESOURCES)
    assert found.gpus == gpus


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"gpus":[]}', '{"gpus":[{"index":0}]}', '{"gpus":[{"index":0,"units":-1}]}', "[" * 9000,
     '{"gpus":[{"index":0,"units":1},{"index":0,"units":2}]}', '{"gpus":[{"index":true,"units":1}]}',
     '{"gpus":[{"index":99999,"units":1}]}', '{"gpus":[{"index":0,"units":1,"healthy":"yes"}]}', 7],
)  # fmt: skip
def test_an_invalid_annotation_is_reported_and_ignored(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_annotation(text)
    found = read_node(node(memory="16", count="2", annotation=text), RESOURCES)
    assert [gpu.units for gpu in found.gpus] == [8, 8]
    assert GPUS in found.problem


@pytest.mark.parametrize(
    "capacity",
    [{}, {"memory": "0", "count": "2"}, {"memory": "8"}, {"memory": "8", "count": "0"},
     {"memory": "-8", "count": "2"},
     {"memory": "8", "count": "1000000000"}, {"memory": "x", "count": "2"}, {"memory": "8", "count": "-1"}],
)  # fmt: skip
def test_a_node_with_an_invalid_capacity_has_no_gpus_and_a_problem(capacity: dict[str, str]) -> None:
    found = read_node(node(**capacity), RESOURCES)
    assert found.gpus == ()
    assert found.problem


def test_gpushares_configmap_lists_unhealthy_gpus() -> None:
    def listed(name: str, gpus: object) -> object:
        return unhealthy_gpus({"metadata": {"name": name}, "data": {"gpus": gpus}})

    assert listed("unhealthy-gpu-node1", "0, 2,x,,-1,99999999999") == ("node1", frozenset({0, 2}))
    assert listed("unhealthy-node1", "1") == ("node1", frozenset({1}))
    assert listed("unhealthy-gpu-node1", None) == ("node1", frozenset())
    assert listed("extension-apiserver-authentication", "1") is None
