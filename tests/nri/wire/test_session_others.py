"""A registration: calls that ask for nothing, calls that nobody knows, and nonsense."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.runtime import PLUGIN, RUNTIME, Rejected, container, pod
from support.nri.session import asked, codes, configured, connected

from cdigen.nri.wire import mux, ttrpc
from cdigen.nri.wire.messages import read_create, write_error
from cdigen.nri.wire.protobuf import message_class
from cdigen.nri.wire.session import (
    NOTIFICATIONS,
    Configure,
    ContainerRemoved,
    CreateContainer,
    InvalidCall,
    Registered,
    Session,
    SessionError,
)

# Other calls.


@pytest.mark.parametrize("nri", [(0, 8), (0, 12)])
@pytest.mark.parametrize(
    "method", [name for name in NOTIFICATIONS if name not in {"StateChange", "Shutdown"}]
)
def test_whatever_happens_is_acknowledged_in_both_ways_of_telling(method: str, nri: tuple[int, int]) -> None:
    runtime, ends = connected(nri=nri)
    before = list(ends.events)
    taken = runtime.tell(method, pod="p1", container="c1")
    assert taken in (method, "StateChange")
    assert (taken == method) == (
        nri >= (0, 12) or method in {"UpdateContainer", "StopContainer", "UpdatePodSandbox"}
    )
    # The only one that is read as well.
    added = [ContainerRemoved(container="c1")] if method == "RemoveContainer" else []
    assert ends.events == [*before, *added]


@pytest.mark.parametrize("payload", [b"", b"\x08\x63", b"\xff"])
@pytest.mark.parametrize("method", ["StateChange", "Shutdown"])
def test_a_state_change_and_a_shutdown_are_acknowledged_unread(method: str, payload: bytes) -> None:
    runtime, ends = connected()
    before = list(ends.events)
    assert runtime.call(method, payload) == b""
    assert ends.events == before


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("nri.pkg.api.v1alpha1.Plugin", "SuspendContainer"),
        ("nri.pkg.api.v1alpha1.Plugin", "__init__"),
        ("nri.pkg.api.v1alpha1.Plugin", ""),
        ("nri.pkg.api.v2.Plugin", "CreateContainer"),
        ("", "CreateContainer"),
    ],
)
def test_what_is_not_known_is_answered_with_code_12(service: str, method: str) -> None:
    runtime, ends = connected()
    with pytest.raises(Rejected) as caught:
        runtime.finish(runtime.begin(method, b"", service=service))
    assert caught.value.code == 12
    assert [type(event) for event in ends.events[2:]] == [InvalidCall]
    assert runtime.create(pod(), container()).cdi_devices


# Bad input.


@pytest.mark.parametrize(
    "method", ["Configure", "Synchronize", "CreateContainer", "ValidateContainerAdjustment"]
)
def test_a_request_that_cannot_be_read_fails_alone(method: str) -> None:
    sent, (event,) = configured().feed(asked(3, b"\x0a\xff", method))
    assert codes(sent) == [(3, 3)]
    assert isinstance(event, InvalidCall)
    assert (event.method, event.code) == (method, 3)


def test_an_envelope_that_cannot_be_read_fails_alone() -> None:
    session = configured()
    sent, _ = session.feed(mux.frames(PLUGIN, ttrpc.encode(ttrpc.REQUEST, 3, b"\x0a\x02\xff\xff")))
    assert codes(sent) == [(3, 3)]
    assert session.feed(asked(5))[1]


def test_a_request_that_is_too_long_fails_alone() -> None:
    session = configured()
    data = struct.pack(">IIBB", 5 << 20, 3, ttrpc.REQUEST, 0) + bytes(5 << 20)
    sent = b""
    for at in range(0, len(data), mux.MAX_PAYLOAD):
        piece = data[at : at + mux.MAX_PAYLOAD]
        sent += session.feed(struct.pack(">II", PLUGIN, len(piece)) + piece)[0]
    assert codes(sent) == [(3, 8)]
    _, (event,) = session.feed(asked(5))
    assert isinstance(event, CreateContainer)


@pytest.mark.parametrize("stream", [0, 2, 4, 1])
def test_streams_that_are_even_or_not_greater_are_refused(stream: int) -> None:
    session = configured()
    sent, events = session.feed(asked(stream))
    assert codes(sent) == [(stream, 3)]
    assert [type(event) for event in events] == [InvalidCall]
    assert isinstance(session.feed(asked(3))[1][0], CreateContainer)


@pytest.mark.parametrize("connection", [PLUGIN, RUNTIME])
def test_messages_of_other_types_are_ignored(connection: int) -> None:
    session = configured()
    for kind in (0, 2, 3, 255):
        data = ttrpc.encode(kind, 3, b"\xff")
        assert session.feed(mux.frames(connection, data)) == (b"", [])


def test_an_answer_on_another_stream_is_no_registration() -> None:
    session = Session("cdigen", "20")
    refusal = write_error(2, "late")
    assert session.feed(mux.frames(RUNTIME, ttrpc.encode(ttrpc.RESPONSE, 3, refusal))) == (b"", [])
    _, events = session.feed(mux.frames(RUNTIME, ttrpc.encode(ttrpc.RESPONSE, 1, b"")))
    assert events == [Registered()]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", PLUGIN, 0xFFFFFFFF),
        mux.frames(PLUGIN, struct.pack(">IIBB", 0xFFFFFFFF, 3, 1, 0)),
        mux.frames(RUNTIME, struct.pack(">IIBB", 0xFFFFFFFF, 1, 2, 0)),
        mux.frames(RUNTIME, ttrpc.encode(ttrpc.RESPONSE, 1, b"\xff")),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_bytes_that_are_not_nri_end_the_session(data: bytes) -> None:
    with pytest.raises(SessionError, match=r"^the runtime's"):
        configured().feed(data)


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_bring_events_or_the_end_of_the_session(pieces: list[bytes]) -> None:
    session = configured()
    with suppress(SessionError):
        for piece in pieces:
            session.feed(piece)


@given(st.binary(max_size=120), st.sampled_from(["CreateContainer", "Configure", "Synchronize"]))
def test_any_payload_is_served_or_refused(payload: bytes, method: str) -> None:
    sent, (event,) = configured().feed(asked(3, payload, method))
    assert bool(sent) != isinstance(event, (CreateContainer, Configure))


@given(st.data())
def test_a_stream_with_a_flipped_byte_is_served_or_ends(data: st.DataObject) -> None:
    payload = message_class("CreateContainerRequest")(pod=pod(), container=container()).SerializeToString()
    good = bytearray(asked(3, payload) + asked(5, payload))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    session = configured()
    try:
        session.feed(bytes(good))
    except SessionError:
        return
    assert session.refuse(7, "nobody asked") == b""


def test_a_session_reads_what_it_is_asked_as_messages_does() -> None:
    payload = message_class("CreateContainerRequest")(pod=pod(), container=container()).SerializeToString()
    _, (event,) = configured().feed(asked(3, payload))
    assert isinstance(event, CreateContainer)
    assert (event.pod, event.container) == read_create(payload)
