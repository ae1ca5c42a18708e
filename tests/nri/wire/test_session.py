"""The session of a plugin with a runtime: requests of every release of NRI, and invalid requests."""

from __future__ import annotations

import struct

import pytest
from support.nri.runtime import PLUGIN, Dropped, Rejected, Runtime, container, pod
from support.nri.session import (
    GPU,
    Directly,
    codes,
    configured,
    connected,
    gives_gpu,
    ignores_requests,
    on,
    only,
    request_frames,
)

from cdigen.nri.pods import Adjustment
from cdigen.nri.wire import ttrpc
from cdigen.nri.wire.messages import CLASSES, write_created, write_response
from cdigen.nri.wire.session import (
    Configure,
    CreateContainer,
    InvalidCall,
    Session,
    SessionError,
    Synchronize,
    ValidateAdjustment,
)
from cdigen.service.descriptors import MessageError

# Registration.


def test_the_registration_has_the_bytes_that_containerd_accepted() -> None:
    sent = Session("cdigen", "10").start()
    assert sent.hex() == (
        "000000020000004c00000042000000010100"
        "0a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65"
        "120e5265676973746572506c7567696e"
        "1a0c0a0663646967656e12023130"
        "2080d88ee16f"
    )


def test_responses_have_the_bytes_that_containerd_accepted() -> None:
    session = Session("cdigen", "10")
    session.feed(request_frames(1, method="Configure"))
    assert session.subscribe(1, 8).hex() == "000000010000000e0000000400000001020012021008"
    session.feed(request_frames(5))
    expected = "000000010000002200000018000000050200" + "12160a1442120a106e76696469612e636f6d2f6770753d30"
    assert session.adjust(5, GPU).hex() == expected
    session = configured()
    session.feed(request_frames(5))
    assert session.refuse(5, "x").hex() == "0000000100000011000000070000000502000a050802120178"


@pytest.mark.parametrize("reply_first", [True, False])
def test_configure_may_come_before_or_after_the_response_to_the_registration(*, reply_first: bool) -> None:
    ends = Directly(Session("cdigen", "20"), gives_gpu)
    runtime = Runtime(ends)
    runtime.start(reply_first=reply_first)
    assert (runtime.plugin_name, runtime.plugin_index, runtime.events) == ("cdigen", "20", 0x0008)
    assert sorted(type(event).__name__ for event in ends.events) == ["Configure", "Registered"]


@pytest.mark.parametrize(
    ("nri", "timeout_ms", "nri_version"),
    [((0, 6), 0, ""), ((0, 8), 2000, ""), ((0, 12), 2000, "v0.12.0")],
)
def test_configure_has_the_data_of_the_runtime(
    nri: tuple[int, int], timeout_ms: int, nri_version: str
) -> None:
    _, ends = connected(nri=nri)
    (event,) = only(ends.events, Configure)
    info = event.configuration
    assert (info.runtime, info.version, info.nri_version) == ("containerd", "2.1.9+unknown", nri_version)
    assert info.request_timeout_ms == timeout_ms
    assert event.timeout_s == 2.0


def test_a_subscription_to_events_that_the_runtime_lacks_ends_the_connection() -> None:
    subscribes = on(Configure, lambda session, event: session.subscribe(event.call, 0x2008))
    ends = Directly(Session("cdigen", "20"), subscribes)
    with pytest.raises(Dropped, match="invalid plugin events: 0x2000"):
        Runtime(ends, nri=(0, 8)).start()
    assert ends.is_closed


def test_a_refused_registration_ends_the_session_with_the_runtimes_reason() -> None:
    ends = Directly(Session("no/name", "20"), gives_gpu)
    with pytest.raises(SessionError, match=r"refuses the plugin: invalid plugin name \(code 2\)"):
        Runtime(ends).refuse_registration("invalid plugin name")


def test_a_container_request_before_the_configure_request_is_refused() -> None:
    sent, events = Session("cdigen", "20").feed(request_frames(1))
    assert codes(sent) == [(1, 9)]
    assert [type(event) for event in events] == [InvalidCall]


def test_a_configuration_can_be_refused() -> None:
    session = Session("cdigen", "20")
    session.feed(request_frames(1, method="Configure"))
    assert codes(session.refuse(1, "a bad configuration")) == [(1, 2)]


# Synchronize.


def test_existing_pods_and_containers_are_reported() -> None:
    runtime, ends = connected()
    assert runtime.synchronize([pod()], [container(env=["NVIDIA_VISIBLE_DEVICES=all"])]) == 1
    (event,) = only(ends.events, Synchronize)
    assert [one.id for one in event.part.pods()] == ["p1"]
    assert [one.env for one in event.part.containers()] == [("NVIDIA_VISIBLE_DEVICES=all",)]
    assert not event.part.more


def test_an_invalid_container_is_left_out_of_the_state() -> None:
    request = CLASSES["SynchronizeRequest"]()
    for number in range(3):
        request.containers.append(container(id=f"c{number}").SerializeToString())
    sent, (event,) = configured().feed(
        request_frames(3, request.SerializeToString().replace(b"c1", b"\xff\xff"), "Synchronize")
    )
    assert codes(sent) == [(3, 0)]
    assert isinstance(event, Synchronize)
    assert [one.id for one in event.part.containers()] == ["c0", "c2"]


def test_a_large_state_has_several_parts_and_each_part_is_acknowledged() -> None:
    runtime, ends = connected()
    pods = [pod(id=f"p{number}", annotations={"filler": "x" * 1500}) for number in range(5000)]
    containers = [container(id=f"c{number}", env=["F=" + "x" * 1500]) for number in range(5000)]
    parts = runtime.synchronize(pods, containers)
    assert parts == 4
    received = [event.part for event in ends.events if isinstance(event, Synchronize)]
    assert [part.more for part in received] == [True, True, True, False]
    assert len({one.id for part in received for one in part.pods()}) == 5000
    assert len({one.id for part in received for one in part.containers()}) == 5000


