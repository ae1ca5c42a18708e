"""What the page shows, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.values.page_samples import SAMPLES, degraded, healthy

from cdigen.daemon.page.document import document
from cdigen.daemon.page.page import page
from cdigen.daemon.page.view import nameless

if TYPE_CHECKING:
    from cdigen.daemon.page.view import PageView


@pytest.mark.parametrize("name", SAMPLES)
def test_every_page_is_json(name: str) -> None:
    view = SAMPLES[name]()
    found = document(view)
    assert json.loads(json.dumps(found)) == found
    assert len(found["devices"]) == len(view.devices)


def test_holders_figures_and_causes_are_in_it() -> None:
    first = document(healthy())["devices"][0]
    assert first["holders"] == [
        {"name": "pod ml/train-0, container trainer", "said_by": "kubelet, NRI", "since": None}
    ]
    assert first["figures"]["utilization"] == 97
    assert [cause["cause"] for cause in document(degraded())["devices"][3]["causes"]] == ["xid-79"]


@pytest.mark.parametrize("view", [healthy(), degraded()])
def test_without_names_a_device_is_in_use_and_nobody_is_named(view: PageView) -> None:
    plain = json.dumps(document(view)) + page(view)
    assert "sweep-41" in plain
    shown = json.dumps(document(nameless(view))) + page(nameless(view))
    for name in ("train", "trainer", "sweep-41", "NVIDIA_REQUIRE_CUDA"):
        assert name not in shown
    assert "names_on_port" in page(nameless(view))
    holders = [[one["name"] for one in device["holders"]] for device in document(nameless(view))["devices"]]
    assert holders == [["in use"] if one.holders else [] for one in view.devices]


def test_peers_runtimes_and_sources_are_in_it() -> None:
    found = document(degraded())
    assert [peer["state"] for peer in found["peers"]] == ["good", "bad"]
    assert found["peers"][1]["refusals"][0]["who"] == "pod ml/sweep-41, container main"
    assert found["runtimes"][1]["problems"] == [
        ["/etc/cdi/nvidia.yaml", "cdiVersion 1.1.0 is unknown to podman 4.3.1"]
    ]
    assert document(healthy())["sources"][2]["state"] == "off"
