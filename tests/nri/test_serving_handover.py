"""The loop of the link beside another instance: what it lets pass, notes and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.nri.plugin import MARK, SEAL, asks, given
from support.nri.runtime import container, pod
from support.nri.serving import served
from support.waiting import until

from cdigen.nri.events import ContainerDecided

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

GPU = "nvidia.com/gpu=0"


def test_beside_an_older_version_its_mark_alone_counts_and_only_while_this_one_stands_by(
    known: DecisionContext,
) -> None:
    with served(known) as link:
        runtime = link.runtime()
        sandbox, made = asks("0")
        made.annotations[MARK] = GPU
        link.shared.stands_by = True
        assert not runtime.create(sandbox, made).ListFields()
        assert until(
            lambda: [(held.id, held.devices) for held in link.shared.book.held()] == [("c1", (GPU,))]
        )
        sandbox.annotations[MARK] = GPU
        assert given(runtime.create(sandbox, made)) == [GPU]
        del sandbox.annotations[MARK]
        link.shared.stands_by = False
        assert given(runtime.create(sandbox, made)) == [GPU]


def test_what_another_has_given_is_neither_counted_nor_looked_up() -> None:
    # No context: nothing is known of the host yet.
    with served() as link:
        runtime = link.runtime()
        made = container(env=["NVIDIA_VISIBLE_DEVICES=0"], annotations={MARK: GPU, SEAL: "c1/1"})
        assert not runtime.create(pod(namespace="ml"), made).ListFields()
        assert sum(link.shared.metrics.outcomes.values()) == 0
        assert until(lambda: any(isinstance(event, ContainerDecided) for event in link.shared.events))
        (decided,) = [event for event in link.shared.events if isinstance(event, ContainerDecided)]
        assert decided.answer.outcome == "served"


def test_who_stands_by_counts_what_it_gives_and_not_what_it_leaves(known: DecisionContext) -> None:
    with served(known) as link:
        runtime = link.runtime()
        link.shared.stands_by = True
        assert not runtime.create(*asks(None)).ListFields()
        assert given(runtime.create(*asks("0"))) == [GPU]
        assert {name: count for name, count in link.shared.metrics.outcomes.items() if count} == {"inject": 1}
