"""The JSON document of the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.values.page_samples import SAMPLES, degraded, healthy

from cdigen.page.document import document
from cdigen.page.page import page
from cdigen.page.view import nameless

if TYPE_CHECKING:
    from cdigen.page.view import PageView


@pytest.mark.parametrize("name", SAMPLES)
def test_every_page_has_a_json_document(name: str) -> None:
    view = SAMPLES[name]()
    found = document(view)
    assert json.loads(json.dumps(found)) == found
    assert len(found["devices"]) == len(view.devices)


def test_the_document_contains_users_stats_and_causes() -> None:
    first = document(healthy())["devices"][0]
    assert first["users"] == [
        {"name": "pod ml/train-0, container trainer", "source": "kubelet, NRI", "since": None}
    ]
    assert first["stats"]["utilization"] == 97
    assert [cause["cause"] for cause in document(degraded())["devices"][3]["causes"]] == ["xid-79"]


@pytest.mark.parametrize("view", [healthy(), degraded()])
def test_a_nameless_view_shows_that_a_device_is_in_use_but_names_no_user(view: PageView) -> None:
    plain = json.dumps(document(view)) + page(view)
    assert "sweep-41" in plain
    shown = json.dumps(document(nameless(view))) + page(nameless(view))
    for name in ("train", "trainer", "sweep-41", "NVIDIA_REQUIRE_CUDA"):
        assert name not in shown
    assert "http_port_shows_names" in page(nameless(view))
    users = [[one["name"] for one in device["users"]] for device in document(nameless(view))["devices"]]
    assert users == [["in use"] if one.users else [] for one in view.devices]


def test_the_document_contains_services_runtimes_and_sources() -> None:
    found = document(degraded())
    assert [service["state"] for service in found["services"]] == ["good", "bad"]
    assert found["services"][1]["refusals"][0]["container"] == "pod ml/sweep-41, container main"
    assert found["runtimes"][1]["problems"] == [
        ["/etc/cdi/nvidia.yaml", "cdiVersion 1.1.0 is unknown to podman 4.3.1"]
    ]
    assert document(healthy())["sources"][2]["state"] == "off"
