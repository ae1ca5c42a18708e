"""The loop of the link: what it does when the plugin stops, and beside another instance."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import MARK, SEAL, asks, given
from support.nri.runtime import Dropped, Rejected, container, pod
from support.nri.serving import served
from support.waiting import until

from cdigen.nri.events import ContainerDecided

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

GPU = "nvidia.com/gpu=0"

# The end: a request that waits is answered before the connection is closed.


def test_whoever_waits_is_refused_and_not_left_without_an_answer() -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*asks("0")) for _ in range(3)]
        # Nobody gives it what it needs to know; answered is what was asked first.
        link.shared.stopping.set()
        link.shared.wake()
        for call in calls:
            with pytest.raises(Rejected, match=r"^cdigen: the plugin is being stopped"):
                runtime.finish(call)


def test_whoever_asks_for_nothing_is_answered_to_the_end() -> None:
    with served() as link:
        runtime = link.runtime()
        link.shared.policy = None
        link.shared.problem = "the configuration is wrong"
        call = runtime.begin_create(pod(namespace="ml"), container())
        link.shared.stopping.set()
        link.shared.wake()
        assert not runtime.created(runtime.finish(call)).cdi_devices


def test_a_runtime_that_has_not_told_its_state_yet_does_not_add_a_plugin_that_leaves() -> None:
    with served() as link:
        runtime = link.runtime(is_synchronized=False)
        link.shared.stopping.set()
        link.shared.wake()
        poll = select.poll()
        poll.register(link.shared.wakeup, select.POLLIN)
        assert until(lambda: link.ended or not poll.poll(0))
        with pytest.raises(Dropped):
            runtime.synchronize()
        assert not link.serving.is_accepted


def test_while_the_configuration_is_wrong_whoever_asks_is_refused_and_nobody_else() -> None:
    with served() as link:
        runtime = link.runtime()
        link.shared.problem = "the configuration is wrong"
        with pytest.raises(Rejected, match="cdigen: the configuration is wrong"):
            runtime.create(*asks("0"))
        assert not runtime.create(pod(namespace="ml"), container()).cdi_devices
        assert link.shared.metrics.refusals["configuration"] == 1


# Beside another instance: what the loop passes, notes and counts.


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
