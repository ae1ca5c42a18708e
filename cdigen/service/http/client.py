"""``ConnectionTable``: accepts the connections of an address and serves them, within ``ClientLimits``.

A request must arrive within a time limit, even if its bytes arrive steadily. The client must read a response
within the same limit. If the number of connections has reached its limit, a new connection evicts the
connection that has waited longest for its client. A request in progress is not evicted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from contextlib import nullcontext, suppress
from functools import partial

from cdigen.service.http.messages import MAX_HEAD, body_length, encode, parse_head
from cdigen.service.http.routes import RefusedRequest, Request, Response, find_route
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Literal

    from cdigen.service.http.messages import RequestHead
    from cdigen.service.http.routes import Route
    from cdigen.service.http.server import Address, BoundSocket

    # What the connection waits for: the next request, the rest of a request, the route, or the client that
    # reads the response.
    Phase = Literal["idle", "request", "route", "response"]

# At most MAX_LARGE bodies above LARGE_BODY bytes are in memory at a time.
LARGE_BODY, MAX_LARGE = 1 << 20, 4
# The time in seconds for which a client that reads its response is not evicted, and the pause after a failed
# accept(2), such as without free descriptors.
_READING_S, _PAUSE_S = 0.1, 0.05
# With TLS, asyncio reports two pieces as sent that are only in its buffers.
_PIECE = 64 << 10
# A request that arrives with its connection is in progress after this number of iterations of the loop.
_STEPS = 8
_FAILED = Response(body=b"internal error\n", status="500 Internal Server Error")
_log = logging.getLogger(__name__)


@frozen
class ClientLimits:
    """The limits of each address of a server.

    ``connections`` is the number of open connections. If all of them have a request in progress, one more is
    served. ``request_s`` is the time limit of a client for a TLS
    handshake, for a request, and for reading a response. ``idle_s`` is the time limit of a connection between
    two requests. ``running_routes`` is the number of routes that run at the same time, each in a thread.
    """

    connections: int = 16
    # A normal client gets its response in milliseconds.
    request_s: float = 5.0
    idle_s: float = 5.0
    running_routes: int = 1


class ConnectionTable:
    """The open connections of ADDRESS, whose socket is BOUND; its coroutines run in one thread."""

    def __init__(self, address: Address, bound: BoundSocket, limits: ClientLimits) -> None:
        self.address = address
        self.bound = bound
        self.limits = limits
        self.running_routes = asyncio.Semaphore(limits.running_routes)
        self.large_bodies = asyncio.Semaphore(MAX_LARGE)
        # Whether each response is the last response of its connection, because another client waits for a
        # connection, or because the server stops.
        self.is_crowded = self.is_stopping = False
        # Set if a connection has ended or may be evicted.
        self.has_room = asyncio.Event()
        self._open: dict[_Session, asyncio.Task[None]] = {}

    async def accept(self) -> None:
        """Accept and serve connections until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            # If sock_accept of asyncio is cancelled, it may lose an accepted connection.
            try:
                accepted, _ = self.bound.listener.accept()
            except BlockingIOError:
                await _readable(self.bound.listener)
                continue
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            accepted.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            session = _Session(self, accepted)
            self._open[session] = task = loop.create_task(session.serve())
            # A task that is cancelled before its first step executes no ``finally``.
            task.add_done_callback(partial(self._end, session))
            # Otherwise the next connections could evict this connection before its request is read.
            for _ in range(_STEPS):
                await asyncio.sleep(0)
            await self._make_room(session)

    async def drain(self, drain_s: float) -> None:
        """Close waiting connections at once, and other connections after their response or after DRAIN_S."""
        self.bound.listener.close()
        for session, task in self._open.items():
            if session.phase in {"idle", "request"}:
                task.cancel()
        if self._open:
            await asyncio.wait(self._open.values(), timeout=drain_s)

    async def _make_room(self, newest: _Session) -> None:
        """Evict a connection if there are too many, or wait until this is possible; NEWEST is not evicted."""
        while len(self._open) > self.limits.connections:
            now_s = time.monotonic()
            waiting = [each for each in self._open if each is not newest and each.waits_since_s <= now_s]
            if waiting:
                oldest = min(waiting, key=lambda each: (each.phase != "idle", each.waits_since_s))
                self._open.pop(oldest).cancel()
                break
            self.is_crowded = True
            self.has_room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_READING_S):
                    await self.has_room.wait()
        self.is_crowded = False

    def _end(self, session: _Session, _: object) -> None:
        session.accepted.close()
        self._open.pop(session, None)
        self.has_room.set()


