"""The memory of the plugin stays small for any runtime: odd names, endless requests, unread responses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.nri.plugin import VISIBLE, Plugin, cdi_devices, gpu_request
from support.nri.runtime import Dropped, Rejected, container, pod
from support.waiting import PATIENCE_S

from cdigen.nri.wire.messages import CLASSES

MOST_KB = 160 * 1024


def test_any_name_and_version_of_a_runtime_is_accepted(shared: Plugin) -> None:
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
def test_any_timeout_of_a_runtime_is_accepted(shared: Plugin, milliseconds: int) -> None:
    here = shared.host
    made = here.runtime()
    request = CLASSES["ConfigureRequest"](
        runtime_name="containerd", runtime_version="2.1.9", request_timeout=milliseconds
    )
    made.call("Configure", request.SerializeToString())
    here.write_spec(["0", f"t{abs(milliseconds)}"])
    message = ""
    try:
        assert cdi_devices(made.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    except Rejected as error:
        message = error.message
    assert message == "" or (milliseconds < 2 and "could not be read" in message)
    made.close()


# Too many requests.


def test_twenty_thousand_requests_in_a_row_get_their_responses(shared: Plugin) -> None:
    here = shared.host
    made = here.runtime()
    before = shared.resident_kb()
    payloads = [
        CLASSES["CreateContainerRequest"](pod=asking, container=asked).SerializeToString()
        for asking, asked in (gpu_request("0"), gpu_request("77"))
    ]
    reasons = set()
    for _ in range(100):
        calls = [made.begin("CreateContainer", payloads[one % 2]) for one in range(200)]
        for call in calls:
            try:
                assert cdi_devices(made.created(made.finish(call))) == ["nvidia.com/gpu=0"]
            except Rejected as error:
                reasons.add(error.message)
    assert len(reasons) == 1
    shared.sees(lambda: shared.metric('cdigen_nri_containers_total{outcome="refuse"}') >= 10_000)
    assert shared.resident_kb() - before < 40 * 1024
    made.close()


def test_the_plugin_disconnects_from_a_runtime_that_reads_no_responses(shared: Plugin) -> None:
    here = shared.host
    # Each response has about 50 kB.
    here.write_spec([f"{number}-{'x' * 200}" for number in range(250)])
    made = here.runtime()
    payload = CLASSES["CreateContainerRequest"](
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
    shared.sees(lambda: "the runtime does not read its responses" in shared.text)
    made.close()
    here.write_spec()
    after = here.runtime()
    assert cdi_devices(after.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    after.close()


def test_twenty_registrations_leave_no_open_files(shared: Plugin) -> None:
    here = shared.host
    files = len(list(_open_files(shared)))
    for _ in range(20):
        here.runtime().close()
    shared.sees(lambda: len(list(_open_files(shared))) <= files + 1)


def _open_files(running: Plugin) -> list[str]:
    return [entry.name for entry in Path(f"/proc/{running.process.pid}/fd").iterdir()]
