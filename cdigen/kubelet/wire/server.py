"""``ResourceServer``: serves one resource to the kubelet, on a socket of its own.

All servers of the process run in one asyncio loop; nothing but ``start`` and ``stop`` waits there.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import grpc
import grpc.aio

from cdigen.frontend.descriptors import MessageError
from cdigen.kubelet.wire import messages
from cdigen.kubelet.wire.addresses import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol

    class Answers(Protocol):
        """Who answers for the resource; called in the loop, so nothing here may block it."""

        def prefer(
            self, available: tuple[str, ...], must_include: tuple[str, ...], count: int
        ) -> tuple[str, ...]:
            """Return the COUNT best ids of AVAILABLE, MUST_INCLUDE among them."""

        async def allocate(self, ids: tuple[str, ...]) -> Any:
            """Return the answer (``messages.write_allocated``) for a container's IDS; raises ``Refused``."""


SERVICE = f"{messages.VERSION}.DevicePlugin"
# The kubelet opens one; a stream costs little, and ends with its connection.
_MAX_STREAMS = 64
_OPTIONS = (
    ("grpc.max_receive_message_length", messages.MAX_MESSAGE),
    ("grpc.max_send_message_length", messages.MAX_MESSAGE),
    # Another plugin cannot listen where we do (it is for TCP, and off costs nothing).
    ("grpc.so_reuseport", 0),
    # A client that asks often whether we are still there is answered; by default the third question within
    # five minutes ends the connection (grpc, doc/keepalive.md).
    ("grpc.http2.max_ping_strikes", 0),
)


class Refused(Exception):
    """A container does not get what was asked for; the text is for the pod's events, in one line."""


class ResourceServer:
    """Serves the list DEVICES (``messages.write_devices``) at the socket PATH from ``start`` to ``stop``.

    ON_STREAM is told of each ListAndWatch: True when it is asked for, False when it has ended. ON_FAULT gets
    one line about an exception in an answer, which the kubelet is told as well.
    """

    def __init__(
        self,
        path: str,
        devices: bytes,
        answers: Answers,
        *,
        on_stream: Callable[[bool], object],
        on_fault: Callable[[str], object],
    ) -> None:
        self.path = path
        self._devices = devices
        self._changed = asyncio.Event()
        self._answers = answers
        self._on_stream = on_stream
        self._on_fault = on_fault
        self._streams = 0
        self._server: Any = None

    async def start(self) -> None:
        """Listen; by the umask root alone may connect and ask. OSError: the socket cannot be made there."""
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._methods()),))
        try:
            # 0, or in newer releases of grpcio an exception, where it could not be bound.
            if not server.add_insecure_port(address(self.path)):
                raise OSError(f"no socket can be made at {self.path}")
        except RuntimeError as error:
            raise OSError(f"no socket can be made at {self.path}: {_first_line(error)}") from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop listening, end all streams and calls, and remove the socket; may be called again."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
        with suppress(OSError):
            os.unlink(self.path)

    def show(self, devices: bytes, answers: Answers) -> None:
        """Send DEVICES, the whole list, to all who watch, at once; ANSWERS answers from now on."""
        self._answers = answers
        if devices != self._devices:
            self._devices = devices
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    def _methods(self) -> dict[str, Any]:
        # Without serializers bytes go in and out: what cannot be read is answered by us.
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
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{self._streams} watch the list already")
        self._streams += 1
        self._on_stream(True)  # noqa: FBT003 - its own signature
        try:
            while True:
                # Taken before writing: a change meanwhile is sent next, and of several the last.
                changed = self._changed
                await context.write(self._devices)
                await changed.wait()
        finally:
            self._streams -= 1
            self._on_stream(False)  # noqa: FBT003 - its own signature

    def _prefer(self, data: bytes) -> bytes:
        questions = messages.read_preferences(data)
        return messages.write_preferred(
            self._answers.prefer(each.available, each.must_include, each.count) for each in questions
        )

    async def _allocate(self, data: bytes) -> bytes:
        requests = messages.read_allocate(data)
        return messages.write_allocated([await self._answers.allocate(ids) for ids in requests])

    def _answering(
        self, answer: Callable[[bytes], bytes | Awaitable[bytes]]
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def call(data: bytes, context: Any) -> bytes:
            try:
                found = answer(data)
                return found if isinstance(found, bytes) else await found
            except Refused as refusal:
                code, text = grpc.StatusCode.FAILED_PRECONDITION, f"cdigen: {refusal}"
            except MessageError as error:
                code, text = grpc.StatusCode.INVALID_ARGUMENT, f"cdigen: {error}"
            except Exception as error:  # noqa: BLE001 - one container's trouble costs no other
                code, text = grpc.StatusCode.INTERNAL, f"cdigen: {type(error).__name__}: {_first_line(error)}"
                self._on_fault(text)
            await context.abort(code, text)
            raise AssertionError

        return call


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
