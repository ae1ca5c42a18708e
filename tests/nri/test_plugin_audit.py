"""What `cdigen nri` finds when it comes to a runtime that has run without it: who asked and did not get."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from support.nri.plugin import (
    DROPS_06,
    INJECTS_08,
    INJECTS_12,
    MARK,
    VISIBLE,
    Host,
    Plugin,
    asks,
    given,
    host,
    plugin,
)
from support.nri.runtime import container, pod, there


def missed(running: Plugin) -> set[tuple[str, str, str]]:
    return {(row["namespace"], row["pod"], row["container"]) for row in running.status.get("missed", ())}


ALL = f"{VISIBLE}=all"


def test_a_container_that_started_while_it_was_dead_is_named_until_it_is_gone() -> None:
    with host() as here:
        with plugin(here) as running:
            runtime = here.runtime(**INJECTS_12)
            adjustment = runtime.create(*asks("all"))
            assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        kept = there(1, ALL, annotations=dict(adjustment.annotations))
        lost = there(2, ALL)
        others = [there(3), there(4, ALL, namespace="web"), there(5, f"{VISIBLE}=void")]
        rows = [kept, lost, *others]
        with plugin(here) as running:
            runtime = here.runtime([row[0] for row in rows], [row[1] for row in rows], **INJECTS_12)
            running.sees(lambda: running.status.get("missed_count") == 1)
            assert running.status["missed"] == [
                {
                    "namespace": "ml",
                    "pod": "pod-2",
                    "container": "main",
                    "devices": ["nvidia.com/gpu=all"],
                    "reason": "it was started while no plugin was registered",
                }
            ]
            (line,) = running.lines("missed")
            assert (line["level"], line["namespace"], line["pod"]) == ("warning", "ml", "pod-2")
            assert line["hint"] == "delete the pod, so that its containers are created anew"
            running.serves()
            assert running.metric("cdigen_nri_missed_containers") == 1
            runtime.close()
            # At the next registration the pod is gone.
            here.runtime([kept[0]], [kept[1]], **INJECTS_12)
            running.sees(lambda: running.status.get("missed_count") == 0)
            assert running.metric("cdigen_nri_missed_containers") == 0


def holders(running: Plugin) -> list[tuple[str, str, list[str], bool]]:
    rows = running.status.get("holders", ())
    return [(row["id"], row["pod"], row["devices"], row["at"] is not None) for row in rows]


@pytest.mark.parametrize("flavour", [INJECTS_08, INJECTS_12], ids=["StateChange", "RemoveContainer"])
def test_the_book_has_who_was_given_devices_until_it_is_removed(
    here: Host, running: Plugin, flavour: dict[str, Any]
) -> None:
    runtime = here.runtime(**flavour)
    first, second = there(1, f"{VISIBLE}=0"), there(2, ALL)
    runtime.create(*first)
    mark = dict(runtime.create(*second).annotations)
    runtime.create(*there(3))
    running.sees(lambda: len(holders(running)) == 2)
    assert holders(running) == [
        ("c1", "pod-1", ["nvidia.com/gpu=0"], True),
        ("c2", "pod-2", ["nvidia.com/gpu=all"], True),
    ]
    for known in ("c1", "c3", "never"):
        runtime.tell("RemoveContainer", pod="p1", container=known)
    running.sees(lambda: [row[0] for row in holders(running)] == ["c2"])
    runtime.close()
    # Another runtime, or the same that comes again, tells what it has.
    second[1].annotations.update(mark)
    here.runtime([second[0]], [second[1]], **flavour)
    running.sees(lambda: holders(running) == [("c2", "pod-2", ["nvidia.com/gpu=all"], False)])


def test_one_that_would_have_been_refused_is_named_with_the_reason(here: Host, running: Plugin) -> None:
    one = there(1, f"{VISIBLE}=77")
    here.runtime([one[0]], [one[1]])
    running.sees(lambda: running.status.get("missed_count") == 1)
    (row,) = running.status["missed"]
    assert row["reason"].startswith("NVIDIA_VISIBLE_DEVICES asks for '77'")
    assert row["devices"] == []


def test_it_is_audited_where_the_runtime_drops_devices_as_well(here: Host, running: Plugin) -> None:
    one = there(1, ALL)
    here.runtime([one[0]], [one[1]], **DROPS_06)
    running.sees(lambda: missed(running) == {("ml", "pod-1", "main")})


def test_containers_whose_pods_are_told_in_another_part_are_found(here: Host, running: Plugin) -> None:
    rows = [there(number, ALL if number % 1000 == 0 else "F=" + "x" * 1500) for number in range(4000)]
    for row in rows:
        row[0].annotations["filler"] = "x" * 1500
    runtime = here.begun()
    runtime.start()
    assert runtime.synchronize([row[0] for row in rows], [row[1] for row in rows]) > 1
    assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    running.sees(lambda: running.status.get("missed_count") == 4)
    assert missed(running) == {("ml", f"pod-{number}", "main") for number in (0, 1000, 2000, 3000)}
    assert running.status["missed_complete"]


def test_of_very_many_the_first_are_named_and_all_counted(here: Host, running: Plugin) -> None:
    rows = [there(number, ALL) for number in range(300)]
    here.runtime([row[0] for row in rows], [row[1] for row in rows])
    running.sees(lambda: running.status.get("missed_count") == 300)
    assert len(running.status["missed"]) == 50
    lines = running.lines("missed")
    assert len(lines) == 51
    assert lines[-1]["more"] == 250


def test_another_plugin_that_serves_the_same_annotations_is_named(here: Host, running: Plugin) -> None:
    mine = pod(id="p1", namespace="ml", annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=0"})
    theirs = container(pod_sandbox_id="p1", linux={"devices": [{"path": "/dev/nvidia0"}]})
    here.runtime([mine], [theirs])
    running.sees(lambda: running.lines("other injector"))
    (line,) = running.lines("other injector")
    assert "nvidia.cdi.k8s.io/pod" in line["message"]
    running.sees(lambda: running.status.get("missed_count") == 0)


def test_a_plugin_that_the_runtime_starts_and_reads_the_same_annotations_is_named() -> None:
    with host() as here:
        folder = here.root / "opt/nri/plugins"
        folder.mkdir(parents=True)
        (folder / "10-device-injector").touch()
        with plugin(here) as running:
            here.runtime()
            running.sees(lambda: running.lines("other injector"))
            assert "10-device-injector" in running.lines("other injector")[0]["message"]


def test_what_cannot_be_read_of_what_is_there_is_left_out(here: Host, running: Plugin) -> None:
    runtime = here.begun()
    runtime.start()
    good = there(2, ALL)
    runtime.synchronize([Raw(b"\xff\xff\xff"), good[0]], [Raw(b"\x0a\x02\xff\xff"), good[1]])
    running.sees(lambda: missed(running) == {("ml", "pod-2", "main")})


class Raw:
    """A pod or container that is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        return len(self._data)

    def SerializeToString(self) -> bytes:  # noqa: N802 - likewise
        return self._data


def test_the_mark_is_what_the_audit_looks_for(here: Host, running: Plugin) -> None:
    adjustment = here.runtime().create(*asks("0,1"))
    assert adjustment.annotations[MARK] == "nvidia.com/gpu=0,nvidia.com/gpu=1"
    running.sees(lambda: running.status.get("counts", {}).get("inject") == 1)
