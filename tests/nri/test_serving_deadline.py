"""If the plugin has not read the host's state in time, it refuses a request before the runtime's timeout."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from support.nri.blocked_files import blocked
from support.nri.plugin import Host, Plugin, cdi_devices, gpu_request, host, plugin
from support.nri.runtime import Rejected, Runtime, SocketTransport, pod
from support.nri.serving import served
from support.waiting import limited

from cdigen.nri.events import ContainerDecided, ContainerRejected, PluginActive, Synchronized
from cdigen.nri.pods import ContainerName
from cdigen.nri.shared_state import SharedState
from cdigen.nri.wire.messages import CLASSES
from cdigen.nri.wire.session import SessionError

if TYPE_CHECKING:
    from cdigen.nri.decision.context import DecisionContext

LATE = "the devices of this host could not be read within"


@limited(4)
def test_without_a_context_a_request_is_refused_before_the_runtimes_timeout(within_s: float) -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=4)
        began = time.monotonic()
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 2 s"):
            runtime.create(*gpu_request("0"))
        assert 2 <= time.monotonic() - began < within_s
        assert link.shared.metrics.refusals["late"] == 1
        assert "request" in link.notifications


def test_the_default_timeout_of_an_older_nri_is_two_seconds() -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=40)
        runtime.nri = (0, 6)
        runtime.configure()
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 1 s"):
            runtime.create(*gpu_request("0"))


def test_a_pending_validation_is_rejected_before_the_timeout() -> None:
    with served() as link:
        runtime = link.runtime(request_timeout_s=1)
        assert LATE in runtime.validate(*gpu_request("0"), CLASSES["Adjustment"]())


def test_an_expired_request_is_refused_at_once() -> None:
    with served() as link:
        runtime = link.runtime()
        runtime.request_timeout_s = -5.0
        call = runtime.begin_create(*gpu_request("0"))
        runtime.request_timeout_s = 60.0
        with pytest.raises(Rejected, match=LATE):
            runtime.finish(call)


def test_a_new_context_ends_the_wait_of_pending_requests(context: DecisionContext) -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*gpu_request("0")) for _ in range(50)]
        link.shared.set_context(context)
        for call in calls:
            assert cdi_devices(runtime.created(runtime.finish(call))) == ["nvidia.com/gpu=0"]


def test_the_number_of_waiting_requests_is_limited(context: DecisionContext) -> None:
    with served() as link:
        runtime = link.runtime()
        calls = [runtime.begin_create(*gpu_request("0")) for _ in range(257)]
        with pytest.raises(Rejected, match="too many containers wait"):
            runtime.finish(calls[-1])
        link.shared.set_context(context)
        assert cdi_devices(runtime.created(runtime.finish(calls[0]))) == ["nvidia.com/gpu=0"]


def test_the_plugin_disconnects_from_a_runtime_that_never_registers_it() -> None:
    with served(register_within_s=0.2) as link:
        error = link.result()
        assert isinstance(error, SessionError)
        assert str(error) == "the runtime has not registered the plugin within 0.2 s"
        assert not link.serving.is_accepted


def test_the_plugin_disconnects_from_a_runtime_that_never_synchronizes() -> None:
    with served(register_within_s=1) as link:
        Runtime(SocketTransport(link.end), registration_timeout_s=60, request_timeout_s=60).start()
        assert isinstance(link.result(), SessionError)
        assert not link.serving.is_accepted


def test_a_state_of_up_to_16_parts_is_complete_after_its_last_part() -> None:
    with served() as link:
        runtime = link.runtime()
        send_state(runtime, 3)
        send_state(runtime, 20)
        runtime.call("StateChange", b"")
        received = [event for event in link.shared.events if isinstance(event, Synchronized)]
        # The first event comes from the registration. Of 20 parts, the first 16 are kept, so the state is
        # incomplete.
        assert [(len(event.parts), event.is_complete) for event in received] == [
            (1, True),
            (3, True),
            (16, False),
        ]


def send_state(runtime: Runtime, count: int) -> None:
    """Send the state of RUNTIME in COUNT parts."""
    for left in reversed(range(count)):
        part = CLASSES["SynchronizeRequest"](pods=[pod().SerializeToString()], more=left > 0)
        runtime.call("Synchronize", part.SerializeToString())


def test_the_number_of_container_events_is_limited_and_connection_events_are_kept() -> None:
    shared = SharedState(lambda _: None)
    event = ContainerRejected(name=ContainerName(namespace="ml", pod="p", container="c"), reason="why")
    for _ in range(10_100):
        shared.add_event(event)
    assert len(shared.events) == 10_000
    shared.add_event(PluginActive())
    assert len(shared.events) == 10_001
    assert isinstance(shared.events[-1], PluginActive)


def test_an_event_keeps_only_a_summary_of_the_container(context: DecisionContext) -> None:
    with served(context) as link:
        runtime = link.runtime()
        long = pod(namespace="ml", name="n" * 100_000, labels={"a": "x" * 1_000_000})
        runtime.create(long, gpu_request("0")[1])
        with pytest.raises(Rejected):
            runtime.create(long, gpu_request("77")[1])
        runtime.validate(long, gpu_request("0")[1], CLASSES["Adjustment"]())
        link.close()
        events = [one for one in link.shared.events if isinstance(one, ContainerDecided | ContainerRejected)]
        assert len(events) == 3
        assert all(len(repr(one)) < 3_000 for one in events)


# The real process, and a file system that hangs.


@pytest.mark.needs_root
def test_during_a_hanging_read_of_the_specs_a_container_is_refused_and_injected_afterwards(
    here: Host, running: Plugin
) -> None:
    runtime = here.runtime(request_timeout_s=4)
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    running.serves()
    with blocked(here.specs) as hold:
        here.write_spec(["0", "new"])
        with pytest.raises(Rejected, match=f"^cdigen: {LATE} 2 s"):
            runtime.create(*gpu_request("new"))
        assert hold.waiting.is_set()
        assert runtime.create(*gpu_request(None)).ByteSize() == 0
        hold.release()
        runtime.request_timeout_s = 40
        assert cdi_devices(runtime.create(*gpu_request("new"))) == ["nvidia.com/gpu=new"]
    assert running.metric('cdigen_nri_refused_total{cause="late"}') == 1


@pytest.mark.needs_root
def test_the_plugin_can_be_stopped_during_a_hanging_read_of_the_specs(here: Host, running: Plugin) -> None:
    here.runtime()
    running.serves()
    with blocked(here.specs) as hold:
        here.write_spec(["0", "new"])
        hold.waiting.wait(60)
        assert running.stop() == 0


@pytest.mark.needs_root
def test_the_plugin_registers_before_it_reads_the_specs() -> None:
    with host() as here, blocked(here.specs) as hold, plugin(here):
        runtime = here.runtime()
        call = runtime.begin_create(*gpu_request("0"))
        hold.waiting.wait(60)
        hold.release()
        assert cdi_devices(runtime.created(runtime.finish(call))) == ["nvidia.com/gpu=0"]
