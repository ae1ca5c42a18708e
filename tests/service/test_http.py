"""Metrics and health over HTTP, with normal, slow, huge and invalid requests."""

from __future__ import annotations

import logging
import os
import select
import socket
import stat
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.daemon.http_client import (
    AGE_S,
    Daemon,
    connected,
    free_port,
    get,
    raw_response,
    received,
    server_of,
    serving,
)
from support.waiting import PATIENCE_S, limited, pause, until

from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import Request, Response, standard_routes
from cdigen.service.http.server import LOOPBACK, Address, BoundSocket, HttpServer

MAX_CONNECTIONS = ClientLimits().connections


@pytest.mark.usefixtures("server")
def test_metrics_are_served_in_the_format_of_prometheus(path: str) -> None:
    code, head, body = get(path, "/metrics")
    assert (code, body) == (200, b"cdigen_up 1\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head


@pytest.mark.usefixtures("server")
def test_healthz_returns_503_and_the_reason_if_the_loop_does_not_run(daemon: Daemon, path: str) -> None:
    assert get(path, "/healthz")[::2] == (200, b"ok\n")
    daemon.dead = "no cycle for 90 s"
    assert get(path, "/healthz")[::2] == (503, b"no cycle for 90 s\n")


@pytest.mark.usefixtures("server")
def test_readyz_returns_the_reason_in_one_line(daemon: Daemon, path: str) -> None:
    assert get(path, "/readyz")[0] == 200
    daemon.unready = "nvidia: mismatch\nSet-Cookie: \udcff"
    code, _, body = get(path, "/readyz")
    assert (code, body) == (503, b"nvidia: mismatch\\nSet-Cookie: \\udcff\n")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("target", ["/", "/metrics/", "/reload", "/..%2fetc/passwd"])
def test_any_other_path_has_the_status_404(path: str, target: str) -> None:
    assert get(path, target)[0] == 404


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_get_and_head_are_permitted(path: str, method: str) -> None:
    code, head, _ = get(path, "/metrics", method)
    assert code == 405
    assert b"Allow: GET, HEAD" in head


@pytest.mark.usefixtures("server")
def test_head_returns_the_length_and_no_body(path: str) -> None:
    code, head, body = get(path, "/metrics", "HEAD")
    assert (code, body) == (200, b"")
    assert b"Content-Length: 12" in head


@pytest.mark.usefixtures("server")
def test_only_root_and_its_group_may_connect(path: str) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"get /metrics\r\nbroken\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nA: b\nc: d\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", b"4"),
    ],
)
def test_huge_and_malformed_requests_are_refused_and_the_server_keeps_serving(
    path: str, request_: bytes, code: bytes
) -> None:
    assert raw_response(path, request_).startswith(b"HTTP/1.1 " + code) or raw_response(
        path, request_
    ).startswith(b"HTTP/1.0 " + code)
    assert get(path, "/healthz")[0] == 200


@pytest.mark.usefixtures("server")
def test_a_slow_client_is_disconnected_after_the_maximum_age(path: str) -> None:
    begun = time.monotonic()
    with connected(path) as slow:
        slow.settimeout(0.1)
        ends = 0
        for byte in b"GET /metrics HTTP/1.1\r\nX-Long: " + b"x" * 1000:
            try:
                slow.sendall(bytes([byte]))
                assert slow.recv(100) == b""
                break
            except TimeoutError:
                assert get(path, "/healthz")[0] == 200
                ends += 1
            except (BrokenPipeError, ConnectionResetError):
                break
        assert ends
        assert AGE_S - 0.5 < time.monotonic() - begun < AGE_S + PATIENCE_S


def test_many_slow_clients_do_not_block_a_normal_client(daemon: Daemon, path: str) -> None:
    # No client reaches the maximum age before the timeout of the normal client.
    with serving(daemon.routes(), path, request_s=10 * PATIENCE_S), ExitStack() as held:
        # Other tests of this process may have left open descriptors.
        without_crowd = len(os.listdir("/proc/self/fd"))
        for number in range(5 * MAX_CONNECTIONS):
            held.enter_context(connected(path)).sendall(b"GET /met")
            if number % 10 == 9:
                assert get(path, "/healthz")[0] == 200
        assert len(os.listdir("/proc/self/fd")) < without_crowd + 8 * MAX_CONNECTIONS


def test_many_clients_at_the_port_disconnect_no_client_of_the_socket(daemon: Daemon, path: str) -> None:
    port = free_port()
    with (
        serving(daemon.routes(), path, port=port, request_s=10 * PATIENCE_S),
        connected(path) as normal,
        ExitStack() as held,
    ):
        normal.sendall(b"GET /met")
        assert get(path, "/healthz")[0] == 200
        for _ in range(5 * MAX_CONNECTIONS):
            client = socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)
            held.enter_context(client).sendall(b"GET /met")
        normal.sendall(b"rics HTTP/1.0\r\n\r\n")
        assert received(normal).endswith(b"cdigen_up 1\n")


@pytest.mark.usefixtures("server")
def test_a_client_that_reads_no_response_is_disconnected_after_the_maximum_age(
    daemon: Daemon, path: str
) -> None:
    daemon.body = b"x" * 1_000_000
    with connected(path) as greedy:
        greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        ended = select.poll()
        ended.register(greedy, 0)  # POLLHUP is always reported
        assert get(path, "/healthz")[0] == 200
        pause(1.5 * AGE_S)
        # The next client causes the end of this connection.
        assert get(path, "/healthz")[0] == 200
        assert ended.poll(PATIENCE_S * 1000)
        assert get(path, "/healthz")[0] == 200


