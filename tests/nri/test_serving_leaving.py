"""The plugin's orderly end: who waits for an answer gets one, before the connection is closed."""

from __future__ import annotations

import select

import pytest
from support.nri.plugin import asks
from support.nri.runtime import Dropped, Rejected, container, pod
from support.nri.serving import served
from support.waiting import until

STOPPED = "^cdigen: the plugin is being stopped"


def test_whoever_waits_is_refused_and_not_left_without_an_answer() -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*asks("0")) for _ in range(3)]
        # Nobody gives it what it needs to know; answered is what was asked first.
        link.shared.stopping.set()
        link.shared.wake()
        for call in calls:
            with pytest.raises(Rejected, match=STOPPED):
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
        with pytest.raises((Dropped, BrokenPipeError)):
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
