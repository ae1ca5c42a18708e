"""More clients than connections: who waits, who is disconnected, and how many threads run."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from support.daemon.http_client import Daemon, connected, get, raw_response, received, serving
from support.waiting import PATIENCE_S, pause, until

from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import Request, Response

if TYPE_CHECKING:
    from socket import socket

    from cdigen.service.http.routes import Route

MAX_CONNECTIONS = ClientLimits().connections
REQUEST = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"


class Gate:
    """A route that waits until the test permits a response; counts its concurrent calls."""

    def __init__(self) -> None:
        self.may_return = threading.Semaphore(0)
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, _: Request) -> Response:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.may_return.acquire(timeout=PATIENCE_S)
        with self._lock:
            self.running -= 1
        return Response(body=b"late")


def routes_with(gate: Route) -> dict[str, Route]:
    return {**Daemon().routes(), "/slow": gate}


def clients(held: ExitStack, path: str, number: int, request: bytes) -> list[socket]:
    opened = [held.enter_context(connected(path)) for _ in range(number)]
    for each in opened:
        each.sendall(request)
    return opened


def test_requests_in_progress_are_not_evicted_and_the_next_client_waits(path: str) -> None:
    gate = Gate()
    with serving(routes_with(gate), path, running_routes=2, request_s=10 * PATIENCE_S), ExitStack() as held:
        held.callback(gate.may_return.release, MAX_CONNECTIONS)
        slow = clients(held, path, MAX_CONNECTIONS, REQUEST % b"/slow")
        assert until(lambda: gate.running == 2)
        last = clients(held, path, 1, REQUEST % b"/healthz")
        gate.may_return.release(MAX_CONNECTIONS)
        # The connections of these responses are closed, because another client waits.
        assert all(received(each).endswith(b"\r\n\r\nlate") for each in slow[:1])
        last[0].sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert received(last[0]).startswith(b"HTTP/1.1 200 ")
        assert gate.most == 2


def test_clients_that_begin_their_requests_late_do_not_exceed_the_limit(path: str) -> None:
    gate = Gate()
    with serving(routes_with(gate), path, running_routes=99, request_s=10 * PATIENCE_S), ExitStack() as held:
        held.callback(gate.may_return.release, 99)
        opened: list[socket] = []
        for _ in range(MAX_CONNECTIONS + 5):
            opened.append(held.enter_context(connected(path)))
            # During this pause, the server waits for the next client.
            pause(0.02)
            opened[-1].sendall(REQUEST % b"/slow")
            assert until(lambda: gate.running == min(len(opened), MAX_CONNECTIONS + 1))
        gate.may_return.release(99)
        assert get(path, "/healthz")[0] == 200
        assert gate.most == MAX_CONNECTIONS + 1


def test_a_client_with_many_pipelined_requests_does_not_keep_its_connection(path: str) -> None:
    with serving(Daemon().routes(), path, request_s=10 * PATIENCE_S), ExitStack() as held:
        clients(held, path, MAX_CONNECTIONS, REQUEST % b"/healthz" * 500)
        assert [get(path, "/healthz")[0] for _ in range(5)] == [200] * 5


def test_idle_connections_are_evicted_before_a_client_that_is_sending(path: str) -> None:
    with (
        serving(Daemon().routes(), path, request_s=10 * PATIENCE_S, idle_s=10 * PATIENCE_S),
        ExitStack() as held,
    ):
        (sending,) = clients(held, path, 1, b"GET /healthz HT")
        idle = clients(held, path, MAX_CONNECTIONS - 1, REQUEST % b"/healthz")
        assert all(each.recv(1 << 16).endswith(b"ok\n") for each in idle)
        for _ in range(5):
            assert get(path, "/healthz")[0] == 200
        sending.sendall(b"TP/1.0\r\n\r\n")
        assert received(sending).endswith(b"ok\n")


def test_idle_connections_use_no_thread(path: str) -> None:
    # A thread of an earlier test may end meanwhile, so the test counts only new threads.
    before = set(threading.enumerate())
    with serving(Daemon().routes(), path, request_s=10 * PATIENCE_S), ExitStack() as held:
        clients(held, path, MAX_CONNECTIONS, b"GET /met")
        assert get(path, "/healthz")[0] == 200
        assert until(lambda: len(set(threading.enumerate()) - before) == 1)


def test_a_head_with_many_lines_is_limited_as_a_whole(path: str) -> None:
    with serving(Daemon().routes(), path):
        head = b"GET /healthz HTTP/1.1\r\n" + b"A: %b\r\n" % (b"x" * 60_000) * 90 + b"\r\n"
        assert raw_response(path, head).startswith(b"HTTP/1.1 431 ")
        assert get(path, "/healthz")[0] == 200
