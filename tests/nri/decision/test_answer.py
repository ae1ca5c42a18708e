"""What all plugins together have made of a container, judged after plugins before and behind ours."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from support.nri.answers import (
    ASKS,
    INJECTS,
    LIBRARY,
    RAW,
    VISIBLE,
    Node,
    knowledge,
    sets,
)
from support.nri.host import ALLOWED, POD, container
from support.nri.serving import known_of

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.answer import MARK, created, validated
from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerMount
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from support.nri.chain import Plugin

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.pods import Container


@pytest.fixture
def context(tmp_path: Path) -> DecisionContext:
    return knowledge(tmp_path, "A=B")


@pytest.fixture(params=["injects", "raw"])
def node(context: DecisionContext, request: pytest.FixtureRequest) -> Node:
    return Node(context, INJECTS if request.param == "injects" else RAW)


def gives(*paths: str) -> Plugin:
    devices = tuple(ContainerDevice(path=path, type="c", major=195, minor=0) for path in paths)
    return lambda _: Adjustment(devices=devices)


def test_what_nobody_else_touched_may_start(node: Node) -> None:
    assert node.verdict(ASKS, node.cdigen) == ""
    assert node.verdict(container("PATH=/bin"), node.cdigen) == ""


def test_an_answer_that_was_lost_is_seen(node: Node) -> None:
    assert "would start without" in node.verdict(ASKS)
    assert "would start without" in node.verdict(ASKS, sets("OTHER", "1"))


@pytest.mark.parametrize("value", ["1", "0,1"])
def test_a_plugin_before_ours_may_ask_for_other_devices(node: Node, value: str) -> None:
    assert node.verdict(ASKS, sets(VISIBLE, value), node.cdigen) == ""
    assert "would start without" in node.verdict(ASKS, sets(VISIBLE, value))


def test_a_plugin_before_ours_may_ask_for_a_container_that_did_not(node: Node) -> None:
    asked = container("PATH=/bin")
    assert node.verdict(asked, sets(VISIBLE, "0"), node.cdigen) == ""
    assert "would start without" in node.verdict(asked, sets(VISIBLE, "0"))


@pytest.mark.parametrize("value", ["void", ""])
def test_a_plugin_before_ours_may_take_the_wish_away(node: Node, value: str) -> None:
    assert node.verdict(ASKS, sets(VISIBLE, value), node.cdigen) == ""


def test_a_variable_that_is_told_to_be_taken_away_counts_as_gone(node: Node) -> None:
    told = Adjustment(env={f"-{VISIBLE}": ""})
    assert not validated(POD, ASKS, told, node.context, node.able).reason


def test_a_variable_that_was_taken_away_untold_is_still_a_wish(node: Node) -> None:
    # The runtime does not take it away either: the container starts with it.
    assert "would start without" in node.verdict(ASKS, sets(f"-{VISIBLE}"), node.cdigen)


def test_a_plugin_before_ours_may_give_the_nodes_itself(node: Node) -> None:
    assert node.verdict(ASKS, gives("/dev/nvidia0"), node.cdigen) == ""


def test_nodes_that_others_give_do_not_go_without_the_driver(node: Node) -> None:
    given = replace(ASKS, devices=("/dev/nvidia0", "/dev/nvidiactl"))
    assert node.cdigen(given).annotations == {MARK: "nvidia.com/gpu=none"}
    assert node.verdict(given, node.cdigen) == ""
    assert "would start without" in node.verdict(given)
    assert "would start without" in node.verdict(ASKS, gives("/dev/nvidia0"))


def test_a_plugin_behind_ours_may_give_the_nodes_as_well(node: Node) -> None:
    assert node.verdict(ASKS, node.cdigen, gives("/dev/nvidia1")) == ""


def test_a_plugin_before_ours_may_take_nodes_away(node: Node) -> None:
    asked = replace(ASKS, devices=("/dev/nvidia0", "/dev/nvidiactl"))
    assert node.verdict(asked, node.cdigen) == ""
    assert node.verdict(asked, gives("-/dev/nvidia0", "-/dev/nvidiactl"), node.cdigen) == ""
    assert "would start without" in node.verdict(asked, gives("-/dev/nvidia0", "-/dev/nvidiactl"))


def test_a_plugin_behind_ours_that_asks_for_more_is_seen(node: Node) -> None:
    later = sets(VISIBLE, "0,1")
    if node.able.cdi == "injects":
        assert "asks for nvidia.com/gpu=0, nvidia.com/gpu=1" in node.verdict(ASKS, node.cdigen, later)


def test_the_mark_of_another_fools_nobody(node: Node) -> None:
    def forger(_: Container) -> Adjustment:
        return Adjustment(annotations={MARK: "nvidia.com/gpu=0"})

    assert "would start without" in node.verdict(ASKS, forger)


@pytest.mark.parametrize("stolen", ["/dev/nvidia1", LIBRARY])
def test_nodes_and_mounts_of_ours_that_were_taken_away_behind_us_are_missed(
    tmp_path: Path, stolen: str
) -> None:
    # Variables, nodes and mounts of ours are there, and would make it a container that has its devices.
    node = Node(knowledge(tmp_path, f"{VISIBLE}=void"), RAW)
    both = container(f"{VISIBLE}=0,1")

    def thief(given: Container) -> Adjustment:
        if stolen in given.devices:
            return Adjustment(devices=(ContainerDevice(path=f"-{stolen}", type="", major=0, minor=0),))
        return Adjustment(mounts=(ContainerMount(destination=f"-{stolen}", source="", type="", options=()),))

    assert node.verdict(both, node.cdigen) == ""
    assert f"would start without {stolen}" in node.verdict(both, node.cdigen, thief)


def test_a_mark_that_names_what_no_spec_has_any_more_is_refused(context: DecisionContext) -> None:
    made = Adjustment(annotations={MARK: "nvidia.com/gpu=7"})
    assert validated(POD, ASKS, made, context, RAW).reason == "the spec of 'nvidia.com/gpu=7' has gone"


def test_annotations_that_were_set_anew_are_those_that_count(node: Node) -> None:
    made = Adjustment(annotations={"-a": "", "a": "1", "-b": ""})
    asked = replace(container("PATH=/bin"), annotations={"a": "0", "b": "0"})
    assert not validated(POD, asked, made, node.context, node.able).reason


@pytest.mark.usefixtures("real_nodes")
def test_a_node_whose_folder_came_after_a_refusal_is_found(tmp_path: Path) -> None:
    edits = {"deviceNodes": [{"path": "/dev/dri/renderD128"}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
    }
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/gpu.json").write_text(json.dumps(spec))
    context = known_of(tmp_path, Settings(nri=NriConfig(allow=ALLOWED, unsupported_cdi="raw")))
    assert created(POD, ASKS, context, RAW).outcome == "refuse"
    (tmp_path / "dev/dri").mkdir(parents=True)
    os.mknod(tmp_path / "dev/dri/renderD128", stat.S_IFCHR | 0o666, os.makedev(226, 128))
    found = created(POD, ASKS, context, RAW)
    assert found.outcome != "refuse", found.reason
