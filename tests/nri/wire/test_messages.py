"""Protobuf: the descriptors match nri.proto, and encoded values are decoded to equal values."""

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
from cdigen.nri.wire.messages import CLASSES, DESCRIPTORS, TtrpcRequest, TtrpcResponse
from cdigen.service.descriptors import MessageError

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
    # A message has a separate list for each stage, so only the order within a stage is kept.
    hooks=st.lists(HOOKS, max_size=3).map(
        lambda hooks: tuple(sorted(hooks, key=lambda hook: STAGES.index(hook.stage)))
    ),
    cdi_devices=MANY_TEXTS,
)


def test_the_shipped_descriptors_equal_protocs_output_for_nri_proto(tmp_path: Path) -> None:
    if find_spec("grpc_tools") is None:
        cannot_run("protoc is not installed: pip install grpcio-tools")
    source = Path(DESCRIPTORS).with_name("nri.proto")
    made = tmp_path / "nri.binpb"
    command = ["-m", "grpc_tools.protoc", f"-I{source.parent}", f"--descriptor_set_out={made}", source.name]
    subprocess.run([sys.executable, *command], check=True, cwd=source.parent)
    shipped = FileDescriptorSet.FromString(Path(DESCRIPTORS).read_bytes())
    assert shipped == FileDescriptorSet.FromString(made.read_bytes()), "run 'make generated'"


@given(ADJUSTMENTS)
def test_an_adjustment_is_equal_after_encoding_and_decoding(adjustment: Adjustment) -> None:
    created = CLASSES["CreateContainerResponse"].FromString(messages.write_created(adjustment))
    asked = CLASSES["ValidateContainerAdjustmentRequest"](
        pod={"id": "p"},
        container={"id": "c"},
        adjust=created.adjust,
        plugins=[{"index": "20", "name": "cdigen"}],
    )
    pod, container, read, plugins, _ = messages.read_validate(asked.SerializeToString())
    assert read == adjustment
    assert (pod.id, container.id, plugins) == ("p", "c", ("20-cdigen",))


def test_the_owners_of_the_changes_of_a_container_are_decoded() -> None:
    # OwningPlugins.owners["c"].compound[6].owners["A"] = "-30-other", with the field numbers of api.proto.
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


def test_invalid_owners_raise_an_error_when_they_are_read() -> None:
    owners = messages.read_validate(b"\x2a\x02\xff\xff")[-1]
    with pytest.raises(MessageError):
        owners()


@given(TEXTS, TEXTS, st.binary(max_size=20), INT64)
def test_a_request_is_equal_after_encoding_and_decoding(
    service: str, method: str, payload: bytes, timeout_ns: int
) -> None:
    request = TtrpcRequest(service=service, method=method, payload=payload, timeout_ns=timeout_ns)
    assert messages.read_request(messages.write_request(request)) == request


def test_a_container_is_read_with_all_relevant_fields() -> None:
    request = CLASSES["CreateContainerRequest"](
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
            "linux": {
                "namespaces": [{"type": "pid"}, {"type": "user", "path": "/proc/7/ns/user"}],
                "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195}],
            },
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
    assert container.has_user_namespace
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
def test_the_last_rule_for_all_devices_applies(rules: tuple[dict[str, object], ...], *, may: bool) -> None:
    linux = {"resources": {"devices": rules}}
    request = CLASSES["CreateContainerRequest"](container={"id": "c", "linux": linux})
    assert messages.read_create(request.SerializeToString())[1].may_use_all_devices is may


def test_unknown_fields_are_skipped() -> None:
    args_and_pid = b"\x3a\x02sh" + b"\x60\x07"
    container = CLASSES["Container"](id="c", env=["A=1"]).SerializeToString() + args_and_pid
    request = b"\x12" + bytes([len(container)]) + container + b"\xfa\x07\x01x"
    assert messages.read_create(request)[1].env == ("A=1",)


def test_an_empty_message_is_decoded_as_a_container_without_requests() -> None:
    pod, container = messages.read_create(b"")
    assert (pod.id, container.env, container.devices) == ("", (), ())


def test_text_that_is_not_utf_8_raises_an_error() -> None:
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
def test_values_that_do_not_fit_into_a_message_raise_an_error(write: Callable[[], bytes]) -> None:
    with pytest.raises(MessageError):
        write()


def test_an_error_with_any_text_can_be_encoded() -> None:
    response = messages.read_response(messages.write_error(2, "\udcff" + "x" * 10_000_000))
    assert response == TtrpcResponse(code=2, message="?" + "x" * (messages.MAX_ERROR - 1), payload=b"")


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_raise_a_message_error(data: bytes) -> None:
    for read in READERS:
        with suppress(MessageError):
            read(data)
