"""cdigen validates the combined adjustment of all plugins, with plugins before and after cdigen."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from support.nri.host import ALLOWED, POD, container
from support.nri.other_plugins import ASKS, INJECTS, LIBRARY, RAW, VISIBLE, Node, context_with_gpus, sets
from support.nri.serving import context_on

from cdigen.config import NriConfig, Settings
from cdigen.nri.decision.result.injection import INJECTED_ANNOTATION, adjust_container, validate_adjustment
from cdigen.nri.pods import Adjustment, ContainerDevice, ContainerMount
from cdigen.value import replace

if TYPE_CHECKING:
    from pathlib import Path

    from support.nri.chain import Plugin

    from cdigen.nri.decision.context import DecisionContext
    from cdigen.nri.pods import Container


@pytest.fixture
def context(tmp_path: Path) -> DecisionContext:
    return context_with_gpus(tmp_path, "A=B")


@pytest.fixture(params=["injects", "raw"])
def node(context: DecisionContext, request: pytest.FixtureRequest) -> Node:
    return Node(context, INJECTS if request.param == "injects" else RAW)


def gives(*paths: str) -> Plugin:
    devices = tuple(ContainerDevice(path=path, type="c", major=195, minor=0) for path in paths)
    return lambda _: Adjustment(devices=devices)


def test_a_container_that_only_cdigen_changes_may_start(node: Node) -> None:
    assert node.reason(ASKS, node.cdigen) == ""
    assert node.reason(container("PATH=/bin"), node.cdigen) == ""


def test_a_lost_response_is_detected(node: Node) -> None:
    assert "would start without" in node.reason(ASKS)
    assert "would start without" in node.reason(ASKS, sets("OTHER", "1"))


@pytest.mark.parametrize("value", ["1", "0,1"])
def test_an_earlier_plugin_may_change_the_request(node: Node, value: str) -> None:
    assert node.reason(ASKS, sets(VISIBLE, value), node.cdigen) == ""
    assert "would start without" in node.reason(ASKS, sets(VISIBLE, value))


def test_an_earlier_plugin_may_add_the_request(node: Node) -> None:
    requested = container("PATH=/bin")
    assert node.reason(requested, sets(VISIBLE, "0"), node.cdigen) == ""
    assert "would start without" in node.reason(requested, sets(VISIBLE, "0"))


@pytest.mark.parametrize("value", ["void", ""])
def test_an_earlier_plugin_may_cancel_the_request(node: Node, value: str) -> None:
    assert node.reason(ASKS, sets(VISIBLE, value), node.cdigen) == ""


def test_a_reported_removal_of_a_variable_cancels_the_request(node: Node) -> None:
    adjustment = Adjustment(env={f"-{VISIBLE}": ""})
    assert not validate_adjustment(POD, ASKS, adjustment, node.context, node.able).reason


def test_an_unreported_removal_of_a_variable_does_not_cancel_the_request(node: Node) -> None:
    # The runtime does not remove the variable, so the container starts with the variable.
    assert "would start without" in node.reason(ASKS, sets(f"-{VISIBLE}"), node.cdigen)


def test_an_earlier_plugin_may_inject_the_nodes(node: Node) -> None:
    assert node.reason(ASKS, gives("/dev/nvidia0"), node.cdigen) == ""


def test_nodes_from_other_plugins_need_the_drivers_files(node: Node) -> None:
    with_nodes = replace(ASKS, devices=("/dev/nvidia0", "/dev/nvidiactl"))
    assert node.cdigen(with_nodes).annotations == {INJECTED_ANNOTATION: "nvidia.com/gpu=none"}
    assert node.reason(with_nodes, node.cdigen) == ""
    assert "would start without" in node.reason(with_nodes)
    assert "would start without" in node.reason(ASKS, gives("/dev/nvidia0"))


def test_a_later_plugin_may_inject_the_nodes_as_well(node: Node) -> None:
    assert node.reason(ASKS, node.cdigen, gives("/dev/nvidia1")) == ""


def test_an_earlier_plugin_may_remove_nodes(node: Node) -> None:
    requested = replace(ASKS, devices=("/dev/nvidia0", "/dev/nvidiactl"))
    assert node.reason(requested, node.cdigen) == ""
    assert node.reason(requested, gives("-/dev/nvidia0", "-/dev/nvidiactl"), node.cdigen) == ""
    assert "would start without" in node.reason(requested, gives("-/dev/nvidia0", "-/dev/nvidiactl"))


def test_a_later_plugin_that_requests_more_gpus_is_detected(node: Node) -> None:
    later = sets(VISIBLE, "0,1")
    if node.able.cdi == "injects":
        assert "requests nvidia.com/gpu=0, nvidia.com/gpu=1" in node.reason(ASKS, node.cdigen, later)


def test_a_forged_marker_does_not_pass_validation(node: Node) -> None:
    def forger(_: Container) -> Adjustment:
        return Adjustment(annotations={INJECTED_ANNOTATION: "nvidia.com/gpu=0"})

    assert "would start without" in node.reason(ASKS, forger)


@pytest.mark.parametrize("removed", ["/dev/nvidia1", LIBRARY])
def test_nodes_and_mounts_that_a_later_plugin_removes_are_missing(tmp_path: Path, removed: str) -> None:
    # With cdigen's variables, nodes and mounts, the container would seem to have its devices.
    node = Node(context_with_gpus(tmp_path, f"{VISIBLE}=void"), RAW)
    both = container(f"{VISIBLE}=0,1")

    def remover(container: Container) -> Adjustment:
        if removed in container.devices:
            return Adjustment(devices=(ContainerDevice(path=f"-{removed}", type="", major=0, minor=0),))
        return Adjustment(mounts=(ContainerMount(destination=f"-{removed}", source="", type="", options=()),))

    assert node.reason(both, node.cdigen) == ""
    assert f"would start without {removed}" in node.reason(both, node.cdigen, remover)


def test_a_marker_with_unknown_devices_is_refused(context: DecisionContext) -> None:
    made = Adjustment(annotations={INJECTED_ANNOTATION: "nvidia.com/gpu=7"})
    assert (
        validate_adjustment(POD, ASKS, made, context, RAW).reason
        == "no spec defines 'nvidia.com/gpu=7' any more"
    )


def test_replaced_and_removed_annotations_are_valid(node: Node) -> None:
    made = Adjustment(annotations={"-a": "", "a": "1", "-b": ""})
    requested = replace(container("PATH=/bin"), annotations={"a": "0", "b": "0"})
    assert not validate_adjustment(POD, requested, made, node.context, node.able).reason


@pytest.mark.usefixtures("real_nodes")
def test_a_node_whose_folder_appears_after_a_refusal_is_found(tmp_path: Path) -> None:
    edits = {"deviceNodes": [{"path": "/dev/dri/renderD128"}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": edits}],
    }
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/gpu.json").write_text(json.dumps(spec))
    context = context_on(tmp_path, Settings(nri=NriConfig(allow=ALLOWED, unsupported_cdi="raw")))
    assert adjust_container(POD, ASKS, context, RAW).outcome == "refuse"
    (tmp_path / "dev/dri").mkdir(parents=True)
    os.mknod(tmp_path / "dev/dri/renderD128", stat.S_IFCHR | 0o666, os.makedev(226, 128))
    found = adjust_container(POD, ASKS, context, RAW)
    assert found.outcome != "refuse", found.reason


def test_a_container_with_a_user_namespace_gets_mounts_with_mapped_ids(tmp_path: Path) -> None:
    mount = {"hostPath": "/s", "containerPath": "/d", "type": "bind", "options": ["ro", "rbind"]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"mounts": [mount]}}],
    }
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi/gpu.json").write_text(json.dumps(spec))
    context = context_on(tmp_path, Settings(nri=NriConfig(allow=ALLOWED, unsupported_cdi="raw")))
    for has_user_namespace, options in ((True, ("ro", "rbind", "ridmap")), (False, ("ro", "rbind"))):
        requested = replace(ASKS, has_user_namespace=has_user_namespace)
        made = adjust_container(POD, requested, context, RAW).adjustment
        assert [one.options for one in made.mounts] == [options]
        assert not validate_adjustment(POD, requested, made, context, RAW).reason
        assert "would start without" in validate_adjustment(POD, requested, Adjustment(), context, RAW).reason
