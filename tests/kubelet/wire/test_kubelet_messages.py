"""The kubelet's messages: the descriptors match the .proto files, and the bytes match a kubelet's bytes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import cannot_run
from support.kubelet.advertised import Echo
from support.kubelet.resources import units
from support.waiting import PATIENCE_S

from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.resources.model import MAX_MESSAGE
from cdigen.kubelet.wire import messages
from cdigen.kubelet.wire.messages import PODS
from cdigen.service.descriptors import MessageError

if TYPE_CHECKING:
    from collections.abc import Callable

WIRE = Path(messages.__file__).parent
READERS = (
    messages.read_preferred_requests,
    messages.read_allocate,
    messages.read_pods,
    messages.read_allocatable,
)


@pytest.mark.parametrize("name", ["deviceplugin", "podresources"])
def test_the_shipped_descriptors_equal_the_output_of_protoc(name: str, tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        cannot_run("protoc is not installed: pip install grpcio-tools")
    made = tmp_path / "made"
    command = ["-m", "grpc_tools.protoc", f"-I{WIRE}", f"--descriptor_set_out={made}", f"{name}.proto"]
    subprocess.run([sys.executable, *command], check=True, cwd=WIRE)
    shipped = FileDescriptorSet.FromString((WIRE / f"{name}.binpb").read_bytes())
    assert shipped == FileDescriptorSet.FromString(made.read_bytes()), "run 'make generated'"


# The expected bytes are as Go's code encodes them, with the field numbers of kubernetes/kubelet's api.proto.


def test_a_registration_has_the_bytes_that_a_kubelet_expects() -> None:
    assert messages.write_registration("a/b", "c.sock") == (
        b"\x0a\x07v1beta1\x12\x06c.sock\x1a\x03a/b\x22\x02\x10\x01"
    )


def test_the_options_have_the_bytes_that_a_kubelet_expects() -> None:
    assert messages.write_options() == b"\x10\x01"


def test_a_list_has_the_bytes_that_a_kubelet_expects() -> None:
    (on_node,) = units("x", numa=3)
    (unhealthy,) = units("y", health="unhealthy", numa=None)
    topology = b"\x1a\x04\x0a\x02\x08\x03"
    first = b"\x0a\x01x\x12\x07Healthy" + topology
    second = b"\x0a\x01y\x12\x09Unhealthy"
    assert messages.write_devices([on_node, unhealthy]) == (
        b"\x0a" + bytes([len(first)]) + first + b"\x0a" + bytes([len(second)]) + second
    )


def test_a_device_of_unknown_health_is_sent_as_healthy_and_numa_node_minus_one_is_left_out() -> None:
    data = messages.write_devices(units("x", health="unknown", numa=-1))
    assert data == b"\x0a\x0c\x0a\x01x\x12\x07Healthy"


def test_requests_of_a_kubelet_are_read() -> None:
    assert messages.read_allocate(b"\x0a\x06\x0a\x01a\x0a\x01b") == (("a", "b"),)
    found = messages.read_preferred_requests(b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01b\x18\x02")
    assert found == ((("a", "b"), ("b",), 2),)


def test_a_response_has_the_bytes_that_a_kubelet_expects() -> None:
    data = messages.write_allocated([asyncio.run(Echo().allocate(("x",)))])
    for part in (
        b"\x0a\x0d\x0a\x08VARIABLE\x12\x011",
        b"\x12\x08\x0a\x02/c\x12\x02/d",
        b"\x1a\x14\x0a\x06/dev/a\x12\x06/dev/b\x1a\x02rw",
        b"\x2a\x12\x0a\x10nvidia.com/gpu=x",
    ):
        assert part in data, part


def test_devices_of_a_container_on_several_numa_nodes_are_joined() -> None:
    devices = [{"resource_name": "a/b", "device_ids": ["x"]}, {"resource_name": "a/b", "device_ids": ["y"]}]
    pod = {"name": "p", "namespace": "n", "containers": [{"name": "c", "devices": devices}]}
    idle = {"name": "idle", "namespace": "n", "containers": [{"name": "c"}]}
    data = PODS["ListPodResourcesResponse"](pod_resources=[pod, idle]).SerializeToString()
    found = PodDevices(namespace="n", pod="p", container="c", resource="a/b", ids=("x", "y"))
    assert messages.read_pods(data) == PodList(devices=(found,), names=frozenset(("n/p", "n/idle")))
    shown = PODS["AllocatableResourcesResponse"](devices=devices).SerializeToString()
    assert messages.read_allocatable(shown) == {"a/b": frozenset("xy")}


def pods_with(containers: int) -> bytes:
    """Return a list of eight pods, each with CONTAINERS containers."""
    pod = {"name": "p", "namespace": "n", "containers": [{"name": "c"}] * containers}
    return bytes(PODS["ListPodResourcesResponse"](pod_resources=[pod] * 8).SerializeToString())


def test_reading_a_list_of_pods_ends_at_the_deadline() -> None:
    with pytest.raises(MessageError, match=r"the list of pods, 39 KiB, takes too long to read"):
        messages.read_pods(pods_with(1000), time.monotonic())
    assert messages.read_pods(pods_with(1000), time.monotonic() + PATIENCE_S).names == {"n/p"}


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05abc", b"\xff" * 11, b"\x0b", b"\x09abc", b"\x0a\x02\xff\xff", b"\x80"],
    ids=["no-length", "short", "long-number", "group", "short-fixed", "no-pod", "no-end"],
)
def test_an_incomplete_or_invalid_list_of_pods_is_rejected(data: bytes) -> None:
    with pytest.raises(MessageError):
        messages.read_pods(data)


def test_fields_of_newer_kubelets_are_ignored() -> None:
    newer = b"\x10\x96\x01" + b"\x19" + b"12345678" + b"\x25" + b"1234" + b"\x2a\x01x"
    assert messages.read_pods(newer + pods_with(1) + newer).names == {"n/p"}


def test_five_thousand_replicas_fit_into_a_list_and_a_list_above_the_limit_is_rejected() -> None:
    ids = [f"GPU-00000000-0000-0000-0000-000000000000::{number}" for number in range(5000)]
    data = messages.write_devices(units(*ids))
    assert len(data) < MAX_MESSAGE / 8
    one = units(*ids[:1])[0]
    many = [
        type(one)(id=f"{number:063}", health="healthy", numa=0, accelerator=one.accelerator)
        for number in range(60_000)
    ]
    with pytest.raises(MessageError, match=r"the list of 60000 devices has \d+ bytes.*configure fewer"):
        messages.write_devices(many)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (["x" * 64], "64 characters, but 1 to 63"),
        ([""], "0 characters, but 1 to 63"),
        (["x", "x"], "two devices have the same id"),
        (["\ud800"], "cannot be written"),
    ],
)
def test_ids_that_a_kubelet_would_reject_are_not_sent(ids: list[str], reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        messages.write_devices(units(*ids))


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_message_error(reader: Callable[[bytes], object], data: bytes) -> None:
    with suppress(MessageError):
        reader(data)
