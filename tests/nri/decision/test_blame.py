"""Which other plugin is named where a container must not start for what it did."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.nri.answers import ASKS, INJECTS, LIBRARY, RAW, VISIBLE, Node, knowledge, sets
from support.nri.chain import chained, owned
from support.nri.host import POD, container

from cdigen.nri.decision.answer import validated
from cdigen.nri.decision.blame import blame
from cdigen.nri.pods import Adjustment, ContainerMount, Owners

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.nri.chain import Plugin

    from cdigen.nri.pods import Container

OWN = "20-cdigen"
NOBODY = ("", "")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(knowledge(tmp_path), INJECTS)


def blamed(
    node: Node, asked: Container, plugins: Mapping[str, Plugin], *, told: Owners | None = None
) -> tuple[str, str]:
    """Return who is blamed where PLUGINS, by their names, have made ASKED one that is refused.

    TOLD is what the runtime says of whose part is whose, where that is not the truth.
    """
    judge = partial(validated, POD, context=node.context, abilities=node.able)
    made = chained(asked, *plugins.values())
    verdict = judge(asked, made)
    assert verdict.reason
    return blame(judge, verdict, asked, made, told or owned(asked, plugins), own=OWN)


def test_who_asks_for_more_behind_us_is_named(node: Node) -> None:
    plugins = {OWN: node.cdigen, "25-harmless": sets("A", "1"), "30-other": sets(VISIBLE, "0,1")}
    assert blamed(node, ASKS, plugins) == ("30-other", "has changed what it asks for")


def test_who_takes_away_what_we_gave_is_named_with_it(tmp_path: Path) -> None:
    node = Node(knowledge(tmp_path, f"{VISIBLE}=void"), RAW)

    def thief(_: Container) -> Adjustment:
        mount = ContainerMount(destination=f"-{LIBRARY}", source="", type="", options=())
        return Adjustment(mounts=(mount,))

    plugins = {OWN: node.cdigen, "30-other": thief}
    assert blamed(node, container(f"{VISIBLE}=0,1"), plugins) == ("30-other", f"has taken {LIBRARY} away")


def test_who_takes_a_variable_away_before_us_is_named_as_the_container_keeps_it(node: Node) -> None:
    plugins = {"10-other": sets(f"-{VISIBLE}"), OWN: node.cdigen}
    did = f"has taken {VISIBLE} away, which NRI leaves to the container"
    assert blamed(node, ASKS, plugins) == ("10-other", did)


def test_nobody_is_named_where_we_were_not_asked(node: Node) -> None:
    assert blamed(node, ASKS, {}) == NOBODY
    assert blamed(node, ASKS, {"10-other": sets("A", "1")}) == NOBODY


def test_who_comes_before_us_is_not_blamed_for_an_answer_of_ours_that_was_lost(node: Node) -> None:
    plugins = {"10-one": sets(VISIBLE, "0"), "30-two": sets("A", "1")}
    assert blamed(node, container("PATH=/bin"), plugins) == NOBODY


def test_who_asks_behind_us_for_a_container_that_did_not_is_named(node: Node) -> None:
    plugins = {OWN: node.cdigen, "30-two": sets(VISIBLE, "0")}
    assert blamed(node, container("PATH=/bin"), plugins) == ("30-two", "has changed what it asks for")


def test_a_runtime_that_does_not_tell_owners_names_nobody(node: Node) -> None:
    plugins = {OWN: node.cdigen, "30-other": sets(VISIBLE, "0,1")}
    assert blamed(node, ASKS, plugins, told=Owners()) == NOBODY
