"""The loop of the link to the runtime while the plugin stops, and beside another instance."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import INJECTED_ANNOTATION, INJECTED_INTO_ANNOTATION, cdi_devices, gpu_request
from support.nri.runtime import Dropped, Rejected, container, pod
from support.nri.serving import served
from support.waiting import until

from cdigen.nri.events import ContainerDecided

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

GPU = "nvidia.com/gpu=0"

# The stop: a waiting request gets its response before the connection is closed.


def test_waiting_containers_are_refused_at_the_stop() -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*gpu_request("0")) for _ in range(3)]
        # The requests wait, because the test never sets a context for decisions.
        link.shared.stopping.set()
        link.shared.wake()
        for call in calls:
            with pytest.raises(Rejected, match=r"^cdigen: the plugin is stopping"):
                runtime.finish(call)


def test_a_container_without_a_request_may_start_during_the_stop() -> None:
    with served() as link:
        runtime = link.runtime()
        link.shared.policy = None
        link.shared.problem = "the configuration is wrong"
        call = runtime.begin_create(pod(namespace="ml"), container())
        link.shared.stopping.set()
        link.shared.wake()
        assert not runtime.created(runtime.finish(call)).cdi_devices


def test_a_stopping_plugin_does_not_respond_to_synchronize() -> None:
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


def test_with_an_invalid_configuration_only_containers_with_requests_are_refused() -> None:
    with served() as link:
        runtime = link.runtime()
        link.shared.problem = "the configuration is wrong"
        with pytest.raises(Rejected, match="cdigen: the configuration is wrong"):
            runtime.create(*gpu_request("0"))
        assert not runtime.create(pod(namespace="ml"), container()).cdi_devices
        assert link.shared.metrics.refusals["configuration"] == 1


# Together with another instance.


def test_a_standby_instance_injects_a_container_with_an_invalid_marker(context: DecisionContext) -> None:
    with served(context) as link:
        runtime = link.runtime()
        sandbox, made = gpu_request("0")
        made.annotations[INJECTED_ANNOTATION] = GPU
        link.shared.is_standby = True
        assert cdi_devices(runtime.create(sandbox, made)) == [GPU]
        made.annotations[INJECTED_INTO_ANNOTATION] = "c1/1"
        assert not runtime.create(sandbox, made).ListFields()
        assert until(
            lambda: [(one.id, one.devices) for one in link.shared.injected.containers()] == [("c1", (GPU,))]
        )


def test_a_container_that_another_instance_injected_is_served_and_not_counted() -> None:
    # The test sets no context for decisions, so a decision would be impossible.
    with served() as link:
        runtime = link.runtime()
        made = container(
            env=["NVIDIA_VISIBLE_DEVICES=0"],
            annotations={INJECTED_ANNOTATION: GPU, INJECTED_INTO_ANNOTATION: "c1/1"},
        )
        assert not runtime.create(pod(namespace="ml"), made).ListFields()
        assert sum(link.shared.metrics.outcomes.values()) == 0
        assert until(lambda: any(isinstance(event, ContainerDecided) for event in link.shared.events))
        (decided,) = [event for event in link.shared.events if isinstance(event, ContainerDecided)]
        assert decided.result.outcome == "served"


def test_a_standby_instance_counts_only_its_own_injections(context: DecisionContext) -> None:
    with served(context) as link:
        runtime = link.runtime()
        link.shared.is_standby = True
        assert not runtime.create(*gpu_request(None)).ListFields()
        assert cdi_devices(runtime.create(*gpu_request("0"))) == [GPU]
        assert {name: count for name, count in link.shared.metrics.outcomes.items() if count} == {"inject": 1}
