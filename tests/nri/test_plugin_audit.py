"""When `cdigen nri` registers, it audits the runtime: it finds containers without their devices."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from support.nri.plugin import (
    DROPS_06,
    INJECTED_ANNOTATION,
    INJECTS_08,
    INJECTS_12,
    VISIBLE,
    Host,
    Plugin,
    cdi_devices,
    gpu_request,
    host,
    plugin,
)
from support.nri.runtime import container, pod, there


def uninjected(running: Plugin) -> set[tuple[str, str, str]]:
    return {
        (row["namespace"], row["pod"], row["container"])
        for row in running.status.get("uninjected_containers", ())
    }


ALL = f"{VISIBLE}=all"


def test_a_container_that_started_without_the_plugin_is_reported_until_it_is_removed() -> None:
    with host() as here:
        with plugin(here) as running:
            runtime = here.runtime(**INJECTS_12)
            adjustment = runtime.create(*gpu_request("all"))
            assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        kept = there(1, ALL, annotations=dict(adjustment.annotations))
        lost = there(2, ALL)
        others = [there(3), there(4, ALL, namespace="web"), there(5, f"{VISIBLE}=void")]
        rows = [kept, lost, *others]
        with plugin(here) as running:
            runtime = here.runtime([row[0] for row in rows], [row[1] for row in rows], **INJECTS_12)
            running.sees(lambda: running.status.get("uninjected_count") == 1)
            assert running.status["uninjected_containers"] == [
                {
                    "namespace": "ml",
                    "pod": "pod-2",
                    "container": "main",
                    "devices": ["nvidia.com/gpu=all"],
                    "reason": "the container started while no plugin was registered",
                }
            ]
            (line,) = running.lines("uninjected_container")
            assert (line["level"], line["namespace"], line["pod"]) == ("warning", "ml", "pod-2")
            assert line["hint"] == "kubectl delete pod POD"
            running.serves()
            assert running.metric("cdigen_nri_uninjected_containers") == 1
            runtime.close()
            # The pod is removed before the next registration.
            here.runtime([kept[0]], [kept[1]], **INJECTS_12)
            running.sees(lambda: running.status.get("uninjected_count") == 0)
            assert running.metric("cdigen_nri_uninjected_containers") == 0


def injected(running: Plugin) -> list[tuple[str, str, list[str], bool]]:
    rows = running.status.get("injected_containers", ())
    return [(row["id"], row["pod"], row["devices"], row["at"] is not None) for row in rows]


@pytest.mark.parametrize("flavour", [INJECTS_08, INJECTS_12], ids=["StateChange", "RemoveContainer"])
def test_an_injected_container_is_listed_until_its_removal(
    here: Host, running: Plugin, flavour: dict[str, Any]
) -> None:
    runtime = here.runtime(**flavour)
    first, second = there(1, f"{VISIBLE}=0"), there(2, ALL)
    runtime.create(*first)
    marker = dict(runtime.create(*second).annotations)
    runtime.create(*there(3))
    running.sees(lambda: len(injected(running)) == 2)
    assert injected(running) == [
        ("c1", "pod-1", ["nvidia.com/gpu=0"], True),
        ("c2", "pod-2", ["nvidia.com/gpu=all"], True),
    ]
    for removed in ("c1", "c3", "never"):
        runtime.notify("RemoveContainer", pod="p1", container=removed)
    running.sees(lambda: [row[0] for row in injected(running)] == ["c2"])
    runtime.close()
    # Another runtime, or the same runtime after a restart, reports its containers.
    second[1].annotations.update(marker)
    here.runtime([second[0]], [second[1]], **flavour)
    running.sees(lambda: injected(running) == [("c2", "pod-2", ["nvidia.com/gpu=all"], False)])


def test_an_uninjected_container_with_an_invalid_request_has_a_reason(here: Host, running: Plugin) -> None:
    one = there(1, f"{VISIBLE}=77")
    here.runtime([one[0]], [one[1]])
    running.sees(lambda: running.status.get("uninjected_count") == 1)
    (row,) = running.status["uninjected_containers"]
    assert row["reason"].startswith("NVIDIA_VISIBLE_DEVICES requests '77'")
    assert row["devices"] == []


def test_a_runtime_that_drops_devices_is_audited_as_well(here: Host, running: Plugin) -> None:
    one = there(1, ALL)
    here.runtime([one[0]], [one[1]], **DROPS_06)
    running.sees(lambda: uninjected(running) == {("ml", "pod-1", "main")})


def test_uninjected_containers_are_found_in_a_state_of_several_parts(here: Host, running: Plugin) -> None:
    rows = [there(number, ALL if number % 1000 == 0 else "F=" + "x" * 1500) for number in range(4000)]
    for row in rows:
        row[0].annotations["filler"] = "x" * 1500
    runtime = here.unregistered_runtime()
    runtime.start()
    assert runtime.synchronize([row[0] for row in rows], [row[1] for row in rows]) > 1
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    running.sees(lambda: running.status.get("uninjected_count") == 4)
    assert uninjected(running) == {("ml", f"pod-{number}", "main") for number in (0, 1000, 2000, 3000)}
    assert running.status["audit_complete"]


def test_all_uninjected_containers_are_counted_and_50_are_listed(here: Host, running: Plugin) -> None:
    rows = [there(number, ALL) for number in range(300)]
    here.runtime([row[0] for row in rows], [row[1] for row in rows])
    running.sees(lambda: running.status.get("uninjected_count") == 300)
    assert len(running.status["uninjected_containers"]) == 50
    lines = running.lines("uninjected_container")
    assert len(lines) == 51
    assert lines[-1]["more"] == 250


def test_another_plugin_with_the_same_annotations_is_reported(here: Host, running: Plugin) -> None:
    annotated = pod(id="p1", namespace="ml", annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=0"})
    injected_container = container(pod_sandbox_id="p1", linux={"devices": [{"path": "/dev/nvidia0"}]})
    here.runtime([annotated], [injected_container])
    running.sees(lambda: running.lines("plugin_conflict"))
    (line,) = running.lines("plugin_conflict")
    assert "nvidia.cdi.k8s.io/pod" in line["message"]
    running.sees(lambda: running.status.get("uninjected_count") == 0)


def test_a_launched_plugin_with_the_same_annotations_is_reported() -> None:
    with host() as here:
        folder = here.root / "opt/nri/plugins"
        folder.mkdir(parents=True)
        (folder / "10-device-injector").touch()
        with plugin(here) as running:
            here.runtime()
            running.sees(lambda: running.lines("plugin_conflict"))
            assert "10-device-injector" in running.lines("plugin_conflict")[0]["message"]


def test_invalid_pods_and_containers_are_left_out_of_the_audit(here: Host, running: Plugin) -> None:
    runtime = here.unregistered_runtime()
    runtime.start()
    good = there(2, ALL)
    runtime.synchronize([Raw(b"\xff\xff\xff"), good[0]], [Raw(b"\x0a\x02\xff\xff"), good[1]])
    running.sees(lambda: uninjected(running) == {("ml", "pod-2", "main")})


class Raw:
    """An invalid pod or container."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        return len(self._data)

    def SerializeToString(self) -> bytes:  # noqa: N802 - likewise
        return self._data


def test_the_marker_has_the_names_of_the_devices(here: Host, running: Plugin) -> None:
    adjustment = here.runtime().create(*gpu_request("0,1"))
    assert adjustment.annotations[INJECTED_ANNOTATION] == "nvidia.com/gpu=0,nvidia.com/gpu=1"
    running.sees(lambda: running.status.get("counts", {}).get("inject") == 1)
