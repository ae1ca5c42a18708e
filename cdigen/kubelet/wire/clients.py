"""The requests to the kubelet: ``register``, ``pods`` and ``allocatable``.

Each request has a deadline and its own connection, because a new kubelet may serve the same path at any time.
All functions raise ``KubeletError`` for any error.
"""

from __future__ import annotations

import asyncio
import os
import time
from errno import EACCES

import grpc
import grpc.aio

from cdigen.host.confinement import refusal
from cdigen.host.root import shown
from cdigen.kubelet.wire import address, messages
from cdigen.service.descriptors import MessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from cdigen.kubelet.pods import PodList

    T = TypeVar("T")

REGISTER = f"/{messages.VERSION}.Registration/Register"
LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
# Before the kubelet answers, the kubelet connects to the plugin, for at most 10 s
# (pkg/kubelet/cm/devicemanager/plugin/v1beta1, client.go: dial).
REGISTER_S = 12.0
QUERY_S = 1.5
# The limit for the decoding of a list. For 1 MiB, this takes 0.1 s, or 2 s if protobuf is in pure Python.
READ_S = 5.0
# The limit of the kubelet's own client of the pod resources API (pkg/kubelet/apis/podresources/constants.go).
MAX_PODS = 16 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_PODS),
    # The proxies in the environment variables are not for the kubelet.
    ("grpc.enable_http_proxy", 0),
    # Each request has its own connection, so that no request uses a connection to a dead kubelet.
    ("grpc.use_local_subchannel_pool", 1),
)


# The text in gRPC's error if the system (for example SELinux) refuses a connection.
_DENIED = os.strerror(EACCES)


class KubeletError(Exception):
    """A request to the kubelet failed; the message is one line.

    If ``was_reached`` is set, the kubelet may have received the request. If ``is_late`` is set, the kubelet
    did not answer in time.
    """

    def __init__(self, message: str, *, was_reached: bool, is_late: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.was_reached = was_reached
        self.is_late = is_late


async def register(socket: str, resource: str, endpoint: str) -> None:
    """Register RESOURCE with the kubelet at SOCKET.

    ENDPOINT is the name of the plugin's socket in the same folder.
    """
    await _call(socket, REGISTER, messages.write_registration(resource, endpoint), REGISTER_S)


async def pods(socket: str, *, timeout_s: float = QUERY_S) -> PodList:
    """Return the devices of all containers, from the pod resources API at SOCKET."""
    data = await _call(socket, LIST, messages.EMPTY, timeout_s)
    # Decode the list in a thread, so that the loop can answer the kubelet's requests.
    return await asyncio.to_thread(_read, lambda: messages.read_pods(data, time.monotonic() + READ_S))


async def allocatable(socket: str) -> dict[str, frozenset[str]]:
    """Return the ids of the kubelet's healthy devices by resource; kubelets before 1.21 lack this method."""
    data = await _call(socket, ALLOCATABLE, messages.EMPTY, QUERY_S)
    return _read(lambda: messages.read_allocatable(data))


def _read(reading: Callable[[], T]) -> T:
    try:
        return reading()
    except MessageError as error:
        raise KubeletError(f"invalid response of the kubelet: {error}", was_reached=True) from None


async def _call(socket: str, method: str, data: bytes, timeout_s: float) -> bytes:
    async with grpc.aio.insecure_channel(address(socket), options=_OPTIONS) as channel:
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
                # A failed connection and an error during a call have the same code but different texts.
                was_reached="failed to connect" not in text.lower(),
                is_late=code is grpc.StatusCode.DEADLINE_EXCEEDED,
            ) from None
        return answer