def test_a_client_that_reads_no_response_stays_connected_before_the_maximum_age(
    daemon: Daemon, path: str
) -> None:
    daemon.body = b"x" * 1_000_000
    with serving(daemon.routes(), path, request_s=10 * PATIENCE_S), connected(path) as greedy:
        greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        ended = select.poll()
        ended.register(greedy, 0)  # POLLHUP is always reported
        assert get(path, "/healthz")[0] == 200
        assert not ended.poll(100)


@pytest.mark.usefixtures("server")
def test_a_client_that_disconnects_during_a_request_does_not_affect_other_clients(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for request in (b"", b"GET", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
            with connected(path) as client:
                client.sendall(request)
        assert get(path, "/healthz")[0] == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.usefixtures("server")
def test_the_responses_to_many_requests_on_one_connection_are_in_order(path: str) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(path) as client:
        client.sendall(request * 50 + b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n")
        responses = received(client).split(b"HTTP/1.1 ")[1:]
    assert [response[:3] for response in responses] == [b"200"] * 50 + [b"404"]


def worker_threads() -> int:
    """Return the number of threads that run routes."""
    return sum(thread.name == "http-route" for thread in threading.enumerate())


def test_a_blocking_route_does_not_block_other_routes_and_threads_start_on_demand(
    daemon: Daemon, path: str
) -> None:
    may_return = threading.Event()

    def wait(_: Request) -> Response:
        may_return.wait(PATIENCE_S)
        return Response(body=b"late")

    with serving({**daemon.routes(), "/slow": wait}, path, running_routes=3), ExitStack() as held:
        assert worker_threads() == 0
        slow = [held.enter_context(connected(path)) for _ in range(2)]
        held.callback(may_return.set)
        for client in slow:
            client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        for _ in range(20):
            assert get(path, "/healthz")[0] == 200
        assert until(lambda: worker_threads() == 2)
        assert not select.select(slow, [], [], 0)[0]
        may_return.set()
        assert [received(client).rpartition(b"\n")[2] for client in slow] == [b"late", b"late"]
    assert until(lambda: worker_threads() == 0)


def test_a_failing_route_returns_status_500_without_a_traceback(path: str) -> None:
    def fail() -> bytes:
        raise ValueError("secret")

    with serving(standard_routes(metrics=fail, alive=str, ready=str), path):
        code, _, body = get(path, "/metrics")
        assert code == 500
        assert b"secret" not in body
        assert get(path, "/healthz")[0] == 200


@limited(1)
def test_stopping_takes_less_than_a_second_with_connected_clients(
    daemon: Daemon, path: str, within_s: float
) -> None:
    took = []
    for _ in range(3):
        server = server_of(daemon.routes(), path)
        server.start()
        clients = [connected(path) for _ in range(5)]
        clients[0].sendall(b"GET /met")
        begun = time.monotonic()
        server.stop()
        took.append(time.monotonic() - begun)
        assert not os.path.exists(path)
        assert until(lambda: "cdigen-http" not in {thread.name for thread in threading.enumerate()})
        for client in clients:
            with client:
                assert received(client) == b""
        server.stop()
    assert min(took) < within_s


def test_a_stopping_server_sends_the_rest_of_a_response(path: str) -> None:
    body = b"x" * 5_000_000
    limits = ClientLimits(request_s=10 * PATIENCE_S)
    address = Address(routes={"/large": lambda _: Response(body=body)}, bind=lambda: BoundSocket(path))
    server = HttpServer(address, limits=limits, drain_s=PATIENCE_S)
    server.start()
    with connected(path) as client:
        client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert client.recv(1)
        ending = threading.Thread(target=server.stop)
        ending.start()
        assert until(lambda: not listens(path))
        assert received(client).endswith(body)
        ending.join()


def listens(path: str) -> bool:
    """Return whether a client can connect."""
    try:
        connected(path).close()
    except OSError:
        return False
    return True


def test_a_stopped_server_reports_a_problem(server: HttpServer) -> None:
    assert server.problem() == ""
    server.stop()
    assert server.problem() == "not started"


@pytest.mark.usefixtures("server")
def test_without_clients_the_thread_of_the_server_does_not_run(path: str) -> None:
    assert get(path, "/healthz")[0] == 200
    thread = next(each for each in threading.enumerate() if each.name == "cdigen-http")
    switches = Path(f"/proc/self/task/{thread.native_id}/status")

    def count() -> int:
        lines = switches.read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    def rests() -> bool:
        before = count()
        pause(1)
        return count() - before <= 1

    # The server first handles the end of the last connection.
    assert until(rests, PATIENCE_S)


def test_a_route_receives_the_query_and_sets_the_content_type(daemon: Daemon, path: str) -> None:
    def page(request: Request) -> Response:
        return Response(
            body=f"<p>{request.query}</p>".encode(),
            content_type="text/html; charset=utf-8",
            headers=(("Content-Security-Policy", "default-src 'none'"),),
        )

    with serving({**daemon.routes(), "/": page}, path):
        code, head, body = get(path, "/?dev=0+1")
        assert (code, body) == (200, b"<p>dev=0+1</p>")
        assert b"Content-Type: text/html; charset=utf-8" in head
        assert b"Content-Security-Policy: default-src 'none'" in head
        assert get(path, "/healthz")[0] == 200
