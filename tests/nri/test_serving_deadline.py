"""The plugin's own deadline: what the host has cannot be looked up, and the runtime gets an error in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from support.nri.blocked_files import held
from support.nri.plugin import Host, Plugin, asks, given, host, plugin
from support.nri.runtime import Rejected, Runtime, SocketTransport, pod
from support.nri.serving import served
from support.waiting import limited

from cdigen.nri.events import ContainerDecided, PluginActive, Synchronized, Validated
from cdigen.nri.pods import ContainerName
from cdigen.nri.shared_state import SharedState
from cdigen.nri.wire.protobuf import message_class
from cdigen.nri.wire.session import SessionError

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

LATE = "the devices of this host could not be looked up within"


@limited(4)
def test_where_nothing_is_known_a_question_is_refused_before_the_runtime_gives_up(within_s: float) -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=4)
        began = time.monotonic()
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 2 s"):
            runtime.create(*asks("0"))
        assert 2 <= time.monotonic() - began < within_s
        assert link.shared.metrics.refusals["late"] == 1
        assert "question" in link.told


def test_the_time_that_a_runtime_of_an_older_nri_does_not_tell_is_two_seconds() -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=40)
        runtime.nri = (0, 6)
        runtime.configure()
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 1 s"):
            runtime.create(*asks("0"))


def test_what_was_to_be_validated_is_rejected_in_time() -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=1)
        assert LATE in runtime.validate(*asks("0"), message_class("Adjustment")())


def test_a_request_whose_time_is_over_is_refused_at_once() -> None:
    with served() as link:
        runtime = link.runtime()
        runtime.request_timeout_s = -5.0
        call = runtime.begin_create(*asks("0"))
        runtime.request_timeout_s = 60.0
        with pytest.raises(Rejected, match=LATE):
            runtime.finish(call)


def test_what_is_known_later_answers_those_who_wait(known: DecisionContext) -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*asks("0")) for _ in range(50)]
        link.shared.set_context(known)
        for call in calls:
            assert given(runtime.created(runtime.finish(call))) == ["nvidia.com/gpu=0"]


def test_so_many_may_wait_and_no_more(known: DecisionContext) -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*asks("0")) for _ in range(257)]
        with pytest.raises(Rejected, match="too many containers wait"):
            runtime.finish(calls[-1])
        link.shared.set_context(known)
        assert given(runtime.created(runtime.finish(calls[0]))) == ["nvidia.com/gpu=0"]


def test_a_runtime_that_never_registers_it_is_left() -> None:
    with served(register_within_s=0.2) as link:
        error = link.result()
        assert isinstance(error, SessionError)
        assert str(error) == "the runtime has not registered the plugin within 0.2 s"
        assert not link.serving.is_accepted


def test_a_runtime_that_registers_it_and_never_tells_its_state_is_left() -> None:
    with served(register_within_s=1) as link:
        Runtime(SocketTransport(link.end), registration_timeout_s=60, request_timeout_s=60).start()
        assert isinstance(link.result(), SessionError)
        assert not link.serving.is_accepted


def test_a_state_is_told_whole_after_its_last_part() -> None:
    with served() as link:
        runtime = link.runtime()
        tell_state(runtime, 3)
        tell_state(runtime, 20)
        runtime.call("StateChange", b"")
        told = [event for event in link.shared.events if isinstance(event, Synchronized)]
        # The first is that of the registration. Of too many parts the first are held, and that is told.
        assert [(len(event.parts), event.is_complete) for event in told] == [
            (1, True),
            (3, True),
            (16, False),
        ]


def tell_state(runtime: Runtime, count: int) -> None:
    """Tell the state of RUNTIME in COUNT parts."""
    for left in reversed(range(count)):
        part = message_class("SynchronizeRequest")(pods=[pod().SerializeToString()], more=left > 0)
        runtime.call("Synchronize", part.SerializeToString())


def test_news_of_containers_are_bounded_and_those_of_the_runtime_are_not() -> None:
    shared = SharedState(lambda _: None)
    told = Validated(name=ContainerName(namespace="ml", pod="p", container="c"), reason="why")
    for _ in range(10_100):
        shared.add_event(told)
    assert len(shared.events) == 10_000
    shared.add_event(PluginActive())
    assert len(shared.events) == 10_001
    assert isinstance(shared.events[-1], PluginActive)


def test_news_of_a_container_hold_no_more_than_is_said_of_it(known: DecisionContext) -> None:
    with served(known) as link:
        runtime = link.runtime()
        long = pod(namespace="ml", name="n" * 100_000, labels={"a": "x" * 1_000_000})
        runtime.create(long, asks("0")[1])
        with pytest.raises(Rejected):
            runtime.create(long, asks("77")[1])
        runtime.validate(long, asks("0")[1], message_class("Adjustment")())
        link.close()
        events = [one for one in link.shared.events if isinstance(one, ContainerDecided | Validated)]
        assert len(events) == 3
        assert all(len(repr(one)) < 3_000 for one in events)


# The real process, and a file system that hangs.


@pytest.mark.needs_root
def test_while_its_look_at_the_specs_hangs_a_container_is_refused_and_served_afterwards(
    here: Host, running: Plugin
) -> None:
    runtime = here.runtime(request_timeout_s=4)
    assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    running.serves()
    with held(here.specs) as hold:
        here.write_spec(["0", "new"])
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 2 s"):
            runtime.create(*asks("new"))
        assert hold.waiting.is_set()
        assert runtime.create(*asks(None)).ByteSize() == 0
        hold.release()
        runtime.request_timeout_s = 40
        assert given(runtime.create(*asks("new"))) == ["nvidia.com/gpu=new"]
    assert running.metric('cdigen_nri_refused_total{cause="late"}') == 1


@pytest.mark.needs_root
def test_it_ends_while_its_look_at_the_specs_hangs(here: Host, running: Plugin) -> None:
    here.runtime()
    running.serves()
    with held(here.specs) as hold:
        here.write_spec(["0", "new"])
        hold.waiting.wait(60)
        assert running.stop() == 0


@pytest.mark.needs_root
def test_it_is_registered_before_the_specs_can_be_read() -> None:
    with host() as here, held(here.specs) as hold, plugin(here):
        runtime = here.runtime()
        call = runtime.begin_create(*asks("0"))
        hold.waiting.wait(60)
        hold.release()
        assert given(runtime.created(runtime.finish(call))) == ["nvidia.com/gpu=0"]