class _Session:
    """The connection ACCEPTED in TABLE.

    It waits for its client since ``waits_since_s``, which is infinite while its route runs.
    """

    def __init__(self, table: ConnectionTable, accepted: socket.socket) -> None:
        self.accepted = accepted
        self.phase: Phase = "request"
        self.waits_since_s = time.monotonic()
        self._table, self._limits = table, table.limits
        self._reader = asyncio.StreamReader(MAX_HEAD)

    async def serve(self) -> None:
        """Serve the connection until its end or the end of a time limit."""
        loop, transport = asyncio.get_running_loop(), None
        protocol = asyncio.StreamReaderProtocol(self._reader)
        tls = self._table.bound.tls() if self._table.bound.tls else None
        try:
            async with asyncio.timeout(self._limits.request_s):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, self.accepted, ssl=tls)
            # With this limit, ``drain`` waits until all is sent. With the limit 0, it may wait longer (TLS).
            transport.set_write_buffer_limits(1)
            writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
            while await self._exchange(writer):
                self._wait("idle")
            async with asyncio.timeout(self._limits.request_s):
                writer.close()
                await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has ended the connection, or has exceeded a time limit
        finally:
            if transport is not None:
                transport.abort()

    def _wait(self, phase: Phase, in_s: float = 0.0) -> None:
        """Record that the connection waits for its client, and may be evicted after IN_S."""
        self.phase, self.waits_since_s = phase, time.monotonic() + in_s
        self._table.has_room.set()

    async def _exchange(self, writer: asyncio.StreamWriter) -> bool:
        """Receive a request and respond; return whether the connection can have another request."""
        head, is_kept = None, False
        try:
            limit_s = self._limits.idle_s if self.phase == "idle" else self._limits.request_s
            async with asyncio.timeout(limit_s) as limit:
                head = await self._receive_head(limit)
            if head is None:
                return False
            response = await self._respond(head, writer, limit.when())
            is_kept = head.is_kept and not (self._table.is_crowded or self._table.is_stopping)
        except RefusedRequest as refused:
            response = refused.response
        self._wait("response", in_s=_READING_S)
        with_body = head is None or head.method != "HEAD"
        data = encode(response, with_body=with_body, is_last=not is_kept)
        async with asyncio.timeout(self._limits.request_s):
            for begin in range(0, len(data), _PIECE):
                writer.write(data[begin : begin + _PIECE])
                await writer.drain()
        return is_kept

    async def _receive_head(self, limit: asyncio.Timeout) -> RequestHead | None:
        """Return the head of the next request, None if the client has closed the connection."""
        begin = await self._reader.read(1)
        if not begin:
            return None
        if self.phase == "idle":
            limit.reschedule(asyncio.get_running_loop().time() + self._limits.request_s)
            self._wait("request")
        try:
            return parse_head(begin + await self._reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            text = f"the head of the request is larger than {MAX_HEAD >> 10} KiB"
            raise RefusedRequest("431 Request Header Fields Too Large", text) from None
        except asyncio.IncompleteReadError:
            raise RefusedRequest("400 Bad Request", "the head of the request is incomplete") from None

    async def _respond(
        self, head: RequestHead, writer: asyncio.StreamWriter, until_s: float | None
    ) -> Response:
        """Return the response to the request with HEAD, whose body must arrive by UNTIL_S."""
        table = self._table
        table.address.check(head, writer.get_extra_info("ssl_object"))
        route = find_route(table.address.routes, head.method, head.path)
        length = body_length(head)
        if length > LARGE_BODY and table.large_bodies.locked():
            text = "too many large requests in progress"
            raise RefusedRequest("503 Service Unavailable", text, ("Retry-After", "1"))
        async with table.large_bodies if length > LARGE_BODY else nullcontext():
            async with asyncio.timeout_at(until_s):
                body = await self._reader.readexactly(length)
            self.phase, self.waits_since_s = "route", math.inf
            async with table.running_routes:
                return await _run(route, Request(path=head.path, query=head.query, body=body))


async def _readable(listener: socket.socket) -> None:
    """Wait for a connection to LISTENER."""
    loop, has_connection = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, has_connection.set)
    try:
        await has_connection.wait()
    finally:
        loop.remove_reader(listener)


async def _run(route: Route, request: Request) -> Response:
    """Return the response of ROUTE to REQUEST; ROUTE runs in a thread of its own."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    result = [_FAILED]

    def run() -> None:
        try:
            result[0] = route(request)
        except Exception:  # noqa: BLE001 - an error of a route affects only one request
            _log.exception("the route %s has failed", request.path)
        finally:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(ended.set)

    try:
        threading.Thread(target=run, name="http-route", daemon=True).start()
    except RuntimeError:
        _log.exception("no thread for the route %s", request.path)
    else:
        await ended.wait()
    return result[0]
