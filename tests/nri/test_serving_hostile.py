"""The real process receives invalid bytes: the connection fails cleanly, and the plugin continues."""

from __future__ import annotations

import os
import random
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import cdi_devices, gpu_request
from support.nri.runtime import PLUGIN, RUNTIME, Rejected, Runtime
from support.nri.serving import served
from support.waiting import PATIENCE_S

from cdigen.nri.wire.messages import CLASSES
from cdigen.nri.wire.session import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.nri.plugin import Plugin

    from cdigen.nri.decision.context import DecisionContext

BIG = 0xFFFFFFFF


@pytest.fixture
def runtime(shared: Plugin) -> Iterator[Runtime]:
    """Yield a registered runtime; afterwards the plugin must serve another runtime."""
    made = shared.host.runtime()
    yield made
    made.close()
    assert shared.process.poll() is None
    after = shared.host.runtime()
    assert cdi_devices(after.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    after.close()


def ended(runtime: Runtime) -> bool:
    """Read the remaining bytes of the plugin; return whether the plugin closes the connection."""
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


def request_bytes(stream: int = 9, visible: str = "0") -> bytes:
    """Return the frames of a CreateContainer request from the test runtime."""
    pod, container = gpu_request(visible)
    create = CLASSES["CreateContainerRequest"](pod=pod, container=container)
    request = CLASSES["Request"](
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
def test_invalid_bytes_end_the_connection(runtime: Runtime, data: bytes) -> None:
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


def test_empty_and_unexpected_frames_are_ignored(runtime: Runtime) -> None:
    for data in IGNORED:
        runtime.transport.send(data)
        assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"], data


@pytest.mark.parametrize(
    "method",
    ["CreateContainer", "ValidateContainerAdjustment", "Configure", "Synchronize", "StateChange", ""],
)
def test_an_invalid_request_gets_an_error_and_affects_no_other_request(runtime: Runtime, method: str) -> None:
    for data in (b"", b"\x00", b"\xff" * 30, b"\x0a\x02\xff\xff", b"\x22\x00", os.urandom(200)):
        with suppress(Rejected):
            runtime.call(method, data)
    assert not runtime.is_closed


def test_requests_with_a_repeated_or_even_stream_number_are_refused(runtime: Runtime) -> None:
    runtime.create(*gpu_request("0"))
    runtime.transport.send(request_bytes(stream=3) + request_bytes(stream=2) + request_bytes(stream=0))
    assert cdi_devices(runtime.create(*gpu_request("0"))) == ["nvidia.com/gpu=0"]
    # The three responses contain errors as Go writes them. No call waits for these responses.
    assert runtime.late == 3


def test_the_last_possible_stream_number_is_served(runtime: Runtime) -> None:
    runtime.transport.send(request_bytes(stream=BIG))
    with pytest.raises(Rejected, match="StreamID cannot be re-used"):
        runtime.create(*gpu_request("0"))


def test_a_request_that_arrives_byte_by_byte_is_served(runtime: Runtime) -> None:
    data = request_bytes(stream=201)
    for at in range(len(data)):
        runtime.transport.send(data[at : at + 1])
    runtime._waiting.add(201)
    assert cdi_devices(runtime.created(runtime.finish(201))) == ["nvidia.com/gpu=0"]
    runtime._stream = 201


def test_random_bytes_do_not_end_the_process(shared: Plugin) -> None:
    chance = random.Random(20261121)
    for _ in range(10):
        made = shared.host.runtime()
        with suppress(BrokenPipeError, ConnectionResetError):
            made.transport.send(chance.randbytes(chance.choice((1, 7, 8, 9, 100, 70_000))))
        made.close()
    assert shared.process.poll() is None


def test_random_bytes_instead_of_a_registration_end_only_the_connection(shared: Plugin) -> None:
    chance = random.Random(7)
    for _ in range(4):
        made = shared.host.unregistered_runtime()
        with suppress(BrokenPipeError, ConnectionResetError):
            made.transport.send(chance.randbytes(3000))
        assert ended(made)
        shared.host.runtime().close()
    assert shared.process.poll() is None


# The loop of the link without a process, which is fast enough for a test of every byte.


def test_a_connection_that_ends_at_any_byte_ends_without_an_error(context: DecisionContext) -> None:
    data = request_bytes(stream=5)
    for end in range(len(data) + 1):
        with served(context) as link:
            runtime = link.runtime()
            runtime.transport.send(data[:end])
            runtime.close()
            assert not isinstance(link.result(), SessionError), end


def test_a_request_may_be_split_at_any_byte(context: DecisionContext) -> None:
    with served(context) as link:
        runtime = link.runtime()
        for number, cut in enumerate(range(1, len(request_bytes()))):
            data = request_bytes(stream=5 + 2 * number)
            runtime.transport.send(data[:cut])
            runtime._stream = 5 + 2 * number
            runtime._waiting.add(runtime._stream)
            runtime.transport.send(data[cut:])
            assert cdi_devices(runtime.created(runtime.finish(runtime._stream))) == ["nvidia.com/gpu=0"]


def test_a_request_with_any_byte_flipped_gets_a_response_or_ends_the_connection(
    context: DecisionContext,
) -> None:
    good = request_bytes(stream=5)
    for at in range(len(good)):
        with served(context) as link:
            runtime = link.runtime()
            bad = bytearray(good)
            bad[at] ^= 0x81
            runtime.transport.send(bytes(bad))
            runtime.close()
            error = link.result()
            assert error is None or isinstance(error, SessionError | OSError), (at, error)
