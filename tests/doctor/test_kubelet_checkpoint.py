"""cdigen parses the kubelet's record of devices (the checkpoint), with valid and with invalid content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.kubernetes_host import POD, checkpoint
from support.kubelet.resources import GPU

from cdigen.doctor.kubernetes_node.checkpoint import AllocatedContainer, Checkpoint, parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
NAMES = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs")


def test_the_record_of_a_kubelet_is_read() -> None:
    found = parse(
        json.dumps(checkpoint((POD, GPU, ["a"]), registered={GPU: ["a", "b"], "x/y": None})).encode()
    )
    assert found.held == (AllocatedContainer(pod=POD, container="main", resource=GPU, ids=("a",)),)
    assert found.registered == (GPU, "x/y")
    assert found.problem == ""


def test_the_device_ids_of_kubelets_before_1_20_are_a_list() -> None:
    document = checkpoint((POD, GPU, []))
    document["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = ["a", "b"]
    assert parse(json.dumps(document).encode()).held[0].ids == ("a", "b")


def test_a_record_without_devices_is_valid() -> None:
    text = b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3393434300}'
    assert parse(text) == Checkpoint()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\x00", b"[" * 100_000, b"{}", b'{"Data": []}', b"\xed\xa0\x80"]
)
def test_invalid_content_is_reported_as_a_problem_without_an_exception(content: bytes) -> None:
    assert parse(content).problem


@given(st.dictionaries(st.sampled_from(NAMES), JSON), JSON)
def test_a_part_with_an_unexpected_format_does_not_hide_other_parts(
    row: dict[str, object], registered: object
) -> None:
    document = checkpoint((POD, GPU, ["a"]))
    document["Data"]["PodDeviceEntries"].insert(0, row)
    document["Data"]["RegisteredDevices"] = registered
    found = parse(json.dumps(document).encode())
    assert found.held[-1] == AllocatedContainer(pod=POD, container="main", resource=GPU, ids=("a",))
    assert all(isinstance(one, str) for held in found.held for one in (held.pod, held.resource, *held.ids))


@given(JSON)
def test_any_document_can_be_parsed(document: object) -> None:
    for part in (
        document,
        {"Data": document},
        {"Data": {"PodDeviceEntries": document, "RegisteredDevices": document}},
    ):
        assert isinstance(parse(json.dumps(part).encode()), Checkpoint)
