"""Bytes that are no NRI, sent to the real process: the connection fails cleanly, and the plugin lives."""

from __future__ import annotations

import os
import random
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import asks, given
from support.nri.runtime import PLUGIN, RUNTIME, Rejected, Runtime
from support.nri.serving import served
from support.waiting import PATIENCE_S

from cdigen.nri.wire.protobuf import message_class
from cdigen.nri.wire.session import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.nri.plugin import Plugin

    from cdigen.nri.decision.context import DecisionContext

BIG = 0xFFFFFFFF


@pytest.fixture
def runtime(shared: Plugin) -> Iterator[Runtime]:
    """Give a runtime that is registered; afterwards another one must be served."""
    made = shared.host.runtime()
    yield made
    made.close()
    assert shared.process.poll() is None
    after = shared.host.runtime()
    assert given(after.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    after.close()


def ended(runtime: Runtime) -> bool:
    """Return whether the plugin closes the connection, after whatever it still sends."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if not runtime.transport.receive(PATIENCE_S):
            return True
    return False


def frame(connection: int, data: bytes, length: int | None = None) -> bytes:
    return struct.pack(">II", connection, len(data) if length is None else length) + data


def message(
    data: bytes, *, length: int | None = None, stream: int = 9, kind: int = 1, flags: int = 0
) -> bytes:
    return struct.pack(">IIBB", len(data) if length is None else length, stream, kind, flags) + data


def question(stream: int = 9, visible: str = "0") -> bytes:
    """Return the frames of a CreateContainer, the test runtime's own."""
    pod, container = asks(visible)
    create = message_class("CreateContainerRequest")(pod=pod, container=container)
    request = message_class("Request")(
        service="nri.pkg.api.v1alpha1.Plugin", method="CreateContainer", payload=create.SerializeToString()
    )
    return frame(PLUGIN, message(request.SerializeToString(), stream=stream))


@pytest.mark.parametrize(
    "data",
    [
        frame(PLUGIN, b"", BIG),
        frame(RUNTIME, b"", BIG),
        frame(0, b"", BIG),
        frame(BIG, b"x", BIG),
        frame(PLUGIN, b"", (4 << 20) + 11),
        frame(PLUGIN, message(b"", length=BIG)),
        frame(RUNTIME, message(b"", length=BIG, kind=2)),
        frame(PLUGIN, message(b"", length=(1 << 24) + 1)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff" * 4096,
    ],
)
def test_bytes_that_are_out_of_step_end_the_connection(runtime: Runtime, data: bytes) -> None:
    runtime.transport.send(data)
    assert ended(runtime)


IGNORED = (
    b"",
    frame(0, b""),
    frame(PLUGIN, b""),
    frame(RUNTIME, b""),
    frame(3, b"dropped" * 1000),
    frame(BIG, b"dropped"),
    frame(PLUGIN, message(b"", kind=0)),
    frame(PLUGIN, message(b"", kind=2)),
    frame(PLUGIN, message(b"x", kind=3, flags=255)),
    frame(RUNTIME, message(b"x", kind=1, stream=BIG)),
    frame(RUNTIME, message(b"", kind=2, stream=2)),
    frame(RUNTIME, message(b"\xff\xff", kind=2, stream=77)),
)


def test_what_is_for_nobody_is_passed_over(runtime: Runtime) -> None:
    for data in IGNORED:
        runtime.transport.send(data)
        assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"], data


@pytest.mark.parametrize(
    "method",
    ["CreateContainer", "ValidateContainerAdjustment", "Configure", "Synchronize", "StateChange", ""],
)
def test_a_request_that_is_none_is_answered_and_nothing_else_is_harmed(runtime: Runtime, method: str) -> None:
    for data in (b"", b"\x00", b"\xff" * 30, b"\x0a\x02\xff\xff", b"\x22\x00", os.urandom(200)):
        with suppress(Rejected):
            runtime.call(method, data)
    assert not runtime.is_closed


def test_requests_of_the_same_stream_or_an_even_one_are_refused(runtime: Runtime) -> None:
    runtime.create(*asks("0"))
    runtime.transport.send(question(stream=3) + question(stream=2) + question(stream=0))
    assert given(runtime.create(*asks("0"))) == ["nvidia.com/gpu=0"]
    # They stood in Go's words, and nobody waited for them.
    assert runtime.late == 3


def test_the_last_stream_that_there_is_is_served_and_none_after_it(runtime: Runtime) -> None:
    runtime.transport.send(question(stream=BIG))
    with pytest.raises(Rejected, match="StreamID cannot be re-used"):
        runtime.create(*asks("0"))


def test_a_question_that_comes_byte_by_byte_is_answered(runtime: Runtime) -> None:
    data = question(stream=201)
    for at in range(len(data)):
        runtime.transport.send(data[at : at + 1])
    runtime._waiting.add(201)
    assert given(runtime.created(runtime.finish(201))) == ["nvidia.com/gpu=0"]
    runtime._stream = 201


def test_random_bytes_end_the_connection_or_wait_for_more(shared: Plugin) -> None:
    chance = random.Random(20261121)
    for _ in range(10):
        made = shared.host.runtime()
        with suppress(BrokenPipeError, ConnectionResetError):
            made.transport.send(chance.randbytes(chance.choice((1, 7, 8, 9, 100, 70_000))))
        made.close()
    assert shared.process.poll() is None


def test_random_bytes_instead_of_a_registration_harm_nothing(shared: Plugin) -> None:
    chance = random.Random(7)
    for _ in range(4):
        made = shared.host.begun()
        with suppress(BrokenPipeError, ConnectionResetError):
            made.transport.send(chance.randbytes(3000))
        assert ended(made)
        shared.host.runtime().close()
    assert shared.process.poll() is None


# The same loop without its process: what takes long there is done here for every byte.


def test_a_connection_that_ends_at_any_byte_ends_without_an_error(known: DecisionContext) -> None:
    data = question(stream=5)
    for end in range(len(data) + 1):
        with served(known) as link:
            runtime = link.runtime()
            runtime.transport.send(data[:end])
            runtime.close()
            assert not isinstance(link.result(), SessionError), end


def test_a_question_may_be_split_at_any_byte(known: DecisionContext) -> None:
    with served(known) as link:
        runtime = link.runtime()
        for number, cut in enumerate(range(1, len(question()))):
            data = question(stream=5 + 2 * number)
            runtime.transport.send(data[:cut])
            runtime._stream = 5 + 2 * number
            runtime._waiting.add(runtime._stream)
            runtime.transport.send(data[cut:])
            assert given(runtime.created(runtime.finish(runtime._stream))) == ["nvidia.com/gpu=0"]


def test_a_question_with_any_byte_flipped_is_answered_or_ends_the_connection(
    known: DecisionContext,
) -> None:
    good = question(stream=5)
    for at in range(len(good)):
        with served(known) as link:
            runtime = link.runtime()
            bad = bytearray(good)
            bad[at] ^= 0x81
            runtime.transport.send(bytes(bad))
            runtime.close()
            error = link.result()
            assert error is None or isinstance(error, SessionError | OSError), (at, error)
