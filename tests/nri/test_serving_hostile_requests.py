"""Requests that are too large, or too many: the plugin refuses the requests and releases their memory."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from support.nri.host import LISTS
from support.nri.plugin import VISIBLE, Plugin, cdi_devices, gpu_request
from support.nri.runtime import Rejected, Runtime, container, pod

from cdigen.nri.wire.messages import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_KB = 160 * 1024


@pytest.fixture(scope="module")
def connected(shared: Plugin) -> Runtime:
    """Return one connection for all tests. An invalid request does not end the connection."""
    shared.host.write_inventory()
    return shared.host.runtime()


@pytest.fixture
def runtime(shared: Plugin, connected: Runtime) -> Iterator[Runtime]:
    yield connected
    assert cdi_devices(connected.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    assert shared.resident_kb() < MOST_KB


def refused(runtime: Runtime, made: Any, **fields: object) -> str:
    """Return the reason (one line) with which the container MADE in a pod with FIELDS is refused."""
    with pytest.raises(Rejected) as caught:
        runtime.create(pod(namespace="ml", **fields), made)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) <= 4096
    return caught.value.message


def listing(*names: str, source: str = "/dev/null") -> Any:
    """Return a container with a device list: a mount of SOURCE for each of NAMES."""
    mounts = [{"source": source, "destination": f"{LISTS}/{name}"} for name in names]
    return container(env=[f"{VISIBLE}={LISTS}"], mounts=mounts)


@pytest.mark.parametrize("made", [container(env=["A=??"]), listing("??")], ids=["variable", "mount"])
def test_text_that_is_not_utf_8_is_refused(runtime: Runtime, made: Any) -> None:
    request = CLASSES["CreateContainerRequest"](container=made).SerializeToString()
    with pytest.raises(Rejected, match="cannot be read"):
        runtime.call("CreateContainer", request.replace(b"??", b"\xff\xfe"))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["0\n1"], "requests '0\\n1'"),
        (["\u202e0"], "requests"),
        (["../0"], "no mount requests a GPU"),
        (["x/" * 400_000], "no mount requests a GPU"),
        (["../" * 400_000], "no mount requests a GPU"),
        (["cdi/../imex"], "requests 'imex'"),
        (list(map(str, range(300))), "too many devices requested (300, limit 256)"),
        ([f"imex/{number}" for number in range(20_000)], "too many devices requested (20000, limit 256)"),
    ],
    ids=range(8),
)
def test_an_absurd_device_list_is_refused_in_one_line(
    runtime: Runtime, names: list[str], reason: str
) -> None:
    assert reason in refused(runtime, listing(*names))


def test_a_device_is_found_in_ten_thousand_mounts(runtime: Runtime) -> None:
    asked = listing(*map(str, range(10_000)), source="/dev/zero")
    asked.mounts.add(source="/dev/null", destination=f"{LISTS}/1")
    assert cdi_devices(runtime.create(pod(namespace="ml"), asked)) == ["nvidia.com/gpu=1"]


def test_a_device_is_found_in_ten_thousand_variables(runtime: Runtime) -> None:
    many = [f"NVIDIA_X{number}=all" for number in range(10_000)]
    assert cdi_devices(runtime.create(*gpu_request("1", *many))) == ["nvidia.com/gpu=1"]


def test_the_last_of_ten_thousand_repeated_variables_applies(runtime: Runtime) -> None:
    many = [f"{VISIBLE}={number}" for number in range(10_000)]
    _, asked = gpu_request(None, *many, f"{VISIBLE}=1")
    assert cdi_devices(runtime.create(pod(namespace="ml"), asked)) == ["nvidia.com/gpu=1"]


@pytest.mark.parametrize("text", ["0," * 500_000, "x" * 1_000_000, "\x1b[31m" * 10_000, "0\n1", "\u202e0"])
def test_an_absurd_request_is_refused_in_one_line(runtime: Runtime, text: str) -> None:
    assert VISIBLE in refused(runtime, container(env=[f"{VISIBLE}={text}"]))


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
def test_an_absurd_requirement_is_refused_in_one_line(runtime: Runtime, text: str) -> None:
    asked = container(env=[f"{VISIBLE}=all", f"NVIDIA_REQUIRE_CUDA={text}"])
    assert "NVIDIA_REQUIRE" in refused(runtime, asked)


def test_ten_thousand_requirements_are_refused(runtime: Runtime) -> None:
    rows = [f"NVIDIA_REQUIRE_{number}=cuda>=1.0" for number in range(10_000)]
    assert "NVIDIA_REQUIRE_* have more than" in refused(runtime, container(env=[f"{VISIBLE}=all", *rows]))


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
def test_an_annotation_without_a_device_list_is_refused(runtime: Runtime, name: str, text: str) -> None:
    assert "annotation" in refused(runtime, container(env=[]), annotations={name: text})


def test_labels_and_annotations_of_a_megabyte_are_not_kept(shared: Plugin, runtime: Runtime) -> None:
    before = shared.resident_kb()
    for number in range(40):
        huge = {"note": f"{number}" + "x" * 1_000_000}
        assert cdi_devices(runtime.create(*gpu_request("0", labels=huge, annotations=huge))) == [
            "nvidia.com/gpu=0"
        ]
    assert shared.resident_kb() - before < 60 * 1024


def test_names_of_a_megabyte_are_cut_in_the_status(shared: Plugin, runtime: Runtime) -> None:
    for _ in range(30):
        runtime.create(*gpu_request("0", name="n" * 1_000_000))
    name = "n" * 253
    shared.sees(lambda: shared.status["journal"][-1]["pod"] == name)
    assert len(str(shared.status)) < 100_000


def test_a_container_with_ten_thousand_nodes_and_mounts_gets_a_decision(runtime: Runtime) -> None:
    here = container(
        env=[f"{VISIBLE}=0"],
        linux={"devices": [{"path": f"/dev/x{number}"} for number in range(10_000)]},
        mounts=[{"destination": f"/m{number}"} for number in range(10_000)],
    )
    assert cdi_devices(runtime.create(pod(namespace="ml"), here)) == ["nvidia.com/gpu=0"]


def test_a_request_above_four_megabytes_fails_and_the_connection_stays_open(runtime: Runtime) -> None:
    data = bytes(5 << 20)
    header = struct.pack(">IIBB", len(data), 1001, 1, 0)
    runtime.send(1, header + data[: 3 << 20])
    runtime.transport.send(struct.pack(">II", 1, len(data) - (3 << 20)) + data[3 << 20 :])
    runtime._stream = 1001
    runtime._waiting.add(1001)
    with pytest.raises(Rejected) as caught:
        runtime.finish(1001)
    assert caught.value.code == 8
