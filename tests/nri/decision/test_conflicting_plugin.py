"""cdigen finds the NRI plugin that made the adjustment of a container invalid."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.nri.chain import chained, owned
from support.nri.host import POD, container
from support.nri.other_plugins import ASKS, INJECTS, LIBRARY, RAW, VISIBLE, Node, context_with_gpus, sets

from cdigen.nri.decision.result.adjustments import find_conflicting_plugin
from cdigen.nri.decision.result.injection import validate_adjustment
from cdigen.nri.pods import Adjustment, AdjustmentOwners, ContainerMount

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.nri.chain import Plugin

    from cdigen.nri.pods import Container

OWN = "20-cdigen"
NO_PLUGIN = ("", "")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(context_with_gpus(tmp_path), INJECTS)


def conflict(
    node: Node,
    requested: Container,
    plugins: Mapping[str, Plugin],
    *,
    owners: AdjustmentOwners | None = None,
) -> tuple[str, str]:
    """Return which of PLUGINS made the adjustment of the REQUESTED container invalid, and its action.

    The runtime reports OWNERS, if set, instead of the true owners of the changes.
    """
    validate = partial(validate_adjustment, POD, context=node.context, abilities=node.able)
    made = chained(requested, *plugins.values())
    validation = validate(requested, made)
    assert validation.reason
    owners = owners or owned(requested, plugins)
    return find_conflicting_plugin(validate, validation, requested, made, owners, own=OWN)


def test_a_later_plugin_that_requests_more_gpus_is_the_conflicting_plugin(node: Node) -> None:
    plugins = {OWN: node.cdigen, "25-harmless": sets("A", "1"), "30-other": sets(VISIBLE, "0,1")}
    assert conflict(node, ASKS, plugins) == ("30-other", "changed the requests of the container")


def test_a_plugin_that_removes_an_injected_item_is_the_conflicting_plugin(tmp_path: Path) -> None:
    node = Node(context_with_gpus(tmp_path, f"{VISIBLE}=void"), RAW)

    def remover(_: Container) -> Adjustment:
        mount = ContainerMount(destination=f"-{LIBRARY}", source="", type="", options=())
        return Adjustment(mounts=(mount,))

    plugins = {OWN: node.cdigen, "30-other": remover}
    assert conflict(node, container(f"{VISIBLE}=0,1"), plugins) == ("30-other", f"removed {LIBRARY}")


def test_an_earlier_plugin_that_removes_a_variable_is_the_conflicting_plugin(node: Node) -> None:
    plugins = {"10-other": sets(f"-{VISIBLE}"), OWN: node.cdigen}
    action = f"removed {VISIBLE}, but NRI keeps the variable in the container"
    assert conflict(node, ASKS, plugins) == ("10-other", action)


def test_no_plugin_conflicts_if_the_runtime_did_not_call_cdigen(node: Node) -> None:
    assert conflict(node, ASKS, {}) == NO_PLUGIN
    assert conflict(node, ASKS, {"10-other": sets("A", "1")}) == NO_PLUGIN


def test_an_earlier_plugin_does_not_conflict_if_cdigens_response_was_lost(node: Node) -> None:
    plugins = {"10-one": sets(VISIBLE, "0"), "30-two": sets("A", "1")}
    assert conflict(node, container("PATH=/bin"), plugins) == NO_PLUGIN


def test_a_later_plugin_that_makes_the_only_request_is_the_conflicting_plugin(node: Node) -> None:
    plugins = {OWN: node.cdigen, "30-two": sets(VISIBLE, "0")}
    assert conflict(node, container("PATH=/bin"), plugins) == (
        "30-two",
        "changed the requests of the container",
    )


def test_no_plugin_conflicts_if_the_runtime_reports_no_owners_of_the_changes(node: Node) -> None:
    plugins = {OWN: node.cdigen, "30-other": sets(VISIBLE, "0,1")}
    assert conflict(node, ASKS, plugins, owners=AdjustmentOwners()) == NO_PLUGIN
