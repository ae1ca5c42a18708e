"""What is asked of the kubelet: ``register``, ``pods``, ``allocatable``. Each has a deadline.

A connection is made for each question, since the kubelet behind a path may be another one each time. All
raise ``KubeletError``, whatever the other side does.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from errno import EACCES

import grpc
import grpc.aio

from cdigen.frontend.descriptors import MessageError
from cdigen.host.confinement import refusal
from cdigen.host.root import shown
from cdigen.kubelet.wire import messages
from cdigen.kubelet.wire.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any, TypeVar

    from cdigen.kubelet.pods import PodList

    T = TypeVar("T")

REGISTER = f"/{messages.VERSION}.Registration/Register"
LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
# The kubelet connects to us while it answers, for at most 10 s (pkg/kubelet/cm/devicemanager/plugin/v1beta1,
# client.go: dial).
REGISTER_S = 12.0
ASK_S = 1.5
# A list of 1 MiB takes 0.1 s; by protobuf written in Python, 2 s.
READ_S = 5.0
# What the kubelet's own clients of the pod resources take (pkg/kubelet/apis/podresources/constants.go).
MAX_PODS = 16 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_PODS),
    # A proxy of the environment is none of the kubelet's.
    ("grpc.enable_http_proxy", 0),
    # Another question is another connection: what a dead kubelet has left is not shared.
    ("grpc.use_local_subchannel_pool", 1),
)


# What gRPC says of a connection that the system refused: so SELinux refuses it to a container.
_DENIED = os.strerror(EACCES)


class KubeletError(Exception):
    """The kubelet has not answered, and why in one line.

    ``was_reached``: it may have seen the question. ``is_unknown``: it does not have this method. ``is_late``:
    it did not answer in time.
    """

    def __init__(
        self, message: str, *, was_reached: bool, is_unknown: bool = False, is_late: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.was_reached = was_reached
        self.is_unknown = is_unknown
        self.is_late = is_late


async def register(socket: str, resource: str, endpoint: str, *, timeout_s: float = REGISTER_S) -> None:
    """Tell the kubelet at SOCKET that RESOURCE is served at the socket ENDPOINT of the same folder."""
    await _ask(socket, REGISTER, messages.write_registration(resource, endpoint), timeout_s)


async def pods(socket: str, *, timeout_s: float = ASK_S) -> PodList:
    """Return which containers have which devices, by the pod resources API at SOCKET."""
    data = await _ask(socket, LIST, messages.EMPTY, timeout_s)
    # In a thread: the kubelet's own requests are answered meanwhile.
    return await asyncio.to_thread(_read, lambda: messages.read_pods(data, time.monotonic() + READ_S))


async def allocatable(socket: str, *, timeout_s: float = ASK_S) -> dict[str, frozenset[str]]:
    """Return the ids of healthy devices that the kubelet has, by resource; those before 1.21 do not tell."""
    data = await _ask(socket, ALLOCATABLE, messages.EMPTY, timeout_s)
    return _read(lambda: messages.read_allocatable(data))


def _read(reading: Callable[[], T]) -> T:
    try:
        return reading()
    except MessageError as error:
        raise KubeletError(f"the kubelet's answer: {error}", was_reached=True) from None


async def _ask(socket: str, method: str, data: bytes, timeout_s: float) -> bytes:
    async with _channel(socket) as channel:
        try:
            answer: bytes = await channel.unary_unary(method)(data, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            code = error.code()
            text = f"{code.name}: {' '.join((error.details() or '').split())[:500]}"
            if _DENIED in text and "failed to connect" in text.lower():
                text = f"cannot connect to {shown(socket)}: {refusal(OSError(EACCES, _DENIED))}"
                raise KubeletError(text, was_reached=False) from None
            raise KubeletError(
                text,
                # What breaks off in the middle of a call has the same code, and other words.
                was_reached="failed to connect" not in text.lower(),
                is_unknown=code is grpc.StatusCode.UNIMPLEMENTED,
                is_late=code is grpc.StatusCode.DEADLINE_EXCEEDED,
            ) from None
        return answer


@asynccontextmanager
async def _channel(socket: str) -> AsyncIterator[Any]:
    channel = grpc.aio.insecure_channel(address(socket), options=_OPTIONS)
    try:
        yield channel
    finally:
        await channel.close()
