"""Requests that are out of all proportion, or too many: refused, and nothing stays of them."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nri.pluginside import PATIENCE_S, VISIBLE, Host, Plugin, asks, given, host, plugin
from nri.runtimeside import Rejected, Runtime, container, pod

from cdigen.nri.messages import message_class

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_KB = 160 * 1024


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[Host, Plugin]]:
    with host() as here:
        here.write_inventory()
        with plugin(here) as running:
            yield here, running
            assert "Traceback" not in running.text
            assert "cdigen has a defect" not in running.text


@pytest.fixture
def runtime(at: tuple[Host, Plugin]) -> Iterator[Runtime]:
    here, running = at
    made = here.runtime()
    yield made
    assert given(made.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    made.close()
    assert running.resident_kb() < MOST_KB


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


def test_what_is_said_of_itself_by_a_runtime_may_be_anything(at: tuple[Host, Plugin]) -> None:
    here, running = at
    for name, version in (
        ("", ""),
        ("x" * 1_000_000, "y" * 1_000_000),
        ("containerd", "v" + "9" * 5000 + ".1"),
        ("containerd\n", "2.1.0\x00"),
        ("\u0663", "\u0663.\u0663"),
    ):
        made = here.runtime(name=name, version=version)
        running.sees(lambda: running.state == "registered")
        running.serves()
        assert running.get("/metrics")[0] == 200
        made.close()


@pytest.mark.parametrize("milliseconds", [-(2**62), -1, 1, 2**62])
def test_a_time_limit_may_be_anything(at: tuple[Host, Plugin], milliseconds: int) -> None:
    here, _ = at
    made = here.runtime()
    request = message_class("ConfigureRequest")(
        runtime_name="containerd", runtime_version="2.1.9", request_timeout=milliseconds
    )
    made.call("Configure", request.SerializeToString())
    here.write_spec(["0", f"t{abs(milliseconds)}"])
    message = ""
    try:
        assert given(made.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    except Rejected as error:
        message = error.message
    assert message == "" or (milliseconds < 2 and "could not be looked up" in message)
    made.close()


# Too many, too fast.


def test_twenty_thousand_requests_in_a_row_are_all_answered(at: tuple[Host, Plugin]) -> None:
    here, running = at
    made = here.runtime()
    before = running.resident_kb()
    reasons = set()
    for _ in range(100):
        calls = [made.begin_create(*asks("0" if one % 2 else "77")) for one in range(200)]
        for call in calls:
            try:
                assert given(made.created(made.finish(call))) == ["nvidia.com/gpu=0"]
            except Rejected as error:
                reasons.add(error.message)
    assert len(reasons) == 1
    running.sees(lambda: running.metric('cdigen_nri_containers_total{outcome="refuse"}') >= 10_000)
    assert running.resident_kb() - before < 40 * 1024
    made.close()


def test_a_runtime_that_reads_no_answer_is_left_before_memory_is_full(at: tuple[Host, Plugin]) -> None:
    here, running = at
    made = here.runtime()
    payload = message_class("CreateContainerRequest")(
        pod=pod(namespace="ml"), container=container(env=[f"{VISIBLE}={'9' * 60}"])
    ).SerializeToString()
    until_s = time.monotonic() + PATIENCE_S * 2
    sent = 0
    try:
        while time.monotonic() < until_s:
            made.begin("CreateContainer", payload)
            sent += 1
            if sent % 2000 == 0:
                assert running.resident_kb() < 3 * MOST_KB
    except (BrokenPipeError, ConnectionResetError):
        pass
    running.sees(lambda: "the runtime does not read what it is told" in running.text)
    made.close()
    after = here.runtime()
    assert given(after.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    after.close()


def test_twenty_registrations_leave_nothing_behind(at: tuple[Host, Plugin]) -> None:
    here, running = at
    files = len(list(_open_files(running)))
    for _ in range(20):
        here.runtime().close()
    running.sees(lambda: len(list(_open_files(running))) <= files + 1)


def _open_files(running: Plugin) -> list[str]:
    return [entry.name for entry in Path(f"/proc/{running.process.pid}/fd").iterdir()]
