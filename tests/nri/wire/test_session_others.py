"""The session of a plugin with a runtime: notifications, unknown calls, and invalid input."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nri.runtime import PLUGIN, RUNTIME, Rejected, container, pod
from support.nri.session import codes, configured, connected, request_frames

from cdigen.nri.wire import mux, ttrpc
from cdigen.nri.wire.messages import CLASSES, read_create, write_error
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
def test_notifications_are_acknowledged_as_their_own_method_and_as_state_change(
    method: str, nri: tuple[int, int]
) -> None:
    runtime, ends = connected(nri=nri)
    before = list(ends.events)
    method_used = runtime.notify(method, pod="p1", container="c1")
    assert method_used in (method, "StateChange")
    assert (method_used == method) == (
        nri >= (0, 12) or method in {"UpdateContainer", "StopContainer", "UpdatePodSandbox"}
    )
    # RemoveContainer is the only notification with a decoded payload.
    added = [ContainerRemoved(container="c1")] if method == "RemoveContainer" else []
    assert ends.events == [*before, *added]


@pytest.mark.parametrize("payload", [b"", b"\x08\x63", b"\xff"])
@pytest.mark.parametrize("method", ["StateChange", "Shutdown"])
def test_a_state_change_and_a_shutdown_are_acknowledged_without_decoding(method: str, payload: bytes) -> None:
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
def test_an_unknown_method_gets_the_error_code_12(service: str, method: str) -> None:
    runtime, ends = connected()
    with pytest.raises(Rejected) as caught:
        runtime.finish(runtime.begin(method, b"", service=service))
    assert caught.value.code == 12
    assert [type(event) for event in ends.events[2:]] == [InvalidCall]
    assert runtime.create(pod(), container()).cdi_devices


# Invalid input.


@pytest.mark.parametrize(
    "method", ["Configure", "Synchronize", "CreateContainer", "ValidateContainerAdjustment"]
)
def test_an_invalid_request_gets_the_error_code_3(method: str) -> None:
    sent, (event,) = configured().feed(request_frames(3, b"\x0a\xff", method))
    assert codes(sent) == [(3, 3)]
    assert isinstance(event, InvalidCall)
    assert (event.method, event.code) == (method, 3)


def test_a_request_with_an_invalid_envelope_fails_and_the_next_request_is_read() -> None:
    session = configured()
    sent, _ = session.feed(mux.frames(PLUGIN, ttrpc.encode(ttrpc.REQUEST, 3, b"\x0a\x02\xff\xff")))
    assert codes(sent) == [(3, 3)]
    assert session.feed(request_frames(5))[1]


def test_a_request_that_is_too_long_fails_and_the_next_request_is_read() -> None:
    session = configured()
    data = struct.pack(">IIBB", 5 << 20, 3, ttrpc.REQUEST, 0) + bytes(5 << 20)
    sent = b""
    for at in range(0, len(data), mux.MAX_PAYLOAD):
        piece = data[at : at + mux.MAX_PAYLOAD]
        sent += session.feed(struct.pack(">II", PLUGIN, len(piece)) + piece)[0]
    assert codes(sent) == [(3, 8)]
    _, (event,) = session.feed(request_frames(5))
    assert isinstance(event, CreateContainer)


@pytest.mark.parametrize("stream", [0, 2, 4, 1])
def test_even_and_repeated_stream_numbers_are_refused(stream: int) -> None:
    session = configured()
    sent, events = session.feed(request_frames(stream))
    assert codes(sent) == [(stream, 3)]
    assert [type(event) for event in events] == [InvalidCall]
    assert isinstance(session.feed(request_frames(3))[1][0], CreateContainer)


@pytest.mark.parametrize("connection", [PLUGIN, RUNTIME])
def test_messages_of_other_types_are_ignored(connection: int) -> None:
    session = configured()
    for kind in (0, 2, 3, 255):
        data = ttrpc.encode(kind, 3, b"\xff")
        assert session.feed(mux.frames(connection, data)) == (b"", [])


def test_a_response_on_another_stream_is_no_registration() -> None:
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
    with pytest.raises(
        SessionError, match=r"^the (bytes from the runtime are|runtime's response to .* is) invalid: "
    ):
        configured().feed(data)


@given(st.lists(st.binary(max_size=64)))
def test_any_bytes_result_in_events_or_end_the_session(pieces: list[bytes]) -> None:
    session = configured()
    with suppress(SessionError):
        for piece in pieces:
            session.feed(piece)


@given(st.binary(max_size=120), st.sampled_from(["CreateContainer", "Configure", "Synchronize"]))
def test_any_payload_is_served_or_refused(payload: bytes, method: str) -> None:
    sent, (event,) = configured().feed(request_frames(3, payload, method))
    assert bool(sent) != isinstance(event, (CreateContainer, Configure))


@given(st.data())
def test_a_stream_with_a_flipped_byte_is_read_or_ends_the_session(data: st.DataObject) -> None:
    payload = CLASSES["CreateContainerRequest"](pod=pod(), container=container()).SerializeToString()
    good = bytearray(request_frames(3, payload) + request_frames(5, payload))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    session = configured()
    try:
        session.feed(bytes(good))
    except SessionError:
        return
    # The number of no request: it differs from 3 and from 5 in two bytes, and one byte was changed.
    assert session.refuse(0x0107, "no such call") == b""


def test_a_session_reads_requests_like_the_messages_module() -> None:
    payload = CLASSES["CreateContainerRequest"](pod=pod(), container=container()).SerializeToString()
    _, (event,) = configured().feed(request_frames(3, payload))
    assert isinstance(event, CreateContainer)
    assert (event.pod, event.container) == read_create(payload)