# Containers.


@pytest.mark.parametrize("nri", [(0, 3), (0, 6), (0, 8), (0, 10), (0, 12)])
def test_a_container_gets_its_device(nri: tuple[int, int]) -> None:
    runtime, ends = connected(nri=nri)
    adjustment = runtime.create(pod(), container(env=["NVIDIA_VISIBLE_DEVICES=0"]))
    assert [device.name for device in adjustment.cdi_devices] == ["nvidia.com/gpu=0"]
    (event,) = only(ends.events, CreateContainer)
    assert event.container.env == ("NVIDIA_VISIBLE_DEVICES=0",)
    assert event.pod.namespace == "default"
    assert event.timeout_s == 2.0


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 4096])
def test_a_container_gets_its_device_for_any_split_of_the_bytes(step: int) -> None:
    runtime, _ = connected(step=step)
    runtime.synchronize([pod()], [container()])
    for number in range(3):
        assert runtime.create(pod(), container(id=f"c{number}", env=["F=" + "x" * 5000])).cdi_devices


def test_responses_may_be_sent_in_any_order() -> None:
    runtime, ends = connected(ignores_requests)
    request = CLASSES["CreateContainerRequest"]
    calls = [
        runtime.begin(
            "CreateContainer", request(pod=pod(), container=container(id=f"c{n}")).SerializeToString()
        )
        for n in range(100)
    ]
    waiting = [event for event in ends.events if isinstance(event, CreateContainer)]
    assert [event.call for event in waiting] == calls
    for event in reversed(waiting):
        ends.answer(ends.session.adjust(event.call, Adjustment(cdi_devices=(f"x/y={event.container.id}",))))
    for number, call in enumerate(calls):
        adjustment = runtime.created(runtime.finish(call))
        assert adjustment.cdi_devices[0].name == f"x/y=c{number}"


def test_a_refusal_affects_the_container_and_not_the_connection() -> None:
    reason = "no such device: nvidia.com/gpu=9"
    runtime, _ = connected(on(CreateContainer, lambda session, event: session.refuse(event.call, reason)))
    for _ in range(2):
        with pytest.raises(Rejected, match=r"no such device: nvidia\.com/gpu=9 \(code 2\)"):
            runtime.create(pod(), container())


@pytest.mark.parametrize("size", [0, 3000, 4069, 4070, 4071, 4072, 4073, 5000, 8192, 1_500_000, 4_194_000])
def test_responses_of_any_length_arrive(size: int) -> None:
    long = Adjustment(env={"F": "x" * size})
    runtime, _ = connected(on(CreateContainer, lambda session, event: session.adjust(event.call, long)))
    for _ in range(2):
        assert len(runtime.create(pod(), container()).env[0].value) == size


def test_a_long_response_in_one_frame_would_end_the_connection() -> None:
    runtime, ends = connected(ignores_requests)
    call = runtime.begin("CreateContainer", b"")
    data = ttrpc.encode(
        ttrpc.RESPONSE, call, write_response(write_created(Adjustment(env={"F": "x" * 5000})))
    )
    ends.answer(struct.pack(">II", PLUGIN, len(data)) + data)
    with pytest.raises(Dropped, match="ENOMEM: a frame of 5025 bytes where 4096 are read"):
        runtime.finish(call)


@pytest.mark.parametrize(
    "adjustment", [Adjustment(env={"F": "x" * (4 << 20)}), Adjustment(env={"F": "\ud800"})]
)
def test_a_response_that_does_not_fit_into_a_message_leaves_the_call_open(adjustment: Adjustment) -> None:
    session = configured()
    session.feed(request_frames(3))
    with pytest.raises(MessageError):
        session.adjust(3, adjustment)
    assert codes(session.refuse(3, "the response does not fit")) == [(3, 2)]


def test_a_call_gets_one_response() -> None:
    session = configured()
    session.feed(request_frames(3))
    assert codes(session.refuse(3, "too late")) == [(3, 2)]
    assert session.adjust(3, GPU) == b""
    assert session.refuse(3, "again") == b""
    assert session.validate(99) == b""


@pytest.mark.parametrize(
    ("timeout_ns", "timeout_s"), [(0, None), (1, 1e-9), (1_500_000_000, 1.5), (-5, 0.0), (-(2**63), 0.0)]
)
def test_the_event_has_the_remaining_time_of_the_request(timeout_ns: int, timeout_s: float | None) -> None:
    _, (event,) = configured().feed(request_frames(3, timeout_nano=timeout_ns))
    assert isinstance(event, CreateContainer)
    assert event.timeout_s == timeout_s


def test_a_validation_request_has_the_changes_and_names_of_all_plugins() -> None:
    runtime, ends = connected(nri=(0, 10))
    adjustment = runtime.create(pod(), container())
    assert runtime.validate(pod(), container(), adjustment, ["10-nvidia", "20-cdigen"]) == ""
    (event,) = only(ends.events, ValidateAdjustment)
    assert event.adjustment == GPU
    assert event.plugins == ("10-nvidia", "20-cdigen")


def test_an_adjustment_that_lacks_the_device_can_be_rejected() -> None:
    def reject(session: Session, event: ValidateAdjustment) -> bytes:
        return session.validate(event.call, "" if event.adjustment.cdi_devices else "no GPU")

    runtime, _ = connected(on(ValidateAdjustment, reject), nri=(0, 10))
    assert runtime.validate(pod(), container(), CLASSES["Adjustment"]()) == "no GPU"
