"""Specs change while `cdigen nri` runs: a decision uses the specs on the disk at the time of the request."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from support.nri.plugin import NAME, Host, Plugin, cdi_devices, gets_soon, gpu_request, spec
from support.nri.runtime import Rejected, Runtime

RACES = 200


@pytest.fixture
def runtime(here: Host) -> Runtime:
    return here.runtime()


def refused(runtime: Runtime, visible: str) -> str:
    with pytest.raises(Rejected) as caught:
        runtime.create(*gpu_request(visible))
    return caught.value.message


def test_a_replaced_spec_affects_the_next_request(here: Host, runtime: Runtime) -> None:
    for number in range(RACES):
        here.write_spec([f"gpu{number}"])
        assert cdi_devices(runtime.create(*gpu_request(f"gpu{number}"))) == [f"nvidia.com/gpu=gpu{number}"]
        if number % 10 == 9:
            assert f"gpu{number - 1}" in refused(runtime, f"gpu{number - 1}")


def test_an_added_or_removed_spec_affects_the_next_request(here: Host, runtime: Runtime) -> None:
    for number in range(RACES // 4):
        here.write_spec(["x"], file="more.json", kind="nvidia.com/more")
        assert cdi_devices(runtime.create(*gpu_request("nvidia.com/more=x"))) == ["nvidia.com/more=x"]
        (here.specs / "more.json").unlink()
        assert "all specs are of nvidia.com/gpu" in refused(runtime, "nvidia.com/more=x"), number


def test_concurrent_requests_get_the_new_spec(here: Host, runtime: Runtime) -> None:
    for number in range(5):
        here.write_spec([f"gpu{number}"])
        calls = [runtime.begin_create(*gpu_request(f"gpu{number}", f"N={one}")) for one in range(20)]
        for call in calls:
            assert cdi_devices(runtime.created(runtime.finish(call))) == [f"nvidia.com/gpu=gpu{number}"]


def test_a_spec_that_is_written_in_place_applies_soon(here: Host, running: Plugin, runtime: Runtime) -> None:
    running.serves()
    (here.specs / NAME).write_text(json.dumps(spec(["new"])))
    gets_soon(runtime, "nvidia.com/gpu=new", "new")


def test_a_spec_directory_that_appears_later_is_read(here: Host, runtime: Runtime) -> None:
    for _ in range(3):
        shutil.rmtree(here.root / "run/cdi")
        shutil.rmtree(here.root / "etc/cdi")
        refused(runtime, "0")
        (here.root / "etc/cdi").mkdir()
        here.write_spec(["late"], folder="etc/cdi")
        assert cdi_devices(runtime.create(*gpu_request("late"))) == ["nvidia.com/gpu=late"]
        (here.root / "run/cdi").mkdir()
        here.write_spec(["later"])
        assert cdi_devices(runtime.create(*gpu_request("later"))) == ["nvidia.com/gpu=later"]


def test_a_link_to_a_spec_directory_is_resolved_within_the_host(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    running.serves()
    # The plugin reads the default directory /var/run/cdi through the usual link from /var/run to /run.
    assert os.readlink(here.root / "var/run") == "/run"
    shutil.rmtree(here.root / "etc/cdi")
    here.write_spec(["there"])
    assert cdi_devices(runtime.create(*gpu_request("there"))) == ["nvidia.com/gpu=there"]


def test_invalid_specs_are_reported_and_do_not_affect_other_specs(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    (here.specs / "a.json").write_text("{")
    (here.specs / "b.yaml").write_text("[" * 50_000)
    (here.specs / "c.json").write_bytes(b"\xff\xfe\0")
    (here.specs / "d.json").mkdir()
    (here.specs / "e.json").symlink_to("/nowhere")
    (here.specs / "g.yaml").write_text("a: &a [x]\n" + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in PAIRS))
    here.write_spec(["0", "1"])
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    running.sees(lambda: {"a.json", "b.yaml", "c.json"} <= problems(running))
    messages = [line["message"] for line in running.lines("spec")]
    assert len(messages) == len(set(messages))
    assert all(line["level"] == "warning" for line in running.lines("spec"))


PAIRS = list(zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True))


def problems(running: Plugin) -> set[str]:
    """Return the names of the files with problems in status.json."""
    return {problem["path"].rpartition("/")[2] for problem in running.status.get("problems", ())}


def test_containers_are_refused_while_a_fifo_is_among_the_specs(here: Host, runtime: Runtime) -> None:
    os.mkfifo(here.specs / "f.json")
    assert "f.json" in refused(runtime, "0")
    (here.specs / "f.json").unlink()
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
