"""``ResourceServer`` serves one resource to the kubelet, on its own socket.

All servers of the process run in one asyncio loop. Only ``start`` and ``stop`` may block the loop, because
they make and remove the socket's file.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import grpc
import grpc.aio

from cdigen.kubelet.resources.model import MAX_MESSAGE
from cdigen.kubelet.wire import address, messages
from cdigen.service.descriptors import MessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol

    class Allocator(Protocol):
        """Answers the kubelet's requests for a resource; runs in the loop and must not block the loop."""

        async def preferred_allocation(
            self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
        ) -> tuple[str, ...]:
            """Return the COUNT best ids of AVAILABLE, including MUST_INCLUDE."""

        async def allocate(self, ids: tuple[str, ...]) -> Any:
            """Return the response (``messages.write_allocated``) for a container with IDS.

            Raise ``AllocateError`` if the request is refused.
            """


SERVICE = f"{messages.VERSION}.DevicePlugin"
# The limit for open streams. The kubelet opens one stream. A stream needs few resources, and ends together
# with its connection.
_MAX_STREAMS = 64
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # No other process may listen at the same address. gRPC applies this option only to TCP.
    ("grpc.so_reuseport", 0),
    # Clients may send pings often. By default, the third ping within five minutes ends the connection (grpc,
    # doc/keepalive.md).
    ("grpc.http2.max_ping_strikes", 0),
)


class AllocateError(Exception):
    """The refusal of a request; the text is one line for the pod's events."""


class ResourceServer:
    """Serves the list DEVICES (``messages.write_devices``) at the socket PATH from ``start`` to ``stop``.

    ON_STREAM is called for each ListAndWatch stream, with True at the start and with False at the end.
    ON_FAULT is called with one line about an exception in a request. The kubelet gets the same line.
    """

    def __init__(
        self,
        path: str,
        devices: bytes,
        allocator: Allocator,
        *,
        on_stream: Callable[[bool], object],
        on_fault: Callable[[str], object],
    ) -> None:
        self.path = path
        self._devices = devices
        self._changed = asyncio.Event()
        self._allocator = allocator
        self._on_stream = on_stream
        self._on_fault = on_fault
        self._streams = 0
        self._server: Any = None

    async def start(self) -> None:
        """Listen at the socket, or raise OSError if the socket cannot be made.

        The umask of the process permits only root to connect.
        """
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._methods()),))
        try:
            # If the bind fails, grpcio returns 0. Newer releases raise an exception instead.
            if not server.add_insecure_port(address(self.path)):
                raise OSError(f"{self.path}: cannot make a socket")
        except RuntimeError as error:
            raise OSError(f"{self.path}: cannot make a socket: {_first_line(error)}") from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop listening, end all streams and calls, and remove the socket; a second call is permitted."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
        with suppress(OSError):
            os.unlink(self.path)

    def update(self, devices: bytes, allocator: Allocator) -> None:
        """Use ALLOCATOR from now on, and send DEVICES to all streams at once if the list has changed."""
        self._allocator = allocator
        if devices != self._devices:
            self._devices = devices
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _methods(self) -> dict[str, Any]:
        # Without serializers, grpcio passes bytes. So this class can reject requests that are not decodable.
        unary = grpc.unary_unary_rpc_method_handler
        return {
            "GetDevicePluginOptions": unary(self._answering(lambda _: messages.write_options())),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
            "GetPreferredAllocation": unary(self._answering(self._prefer)),
            "Allocate": unary(self._answering(self._allocate)),
            "PreStartContainer": unary(self._answering(lambda _: messages.EMPTY)),
        }

    async def _list_and_watch(self, _: bytes, context: Any) -> None:
        if self._streams >= _MAX_STREAMS:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._streams} streams are open already"
            )
        self._streams += 1
        self._on_stream(True)  # noqa: FBT003 - the callback has this parameter
        try:
            while True:
                # Read the event before the write, so that a change during the write causes a second write.
                # The second write sends the last of several changes.
                changed = self._changed
                await context.write(self._devices)
                await changed.wait()
        finally:
            self._streams -= 1
            self._on_stream(False)  # noqa: FBT003 - the callback has this parameter

    async def _prefer(self, data: bytes) -> bytes:
        requests = messages.read_preferred_requests(data)
        return messages.write_preferred(
            [await self._allocator.preferred_allocation(*request) for request in requests]
        )

    async def _allocate(self, data: bytes) -> bytes:
        requests = messages.read_allocate(data)
        return messages.write_allocated([await self._allocator.allocate(ids) for ids in requests])

    def _answering(
        self, answer: Callable[[bytes], bytes | Awaitable[bytes]]
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def call(data: bytes, context: Any) -> bytes:
            try:
                found = answer(data)
                return found if isinstance(found, bytes) else await found
            except AllocateError as refusal:
                code, text = grpc.StatusCode.FAILED_PRECONDITION, f"cdigen: {refusal}"
            except MessageError as error:
                code, text = grpc.StatusCode.INVALID_ARGUMENT, f"cdigen: {error}"
            except Exception as error:  # noqa: BLE001 - an error of one container must not affect others
                code, text = grpc.StatusCode.INTERNAL, f"cdigen: {type(error).__name__}: {_first_line(error)}"
                self._on_fault(text)
            await context.abort(code, text)
            raise AssertionError

        return call


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
