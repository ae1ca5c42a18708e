"""The kubelet's messages: the descriptors are those of the .proto files, and the bytes are a kubelet's."""

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
from support.kubelet.offered import Echo
from support.kubelet.resources import units
from support.waiting import PATIENCE_S

from cdigen.frontend.descriptors import MessageError
from cdigen.kubelet.pods import PodDevices, PodList
from cdigen.kubelet.wire import messages
from cdigen.kubelet.wire.messages import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

WIRE = Path(messages.__file__).parent
READERS = (
    messages.read_devices,
    messages.read_preferences,
    messages.read_allocate,
    messages.read_pods,
    messages.read_allocatable,
)


@pytest.mark.parametrize("name", ["deviceplugin", "podresources"])
def test_the_shipped_descriptors_are_what_protoc_makes(name: str, tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        cannot_run("protoc is not there: pip install grpcio-tools")
    made = tmp_path / "made"
    command = ["-m", "grpc_tools.protoc", f"-I{WIRE}", f"--descriptor_set_out={made}", f"{name}.proto"]
    subprocess.run([sys.executable, *command], check=True, cwd=WIRE)
    shipped = FileDescriptorSet.FromString((WIRE / f"{name}.binpb").read_bytes())
    assert shipped == FileDescriptorSet.FromString(made.read_bytes()), "run 'make generated'"


# By the numbers of kubernetes/kubelet's api.proto: what Go's code would send and take.


def test_a_registration_is_the_bytes_that_a_kubelet_takes() -> None:
    assert messages.write_registration("a/b", "c.sock") == (
        b"\x0a\x07v1beta1\x12\x06c.sock\x1a\x03a/b\x22\x02\x10\x01"
    )


def test_the_options_are_the_bytes_that_a_kubelet_takes() -> None:
    assert messages.write_options() == b"\x10\x01"


def test_a_list_is_the_bytes_that_a_kubelet_takes() -> None:
    (on_node,) = units("x", numa=3)
    (sick,) = units("y", health="unhealthy", numa=None)
    topology = b"\x1a\x04\x0a\x02\x08\x03"
    first = b"\x0a\x01x\x12\x07Healthy" + topology
    second = b"\x0a\x01y\x12\x09Unhealthy"
    assert messages.write_devices([on_node, sick]) == (
        b"\x0a" + bytes([len(first)]) + first + b"\x0a" + bytes([len(second)]) + second
    )


def test_a_device_of_unknown_health_is_offered_and_one_of_numa_node_minus_one_has_no_hint() -> None:
    data = messages.write_devices(units("x", health="unknown", numa=-1))
    assert messages.read_devices(data) == (("x", "Healthy", ()),)


def test_requests_of_a_kubelet_are_read() -> None:
    assert messages.read_allocate(b"\x0a\x06\x0a\x01a\x0a\x01b") == (("a", "b"),)
    (asked,) = messages.read_preferences(b"\x0a\x0b\x0a\x01a\x0a\x01b\x12\x01b\x18\x02")
    assert (asked.available, asked.must_include, asked.count) == (("a", "b"), ("b",), 2)


def test_an_answer_is_the_bytes_that_a_kubelet_takes() -> None:
    data = messages.write_allocated([asyncio.run(Echo().allocate(("x",)))])
    for part in (
        b"\x0a\x09\x0a\x04SEEN\x12\x011",
        b"\x12\x0a\x0a\x02/c\x12\x02/d\x18\x01",
        b"\x1a\x14\x0a\x06/dev/a\x12\x06/dev/b\x1a\x02rw",
        b"\x2a\x12\x0a\x10nvidia.com/gpu=x",
    ):
        assert part in data, part


def test_the_devices_of_containers_are_read_with_those_of_other_numa_nodes_joined() -> None:
    devices = [{"resource_name": "a/b", "device_ids": ["x"]}, {"resource_name": "a/b", "device_ids": ["y"]}]
    pod = {"name": "p", "namespace": "n", "containers": [{"name": "c", "devices": devices}]}
    idle = {"name": "idle", "namespace": "n", "containers": [{"name": "c"}]}
    data = PODS["ListPodResourcesResponse"](pod_resources=[pod, idle]).SerializeToString()
    found = PodDevices(namespace="n", pod="p", container="c", resource="a/b", ids=("x", "y"))
    assert messages.read_pods(data) == PodList(devices=(found,), names=frozenset(("n/p", "n/idle")))
    shown = PODS["AllocatableResourcesResponse"](devices=devices).SerializeToString()
    assert messages.read_allocatable(shown) == {"a/b": frozenset("xy")}


def pods_with(containers: int) -> bytes:
    """Return a list of eight pods with so many CONTAINERS each."""
    pod = {"name": "p", "namespace": "n", "containers": [{"name": "c"}] * containers}
    return bytes(PODS["ListPodResourcesResponse"](pod_resources=[pod] * 8).SerializeToString())


def test_reading_a_list_of_pods_ends_in_time() -> None:
    with pytest.raises(MessageError, match=r"the list of pods, 39 KiB, takes too long to read"):
        messages.read_pods(pods_with(1000), time.monotonic())
    assert messages.read_pods(pods_with(1000), time.monotonic() + PATIENCE_S).names == {"n/p"}


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05abc", b"\xff" * 11, b"\x0b", b"\x09abc", b"\x0a\x02\xff\xff", b"\x80"],
    ids=["no-length", "short", "long-number", "group", "short-fixed", "no-pod", "no-end"],
)
def test_a_list_of_pods_that_is_not_whole_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        messages.read_pods(data)


def test_fields_of_newer_kubelets_are_skipped() -> None:
    newer = b"\x10\x96\x01" + b"\x19" + b"12345678" + b"\x25" + b"1234" + b"\x2a\x01x"
    assert messages.read_pods(newer + pods_with(1) + newer).names == {"n/p"}


def test_five_thousand_replicas_fit_and_more_than_a_kubelet_takes_are_refused() -> None:
    ids = [f"GPU-00000000-0000-0000-0000-000000000000::{number}" for number in range(5000)]
    data = messages.write_devices(units(*ids))
    assert len(data) < messages.MAX_MESSAGE / 8
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
        (["x" * 64], "has 64 characters"),
        ([""], "has 0 characters"),
        (["x", "x"], "two devices have the same id"),
        (["\ud800"], "cannot be written"),
    ],
)
def test_what_a_kubelet_would_not_take_is_refused_before_it_is_sent(ids: list[str], reason: str) -> None:
    with pytest.raises(MessageError, match=reason):
        messages.write_devices(units(*ids))


@pytest.mark.parametrize("reader", READERS)
@given(data=st.binary(max_size=64))
def test_bytes_of_any_kind_are_a_message_or_a_message_error(
    reader: Callable[[bytes], object], data: bytes
) -> None:
    with suppress(MessageError):
        reader(data)
