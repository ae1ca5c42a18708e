"""Requests that are out of all proportion, or too many: refused, and nothing stays of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import VISIBLE, Host, Plugin, asks, given, host, plugin
from support.nri.runtime import Rejected, Runtime, container, pod

from cdigen.nri.wire.protobuf import message_class

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_KB = 160 * 1024


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[Host, Plugin]]:
    with host() as here:
        here.write_inventory()
        with plugin(here) as running:
            yield here, running
            assert "Traceback" not in running.text
            assert "cdigen has a defect" not in running.text


@pytest.fixture(scope="module")
def connected(at: tuple[Host, Plugin]) -> Runtime:
    """Give one connection for all tests: what is wrong with a request fails that one alone."""
    return at[0].runtime()


@pytest.fixture
def runtime(at: tuple[Host, Plugin], connected: Runtime) -> Iterator[Runtime]:
    yield connected
    assert given(connected.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    assert at[1].resident_kb() < MOST_KB


def refused(runtime: Runtime, *env: str, **fields: object) -> str:
    with pytest.raises(Rejected) as caught:
        runtime.create(pod(namespace="ml", **fields), container(env=list(env)))
    assert "\n" not in caught.value.message
    assert len(caught.value.message) <= 4096
    return caught.value.message


def test_an_environment_that_is_not_utf_8_is_refused(runtime: Runtime) -> None:
    request = message_class("CreateContainerRequest")(container=container(env=["A=??"])).SerializeToString()
    with pytest.raises(Rejected, match="cannot be read"):
        runtime.call("CreateContainer", request.replace(b"??", b"\xff\xfe"))


LISTS = "/var/run/nvidia-container-devices"


def listing(*names: str, source: str = "/dev/null") -> Any:
    """Return a container with a mount of SOURCE for each of NAMES, a list of devices."""
    mounts = [{"source": source, "destination": f"{LISTS}/{name}"} for name in names]
    return container(env=[f"{VISIBLE}={LISTS}"], mounts=mounts)


def test_a_mount_that_is_not_utf_8_is_refused(runtime: Runtime) -> None:
    request = message_class("CreateContainerRequest")(container=listing("??")).SerializeToString()
    with pytest.raises(Rejected, match="cannot be read"):
        runtime.call("CreateContainer", request.replace(b"??", b"\xff\xfe"))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["0\n1"], "asks for '0\\n1'"),
        (["\u202e0"], "asks for"),
        (["../0"], "none asks for a GPU"),
        (["x/" * 400_000], "none asks for a GPU"),
        (["../" * 400_000], "none asks for a GPU"),
        (["cdi/../imex"], "asks for 'imex'"),
        (list(map(str, range(300))), "300 devices are asked for"),
        ([f"imex/{number}" for number in range(20_000)], "20000 devices are asked for"),
    ],
    ids=range(8),
)
def test_a_device_list_that_nobody_makes_is_refused_in_one_line(
    runtime: Runtime, names: list[str], reason: str
) -> None:
    with pytest.raises(Rejected) as caught:
        runtime.create(pod(namespace="ml"), listing(*names))
    assert reason in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) <= 4096


def test_ten_thousand_mounts_are_looked_through(runtime: Runtime) -> None:
    asked = listing(*map(str, range(10_000)), source="/dev/zero")
    asked.mounts.add(source="/dev/null", destination=f"{LISTS}/1")
    assert given(runtime.create(pod(namespace="ml"), asked)) == ["nvidia.com/gpu=1"]


def test_ten_thousand_variables_are_looked_through(runtime: Runtime) -> None:
    many = [f"NVIDIA_X{number}=all" for number in range(10_000)]
    assert given(runtime.create(*asks("1", *many))) == ["nvidia.com/gpu=1"]


def test_ten_thousand_wishes_in_variables_count_as_the_last_one(runtime: Runtime) -> None:
    many = [f"{VISIBLE}={number}" for number in range(10_000)]
    _, asked = asks(None, *many, f"{VISIBLE}=1")
    assert given(runtime.create(pod(namespace="ml"), asked)) == ["nvidia.com/gpu=1"]


@pytest.mark.parametrize("text", ["0," * 500_000, "x" * 1_000_000, "\x1b[31m" * 10_000, "0\n1", "\u202e0"])
def test_a_wish_that_nobody_writes_is_refused_in_one_line(runtime: Runtime, text: str) -> None:
    assert VISIBLE in refused(runtime, f"{VISIBLE}={text}")


@pytest.mark.parametrize(
    "text",
    [
        "cuda>=11.0 " * 100_000,
        "cuda>=" + "1" * 1_000_000,
        "," * 1_000_000,
        "brand=" + "x" * 30_000,
        "cuda>=1\x00",
        "nonsense",
    ],
)
def test_a_requirement_of_any_length_is_judged_or_refused(runtime: Runtime, text: str) -> None:
    assert "NVIDIA_REQUIRE" in refused(runtime, f"{VISIBLE}=all", f"NVIDIA_REQUIRE_CUDA={text}")


def test_ten_thousand_requirements_are_refused(runtime: Runtime) -> None:
    rows = [f"NVIDIA_REQUIRE_{number}=cuda>=1.0" for number in range(10_000)]
    assert "NVIDIA_REQUIRE_* hold more than" in refused(runtime, f"{VISIBLE}=all", *rows)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[" * 10_000,
        "{a: b}",
        "- !!python/object/apply:os.system [id]",
        "&a [*a]",
        "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]",
        "[nvidia.com/gpu=0, 7]",
        "\x00",
        "nvidia.com/gpu=0\nnvidia.com/gpu=1",
        "x" * 1_000_000,
        "[" + "nvidia.com/gpu=0," * 60_000 + "]",
    ],
)
@pytest.mark.parametrize(
    "name", ["devices.cdigen.dev", "cdi-devices.noderesource.dev/pod", "nvidia.cdi.k8s.io"]
)
def test_an_annotation_that_is_no_list_of_devices_is_refused(runtime: Runtime, name: str, text: str) -> None:
    assert "annotation" in refused(runtime, annotations={name: text})


def test_labels_and_annotations_of_a_megabyte_are_carried_along_and_not_kept(
    at: tuple[Host, Plugin], runtime: Runtime
) -> None:
    _, running = at
    before = running.resident_kb()
    for number in range(40):
        huge = {"note": f"{number}" + "x" * 1_000_000}
        assert given(runtime.create(*asks("0", labels=huge, annotations=huge))) == ["nvidia.com/gpu=0"]
    assert running.resident_kb() - before < 60 * 1024


def test_names_of_a_megabyte_are_cut_where_they_are_shown(at: tuple[Host, Plugin], runtime: Runtime) -> None:
    _, running = at
    for _ in range(30):
        runtime.create(*asks("0", name="n" * 1_000_000))
    name = "n" * 253
    running.sees(lambda: running.status["journal"][-1]["pod"] == name)
    assert len(str(running.status)) < 100_000


def test_a_container_with_ten_thousand_nodes_and_mounts_is_decided_on(runtime: Runtime) -> None:
    here = container(
        env=[f"{VISIBLE}=0"],
        linux={"devices": [{"path": f"/dev/x{number}"} for number in range(10_000)]},
        mounts=[{"destination": f"/m{number}"} for number in range(10_000)],
    )
    assert given(runtime.create(pod(namespace="ml"), here)) == ["nvidia.com/gpu=0"]


def test_a_request_of_more_than_four_megabytes_fails_alone(runtime: Runtime) -> None:
    data = bytes(5 << 20)
    header = struct.pack(">IIBB", len(data), 1001, 1, 0)
    runtime.send(1, header + data[: 3 << 20])
    runtime.transport.send(struct.pack(">II", 1, len(data) - (3 << 20)) + data[3 << 20 :])
    runtime._stream = 1001
    runtime._waiting.add(1001)
    with pytest.raises(Rejected) as caught:
        runtime.finish(1001)
    assert caught.value.code == 8
