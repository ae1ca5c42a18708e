"""Protobuf: the descriptors are those of nri.proto, and values survive the wire."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st
from support.abilities import cannot_run

from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerHook, ContainerMount
from cdigen.nri.wire import messages
from cdigen.nri.wire.messages import TtrpcRequest, TtrpcResponse
from cdigen.nri.wire.protobuf import DESCRIPTORS, MessageError, message_class

if TYPE_CHECKING:
    from collections.abc import Callable

READERS = (
    messages.read_request,
    messages.read_response,
    messages.read_configure,
    messages.read_synchronize,
    messages.read_create,
    messages.read_validate,
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
MANY_TEXTS = st.lists(TEXTS, max_size=3).map(tuple)
MAPS = st.dictionaries(TEXTS, TEXTS, max_size=3)
MAYBE = st.none() | st.integers(0, 2**32 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MOUNTS = st.builds(ContainerMount, destination=TEXTS, source=TEXTS, type=TEXTS, options=MANY_TEXTS)
DEVICES = st.builds(
    ContainerDevice, path=TEXTS, type=TEXTS, major=INT64, minor=INT64, file_mode=MAYBE, uid=MAYBE, gid=MAYBE
)
STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
HOOKS = st.builds(
    ContainerHook,
    stage=st.sampled_from(STAGES),
    path=TEXTS,
    args=MANY_TEXTS,
    env=MANY_TEXTS,
    timeout=st.none() | INT64,
)
ADJUSTMENTS = st.builds(
    Adjustment,
    annotations=MAPS,
    env=MAPS,
    mounts=st.lists(MOUNTS, max_size=3).map(tuple),
    devices=st.lists(DEVICES, max_size=3).map(tuple),
    # Stages are separate lists on the wire, so that only the order within each is kept.
    hooks=st.lists(HOOKS, max_size=3).map(
        lambda hooks: tuple(sorted(hooks, key=lambda hook: STAGES.index(hook.stage)))
    ),
    cdi_devices=MANY_TEXTS,
)


def test_the_shipped_descriptors_are_what_protoc_makes_of_nri_proto(tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        cannot_run("protoc is not there: pip install grpcio-tools")
    source = Path(DESCRIPTORS).with_name("nri.proto")
    made = tmp_path / "nri.binpb"
    command = ["-m", "grpc_tools.protoc", f"-I{source.parent}", f"--descriptor_set_out={made}", source.name]
    subprocess.run([sys.executable, *command], check=True, cwd=source.parent)
    shipped = FileDescriptorSet.FromString(Path(DESCRIPTORS).read_bytes())
    assert shipped == FileDescriptorSet.FromString(made.read_bytes()), "run 'make generated'"


@given(ADJUSTMENTS)
def test_an_adjustment_written_is_the_adjustment_read(adjustment: Adjustment) -> None:
    created = message_class("CreateContainerResponse").FromString(messages.write_created(adjustment))
    asked = message_class("ValidateContainerAdjustmentRequest")(
        pod={"id": "p"},
        container={"id": "c"},
        adjust=created.adjust,
        plugins=[{"index": "20", "name": "cdigen"}],
    )
    pod, container, read, plugins, _ = messages.read_validate(asked.SerializeToString())
    assert read == adjustment
    assert (pod.id, container.id, plugins) == ("p", "c", ("20-cdigen",))


def test_whose_part_is_whose_is_read_by_the_numbers_of_nri_for_the_container_alone() -> None:
    # OwningPlugins.owners["c"].compound[6].owners["A"] = "-30-other", by api.proto.
    pair = b"\x0a\x01A\x12\x09-30-other"
    compound = b"\x0a" + bytes([len(pair)]) + pair
    field = b"\x08\x06\x12" + bytes([len(compound)]) + compound
    of_one = b"\x12" + bytes([len(field)]) + field
    entry = b"\x0a\x01c\x12" + bytes([len(of_one)]) + of_one
    data = b"\x0a" + bytes([len(entry)]) + entry
    for container, env in (("c", {"A": "-30-other"}), ("d", {})):
        asked = b"\x12\x03\x0a\x01" + container.encode() + b"\x2a" + bytes([len(data)]) + data
        owners = messages.read_validate(asked)[-1]()
        assert (owners.env, owners.annotations, owners.mounts, owners.devices) == (env, {}, {}, {})


def test_owners_that_cannot_be_read_do_so_when_they_are_asked_for() -> None:
    owners = messages.read_validate(b"\x2a\x02\xff\xff")[-1]
    with pytest.raises(MessageError):
        owners()


@given(TEXTS, TEXTS, st.binary(max_size=20), INT64)
def test_a_request_written_is_the_request_read(
    service: str, method: str, payload: bytes, timeout_ns: int
) -> None:
    request = TtrpcRequest(service=service, method=method, payload=payload, timeout_ns=timeout_ns)
    assert messages.read_request(messages.write_request(request)) == request


def test_a_container_is_read_with_all_that_decides() -> None:
    request = message_class("CreateContainerRequest")(
        pod={
            "id": "p",
            "name": "trainer",
            "uid": "u",
            "namespace": "ml",
            "labels": {"app": "x"},
            "annotations": {"devices": "all"},
            "runtime_handler": "runc",
        },
        container={
            "id": "c",
            "pod_sandbox_id": "p",
            "name": "main",
            "annotations": {"io.kubernetes.cri.container-type": "container"},
            "env": ["A=1", "B=ä"],
            "mounts": [{"destination": "/d", "source": "/s", "type": "bind", "options": ["rbind", "ro"]}],
            "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195}]},
            "cdi_devices": [{"name": "nvidia.com/gpu=0"}],
        },
    )
    pod, container = messages.read_create(request.SerializeToString())
    assert (pod.id, pod.name, pod.namespace) == ("p", "trainer", "ml")
    assert (pod.labels, pod.annotations) == ({"app": "x"}, {"devices": "all"})
    assert pod.runtime_handler == "runc"
    assert (container.id, container.pod_id, container.name) == ("c", "p", "main")
    assert container.annotations == {"io.kubernetes.cri.container-type": "container"}
    assert container.env == ("A=1", "B=ä")
    assert container.mounts == (
        ContainerMount(destination="/d", source="/s", type="bind", options=("rbind", "ro")),
    )
    assert container.devices == ("/dev/nvidia0",)
    assert container.cdi_devices == ("nvidia.com/gpu=0",)


ALL = {"allow": True, "access": "rwm"}
DENIED = {"access": "rwm"}
ONE = {"allow": True, "type": "c", "major": {"value": 195}, "minor": {"value": 0}, "access": "rwm"}


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ((), False),
        ((ALL,), True),
        ((DENIED, {**ALL, "type": "a"}), True),
        ((DENIED, ALL, ONE), True),
        ((ALL, DENIED), False),
        ((DENIED, ONE), False),
        (({**ALL, "type": "c"},), False),
        (({**ALL, "access": "m"},), False),
        (({**ALL, "major": {"value": 0}},), False),
        (({**ALL, "minor": {}},), False),
    ],
)
def test_all_devices_may_be_used_where_the_last_rule_about_all_says_so(
    rules: tuple[dict[str, object], ...], *, may: bool
) -> None:
    linux = {"resources": {"devices": rules}}
    request = message_class("CreateContainerRequest")(container={"id": "c", "linux": linux})
    assert messages.read_create(request.SerializeToString())[1].may_use_all_devices is may


def test_fields_that_we_do_not_know_are_skipped() -> None:
    args_and_pid = b"\x3a\x02sh" + b"\x60\x07"
    container = message_class("Container")(id="c", env=["A=1"]).SerializeToString() + args_and_pid
    request = b"\x12" + bytes([len(container)]) + container + b"\xfa\x07\x01x"
    assert messages.read_create(request)[1].env == ("A=1",)


def test_an_empty_message_is_a_container_that_wants_nothing() -> None:
    pod, container = messages.read_create(b"")
    assert (pod.id, container.env, container.devices) == ("", (), ())


def test_text_that_is_not_utf_8_cannot_be_read() -> None:
    with pytest.raises(MessageError, match="CreateContainerRequest cannot be read"):
        messages.read_create(b"\x12\x04\x42\x02\xff\xfe")


@pytest.mark.parametrize(
    "write",
    [
        lambda: messages.write_validated("\ud800"),
        lambda: messages.write_configured(1 << 31),
        lambda: messages.write_created(Adjustment(env={"A": "\udcff"})),
        lambda: messages.write_created(
            Adjustment(devices=(ContainerDevice(path="/dev/x", type="c", major=1 << 63, minor=0),))
        ),
        lambda: messages.write_created(
            Adjustment(devices=(ContainerDevice(path="/dev/x", type="c", major=1, minor=0, gid=-1),))
        ),
        lambda: messages.write_created(
            Adjustment(hooks=(ContainerHook(stage="createcontainer", path="/p", args=(), env=()),))
        ),
    ],
)
def test_values_that_the_wire_has_no_room_for_are_an_error(write: Callable[[], bytes]) -> None:
    with pytest.raises(MessageError):
        write()


def test_an_error_can_always_be_written() -> None:
    response = messages.read_response(messages.write_error(2, "\udcff" + "x" * 10_000_000))
    assert response == TtrpcResponse(code=2, message="?" + "x" * (messages.MAX_ERROR - 1), payload=b"")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    for read in READERS:
        with suppress(MessageError):
            read(data)
