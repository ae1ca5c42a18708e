"""`cdigen nri` as a process, with a test runtime of each release of NRI: responses, status, metrics, log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.nri.plugin import (
    INJECTED_ANNOTATION,
    INJECTED_INTO_ANNOTATION,
    INJECTS_08,
    INJECTS_10,
    INJECTS_12,
    Host,
    Plugin,
    cdi_devices,
    gpu_request,
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
def test_the_plugin_subscribes_to_the_events_of_the_nri_release(
    shared: Plugin, flavour: dict[str, Any], events: int
) -> None:
    runtime = shared.host.runtime(**flavour)
    assert runtime.events == events
    runtime.close()


def test_name_and_index_come_from_the_options() -> None:
    with host() as here, plugin(here, "--name", "gpus.example-1", "--index", "07"):
        runtime = here.runtime()
        assert (runtime.plugin_name, runtime.plugin_index) == ("gpus.example-1", "07")


# Responses.


def test_a_container_with_a_variable_gets_its_device_and_a_marker(runtime: Runtime) -> None:
    adjustment = runtime.create(*gpu_request("0"))
    assert cdi_devices(adjustment) == ["nvidia.com/gpu=0"]
    annotations = dict(adjustment.annotations)
    assert annotations.pop(INJECTED_INTO_ANNOTATION).startswith("c1/")
    assert annotations == {INJECTED_ANNOTATION: "nvidia.com/gpu=0"}
    fields = {field.name for field, _ in adjustment.ListFields()}
    assert fields == {"annotations", "cdi_devices"}


@pytest.mark.parametrize(
    "annotation",
    ["devices.cdigen.dev", "nvidia.cdi.k8s.io/pod", "cdi-devices.noderesource.dev/container.main"],
)
def test_a_container_of_an_annotated_pod_gets_its_device(runtime: Runtime, annotation: str) -> None:
    text = "[nvidia.com/gpu=1]" if "noderesource" in annotation else "nvidia.com/gpu=1"
    assert cdi_devices(runtime.create(*gpu_request(None, annotations={annotation: text}))) == [
        "nvidia.com/gpu=1"
    ]


def test_an_empty_annotation_that_cancels_a_variable_is_logged(here: Host, running: Plugin) -> None:
    runtime = here.runtime()
    visible = gpu_request("all", annotations={"devices.cdigen.dev": ""})
    assert cdi_devices(runtime.create(*visible)) == []
    running.sees(lambda: running.lines("request_cancelled"))
    (line,) = running.lines("request_cancelled")
    assert line["level"] == "info"
    assert "the annotation devices.cdigen.dev is empty" in line["ignored_requests"][0]


@pytest.mark.parametrize("visible", [None, "", "void"])
def test_a_container_without_a_request_is_unchanged(runtime: Runtime, visible: str | None) -> None:
    assert runtime.create(*gpu_request(visible)).ByteSize() == 0


def test_a_container_that_already_has_its_devices_is_unchanged(runtime: Runtime) -> None:
    here = container(
        env=["NVIDIA_VISIBLE_DEVICES=all"],
        mounts=[{"destination": "/usr/lib/libcuda.so.1", "source": "/usr/lib/libcuda.so.550"}],
        linux={"devices": [{"path": "/dev/nvidia0"}]},
    )
    assert runtime.create(pod(namespace="ml"), here).ByteSize() == 0


def test_an_unknown_device_is_refused_with_a_reason(runtime: Runtime) -> None:
    with pytest.raises(
        Rejected, match=r"^cdigen: NVIDIA_VISIBLE_DEVICES requests '77': nvidia\.com/gpu has"
    ) as caught:
        runtime.create(*gpu_request("77"))
    assert caught.value.code == 2


def test_a_hundred_concurrent_requests_get_their_responses(runtime: Runtime) -> None:
    calls = [runtime.begin_create(*gpu_request("0" if number % 2 else "all")) for number in range(100)]
    for number, call in enumerate(calls):
        assert cdi_devices(runtime.created(runtime.finish(call))) == [
            "nvidia.com/gpu=0" if number % 2 else "nvidia.com/gpu=all"
        ]


# Status, metrics and log.


def test_decisions_are_in_status_metrics_and_log(here: Host, running: Plugin) -> None:
    runtime = here.runtime(**INJECTS_12)
    runtime.create(*gpu_request("0", name="trainer"))
    runtime.create(*gpu_request(None))
    with pytest.raises(Rejected):
        runtime.create(*gpu_request("77", name="greedy"))
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
    assert line["reason"].startswith("NVIDIA_VISIBLE_DEVICES requests '77'")
    assert [line["event"] for line in running.lines()].count("registered") == 1


def test_the_status_file_is_complete_at_each_moment(here: Host, running: Plugin) -> None:
    runtime = here.runtime()
    names = [f"{number}-{'x' * 200}" for number in range(40)]
    here.write_spec(names)
    shown: set[int] = set()
    while len(shown) < 3:
        runtime.create(*gpu_request(names[0], names[1]))
        # Each read gets a complete document.
        shown.add(running.status.get("counts", {}).get("inject", 0))
    assert len(running.status["journal"]) <= 20
