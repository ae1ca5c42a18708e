"""A runtime that says anything of itself, asks without an end, or reads no answer: the plugin stays small."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.nri.plugin import VISIBLE, Plugin, asks, given
from support.nri.runtime import Dropped, Rejected, container, pod
from support.waiting import PATIENCE_S

from cdigen.nri.wire.protobuf import message_class

MOST_KB = 160 * 1024


def test_what_is_said_of_itself_by_a_runtime_may_be_anything(shared: Plugin) -> None:
    here = shared.host
    for name, version in (
        ("", ""),
        ("x" * 1_000_000, "y" * 1_000_000),
        ("containerd", "v" + "9" * 5000 + ".1"),
        ("containerd\n", "2.1.0\x00"),
        ("\u0663", "\u0663.\u0663"),
    ):
        made = here.runtime(name=name, version=version)
        shared.sees(lambda: shared.state == "registered")
        shared.serves()
        assert shared.get("/metrics")[0] == 200
        made.close()


@pytest.mark.parametrize("milliseconds", [-(2**62), -1, 1, 2**62])
def test_a_time_limit_may_be_anything(shared: Plugin, milliseconds: int) -> None:
    here = shared.host
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


def test_twenty_thousand_requests_in_a_row_are_all_answered(shared: Plugin) -> None:
    here = shared.host
    made = here.runtime()
    before = shared.resident_kb()
    payloads = [
        message_class("CreateContainerRequest")(pod=asking, container=asked).SerializeToString()
        for asking, asked in (asks("0"), asks("77"))
    ]
    reasons = set()
    for _ in range(100):
        calls = [made.begin("CreateContainer", payloads[one % 2]) for one in range(200)]
        for call in calls:
            try:
                assert given(made.created(made.finish(call))) == ["nvidia.com/gpu=0"]
            except Rejected as error:
                reasons.add(error.message)
    assert len(reasons) == 1
    shared.sees(lambda: shared.metric('cdigen_nri_containers_total{outcome="refuse"}') >= 10_000)
    assert shared.resident_kb() - before < 40 * 1024
    made.close()


def test_a_runtime_that_reads_no_answer_is_left_before_memory_is_full(shared: Plugin) -> None:
    here = shared.host
    # Each answer has some 50 kB.
    here.write_spec([f"{number}-{'x' * 200}" for number in range(250)])
    made = here.runtime()
    payload = message_class("CreateContainerRequest")(
        pod=pod(namespace="ml"), container=container(env=[f"{VISIBLE}=all"])
    ).SerializeToString()
    until_s = time.monotonic() + PATIENCE_S * 2
    sent = 0
    try:
        while time.monotonic() < until_s:
            made.begin("CreateContainer", payload)
            sent += 1
            if sent % 100 == 0:
                assert shared.resident_kb() < 2 * MOST_KB
    except Dropped:
        pass
    shared.sees(lambda: "the runtime does not read what it is told" in shared.text)
    made.close()
    here.write_spec()
    after = here.runtime()
    assert given(after.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    after.close()


def test_twenty_registrations_leave_nothing_behind(shared: Plugin) -> None:
    here = shared.host
    files = len(list(_open_files(shared)))
    for _ in range(20):
        here.runtime().close()
    shared.sees(lambda: len(list(_open_files(shared))) <= files + 1)


def _open_files(running: Plugin) -> list[str]:
    return [entry.name for entry in Path(f"/proc/{running.process.pid}/fd").iterdir()]
