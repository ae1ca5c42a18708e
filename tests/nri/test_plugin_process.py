"""`cdigen nri` as a process, with a test runtime of each release of NRI: what it answers and shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.nri.plugin import (
    INJECTS_08,
    INJECTS_10,
    INJECTS_12,
    MARK,
    SEAL,
    Host,
    Plugin,
    asks,
    given,
    host,
    plugin,
)
from support.nri.runtime import Rejected, Runtime, container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAVOURS = [INJECTS_08, INJECTS_10, INJECTS_12]


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: f"NRI {flavour['nri'][0]}.{flavour['nri'][1]}")
def runtime(shared: Plugin, request: pytest.FixtureRequest) -> Iterator[Runtime]:
    made = shared.host.runtime(**request.param)
    yield made
    made.close()


# The registration.


@pytest.mark.parametrize(
    ("flavour", "events"),
    [
        ({"name": "containerd", "version": "1.7.24~ds1", "nri": (0, 6)}, 0x0408),
        (INJECTS_08, 0x0408),
        (INJECTS_10, 0x2408),
        (INJECTS_12, 0x2408),
        ({"name": "containerd", "version": "v9.9.9", "nri": (0, 12)}, 0x2408),
        ({"name": "mycontainerd", "version": "4", "nri": (0, 8)}, 0x0408),
    ],
)
def test_it_subscribes_to_what_the_release_of_nri_knows(
    shared: Plugin, flavour: dict[str, Any], events: int
) -> None:
    runtime = shared.host.runtime(**flavour)
    assert runtime.events == events
    runtime.close()


def test_name_and_index_come_from_the_options() -> None:
    with host() as here, plugin(here, "--name", "gpus.example-1", "--index", "07"):
        runtime = here.runtime()
        assert (runtime.plugin_name, runtime.plugin_index) == ("gpus.example-1", "07")


# Answers.


def test_a_container_that_asks_by_its_environment_gets_its_device_and_a_mark(runtime: Runtime) -> None:
    adjustment = runtime.create(*asks("0"))
    assert given(adjustment) == ["nvidia.com/gpu=0"]
    marks = dict(adjustment.annotations)
    assert marks.pop(SEAL).startswith("c1/")
    assert marks == {MARK: "nvidia.com/gpu=0"}
    fields = {field.name for field, _ in adjustment.ListFields()}
    assert fields == {"annotations", "cdi_devices"}


@pytest.mark.parametrize(
    "annotation",
    ["devices.cdigen.dev", "nvidia.cdi.k8s.io/pod", "cdi-devices.noderesource.dev/container.main"],
)
def test_a_container_whose_pod_asks_by_annotation_gets_its_device(runtime: Runtime, annotation: str) -> None:
    text = "[nvidia.com/gpu=1]" if "noderesource" in annotation else "nvidia.com/gpu=1"
    assert given(runtime.create(*asks(None, annotations={annotation: text}))) == ["nvidia.com/gpu=1"]


def test_an_empty_annotation_above_a_variable_is_logged(here: Host, running: Plugin) -> None:
    runtime = here.runtime()
    visible = asks("all", annotations={"devices.cdigen.dev": ""})
    assert given(runtime.create(*visible)) == []
    running.sees(lambda: running.lines("overruled"))
    (line,) = running.lines("overruled")
    assert line["level"] == "info"
    assert "the annotation devices.cdigen.dev is empty" in line["notes"][0]


@pytest.mark.parametrize("visible", [None, "", "void"])
def test_a_container_that_does_not_ask_is_left_as_it_is(runtime: Runtime, visible: str | None) -> None:
    assert runtime.create(*asks(visible)).ByteSize() == 0


def test_a_container_that_was_served_already_gets_nothing_twice(runtime: Runtime) -> None:
    here = container(
        env=["NVIDIA_VISIBLE_DEVICES=all"],
        mounts=[{"destination": "/usr/lib/libcuda.so.1", "source": "/usr/lib/libcuda.so.550"}],
        linux={"devices": [{"path": "/dev/nvidia0"}]},
    )
    assert runtime.create(pod(namespace="ml"), here).ByteSize() == 0


def test_a_device_that_there_is_not_is_refused_with_the_reason(runtime: Runtime) -> None:
    with pytest.raises(
        Rejected, match=r"^cdigen: NVIDIA_VISIBLE_DEVICES asks for '77': nvidia\.com/gpu has"
    ) as caught:
        runtime.create(*asks("77"))
    assert caught.value.code == 2


def test_a_hundred_requests_at_a_time_are_all_answered(runtime: Runtime) -> None:
    calls = [runtime.begin_create(*asks("0" if number % 2 else "all")) for number in range(100)]
    for number, call in enumerate(calls):
        assert given(runtime.created(runtime.finish(call))) == [
            "nvidia.com/gpu=0" if number % 2 else "nvidia.com/gpu=all"
        ]


# What it shows.


def test_what_it_did_is_in_status_metrics_and_log(here: Host, running: Plugin) -> None:
    runtime = here.runtime(**INJECTS_12)
    runtime.create(*asks("0", name="trainer"))
    runtime.create(*asks(None))
    with pytest.raises(Rejected):
        runtime.create(*asks("77", name="greedy"))
    running.sees(lambda: running.status.get("counts", {}).get("refuse") == 1)
    status = running.status
    assert (status["state"], status["reason"], status["connections"]) == ("registered", "", 1)
    assert status["counts"] == {"nothing": 1, "served": 0, "inject": 1, "refuse": 1}
    assert status["refused"] == {"unknown_device": 1}
    assert status["runtime"] == {
        "name": "containerd",
        "version": "v2.3.4",
        "nri": "0.12",
        "cdi": "injects",
        "validates": True,
        "remedy": "",
    }
    assert [(entry["pod"], entry["outcome"]) for entry in status["journal"]] == [
        ("trainer", "inject"),
        ("greedy", "refuse"),
    ]
    running.serves()
    assert running.get("/readyz")[0] == 200
    assert running.metric("cdigen_nri_registered") == 1
    assert running.metric("cdigen_nri_connections_total") == 1
    assert running.metric('cdigen_nri_containers_total{outcome="inject"}') == 1
    assert running.metric('cdigen_nri_containers_total{outcome="nothing"}') == 1
    assert running.metric('cdigen_nri_refused_total{cause="unknown_device"}') == 1
    assert running.metric("cdigen_nri_request_seconds_count") == 3
    assert list(text_string_to_metric_families(running.get("/metrics")[1]))
    (line,) = running.lines("injected")
    assert (line["namespace"], line["pod"], line["container"]) == ("ml", "trainer", "main")
    assert (line["level"], line["devices"]) == ("info", "nvidia.com/gpu=0")
    (line,) = running.lines("refused")
    assert (line["level"], line["cause"]) == ("warning", "unknown_device")
    assert line["reason"].startswith("NVIDIA_VISIBLE_DEVICES asks for '77'")
    assert [line["event"] for line in running.lines()].count("registered") == 1


def test_its_status_is_whole_at_each_moment(here: Host, running: Plugin) -> None:
    runtime = here.runtime()
    names = [f"{number}-{'x' * 200}" for number in range(40)]
    here.write_spec(names)
    shown: set[int] = set()
    while len(shown) < 3:
        runtime.create(*asks(names[0], names[1]))
        # Each read is of one whole document.
        shown.add(running.status.get("counts", {}).get("inject", 0))
    assert len(running.status["journal"]) <= 20
