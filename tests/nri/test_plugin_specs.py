"""Specs that change under `cdigen nri`: the answer is by what is on the disk when the question comes."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from support.nri.plugin import NAME, Host, Plugin, asks, gets_soon, given, spec
from support.nri.runtime import Rejected, Runtime

RACES = 200


@pytest.fixture
def runtime(here: Host) -> Runtime:
    return here.runtime()


def refused(runtime: Runtime, visible: str) -> str:
    with pytest.raises(Rejected) as caught:
        runtime.create(*asks(visible))
    return caught.value.message


def test_the_answer_is_by_a_spec_that_was_replaced_right_before(here: Host, runtime: Runtime) -> None:
    for number in range(RACES):
        here.write_spec([f"gpu{number}"])
        assert given(runtime.create(*asks(f"gpu{number}"))) == [f"nvidia.com/gpu=gpu{number}"]
        if number % 10 == 9:
            assert f"gpu{number - 1}" in refused(runtime, f"gpu{number - 1}")


def test_the_answer_is_by_a_spec_that_was_added_or_withdrawn_right_before(
    here: Host, runtime: Runtime
) -> None:
    for number in range(RACES // 4):
        here.write_spec(["x"], file="more.json", kind="nvidia.com/more")
        assert given(runtime.create(*asks("nvidia.com/more=x"))) == ["nvidia.com/more=x"]
        (here.specs / "more.json").unlink()
        assert "there are only specs of nvidia.com/gpu" in refused(runtime, "nvidia.com/more=x"), number


def test_several_are_answered_by_the_new_spec_at_once(here: Host, runtime: Runtime) -> None:
    for number in range(5):
        here.write_spec([f"gpu{number}"])
        calls = [runtime.begin_create(*asks(f"gpu{number}", f"N={one}")) for one in range(20)]
        for call in calls:
            assert given(runtime.created(runtime.finish(call))) == [f"nvidia.com/gpu=gpu{number}"]


def test_a_spec_that_is_written_in_place_counts_soon(here: Host, running: Plugin, runtime: Runtime) -> None:
    running.serves()
    (here.specs / NAME).write_text(json.dumps(spec(["new"])))
    gets_soon(runtime, "nvidia.com/gpu=new", "new")


def test_a_spec_directory_that_appears_later_counts(here: Host, runtime: Runtime) -> None:
    for _ in range(3):
        shutil.rmtree(here.root / "run/cdi")
        shutil.rmtree(here.root / "etc/cdi")
        refused(runtime, "0")
        (here.root / "etc/cdi").mkdir()
        here.write_spec(["late"], folder="etc/cdi")
        assert given(runtime.create(*asks("late"))) == ["nvidia.com/gpu=late"]
        (here.root / "run/cdi").mkdir()
        here.write_spec(["later"])
        assert given(runtime.create(*asks("later"))) == ["nvidia.com/gpu=later"]


def test_a_spec_directory_behind_a_link_of_the_host_s_is_the_host_s(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    running.serves()
    # The default, /var/run/cdi, by the link to /run that all hosts have.
    assert os.readlink(here.root / "var/run") == "/run"
    shutil.rmtree(here.root / "etc/cdi")
    here.write_spec(["there"])
    assert given(runtime.create(*asks("there"))) == ["nvidia.com/gpu=there"]


def test_specs_that_are_none_are_told_and_harm_no_others(
    here: Host, running: Plugin, runtime: Runtime
) -> None:
    (here.specs / "a.json").write_text("{")
    (here.specs / "b.yaml").write_text("[" * 50_000)
    (here.specs / "c.json").write_bytes(b"\xff\xfe\0")
    (here.specs / "d.json").mkdir()
    (here.specs / "e.json").symlink_to("/nowhere")
    (here.specs / "g.yaml").write_text("a: &a [x]\n" + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in PAIRS))
    here.write_spec(["0", "1"])
    assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    running.sees(lambda: {"a.json", "b.yaml", "c.json"} <= problems(running))
    messages = [line["message"] for line in running.lines("spec")]
    assert len(messages) == len(set(messages))
    assert all(line["level"] == "warning" for line in running.lines("spec"))


PAIRS = list(zip("abcdefghijklmnopqrstuvw", "bcdefghijklmnopqrstuvwx", strict=True))


def problems(running: Plugin) -> set[str]:
    """Return the names of the files of which status.json says something."""
    return {problem["path"].rpartition("/")[2] for problem in running.status.get("problems", ())}


def test_a_fifo_among_the_specs_is_refused_as_it_makes_the_runtime_hang(here: Host, runtime: Runtime) -> None:
    os.mkfifo(here.specs / "f.json")
    assert "f.json" in refused(runtime, "0")
    (here.specs / "f.json").unlink()
    assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
