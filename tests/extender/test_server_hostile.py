"""The server responds to hostile, slow and unauthorized clients, and does not delay other clients."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.abilities import tool
from support.kubernetes.certificates import made
from support.waiting import PATIENCE_S, pause, until

from cdigen.extender.server import DRAIN_S, LIMITS, Access, extender_address
from cdigen.model.errors import StoreError
from cdigen.service.http.client import MAX_LARGE
from cdigen.service.http.messages import MAX_BODY
from cdigen.service.http.routes import Request, Response
from cdigen.service.http.server import HttpServer
from cdigen.value import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cdigen.service.http.routes import Route

    Serve = Callable[..., HttpServer]

MAX_CONNECTIONS = LIMITS.connections
OPEN_TO_ALL = Access()
# More than the buffers of a connection.
LARGE = b"x" * 20_000_000


def echo(method: str) -> Route:
    return lambda request: Response(body=f"{method} {request.path} {len(request.body)}".encode())


def fail(_: Request) -> Response:
    raise RuntimeError("no")


ROUTES = {
    **dict.fromkeys(("/x", "/healthz"), echo("GET")),
    **dict.fromkeys(("POST /x", "POST /0", "POST /1", "POST /2"), echo("POST")),
    "/broken": fail,
    "/large": lambda _: Response(body=LARGE),
}


def server_at(
    host: str = "127.0.0.1",
    port: int = 0,
    routes: Mapping[str, Route] = ROUTES,
    access: Access = OPEN_TO_ALL,
    *,
    request_s: float = LIMITS.request_s,
    idle_s: float = LIMITS.idle_s,
    **options: Any,
) -> HttpServer:
    limits = replace(LIMITS, request_s=request_s, idle_s=idle_s)
    return HttpServer(extender_address(host, port, routes, access), limits=limits, drain_s=DRAIN_S, **options)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield a function that starts servers; the time limit of clients is 1 hour by default."""
    servers: list[HttpServer] = []

    def start(*, request_s: float = 3600.0, idle_s: float = LIMITS.idle_s, **access: object) -> HttpServer:
        server = server_at(access=Access(**access), request_s=request_s, idle_s=idle_s)  # type: ignore[arg-type]
        server.start()
        servers.append(server)
        return server

    yield start
    for each in servers:
        each.stop()


def request(
    port: int, method: str = "GET", path: str = "/x", body: bytes | None = None, **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    received = answer.read().decode()
    connection.close()
    return answer.status, received


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
        return received


def test_one_connection_serves_several_requests(serve: Serve) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serve().port, timeout=PATIENCE_S)
    for number in range(3):
        connection.request("POST", f"/{number}", b"x" * number)
        assert connection.getresponse().read() == f"POST /{number} {number}".encode()
    connection.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), b"413"),
        (b"POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /x HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET /x HTTP/1.1\r\nContent-Length: 4\r\n\r\nGET ", b"400"),
        (b"DELETE /x HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", b"400"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET /x HTTP/1.1\r\na: " + b"b" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET /broken HTTP/1.1\r\nConnection: close\r\n\r\n", b"500"),
    ],
)
def test_an_invalid_request_is_refused(serve: Serve, data: bytes, status: bytes) -> None:
    assert status in raw(serve().port, data).split(b"\r\n", 1)[0]


def test_a_truncated_body_gets_no_response(serve: Serve) -> None:
    assert raw(serve().port, b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc") == b""


def test_many_idle_clients_do_not_block_other_clients(serve: Serve) -> None:
    port = serve().port
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * MAX_CONNECTIONS)]
    for each in crowd:
        each.send(b"POST /x HTTP/1.1\r\n")
    assert request(port) == (200, "GET /x 0")
    for each in crowd:
        each.close()


@pytest.mark.parametrize("start", [b"A: ", b"Content-Length: 999\r\n\r\n"])
def test_a_slow_client_is_disconnected(serve: Serve, start: bytes) -> None:
    port = serve(request_s=0.5).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /x HTTP/1.1\r\n" + start)
        assert until(lambda: has_ended(client))


def has_ended(client: socket.socket) -> bool:
    """Send a byte; return whether the server has closed the connection."""
    client.settimeout(0.1)
    try:
        client.sendall(b"x")
        return client.recv(1 << 12) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_the_number_of_large_requests_is_limited_and_small_requests_are_served(serve: Serve) -> None:
    port = serve().port
    head = b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % MAX_BODY
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_LARGE)]
    for each in crowd:
        each.sendall(head)
    assert until(lambda: b"503" in raw(port, head).split(b"\r\n", 1)[0])
    assert request(port, "POST", "/x", b"{}") == (200, "POST /x 2")
    for each in crowd:
        each.close()


def test_a_stopping_server_completes_its_responses() -> None:
    begun, ends, received = threading.Event(), threading.Event(), []

    def slow(_: Request) -> Response:
        begun.set()
        ends.wait(PATIENCE_S)
        return Response(body=b"done")

    server = server_at(routes={"/x": slow})
    server.start()
    port = server.port
    with socket.create_connection(("127.0.0.1", port)) as idle:
        client = threading.Thread(target=lambda: received.append(request(port)))
        client.start()
        assert begun.wait(PATIENCE_S)
        ending = threading.Thread(target=server.stop)
        ending.start()
        assert idle.recv(1) == b""
        assert received == []
        ends.set()
        client.join()
        ending.join()
        assert received == [(200, "done")]
    with pytest.raises(OSError, match="refused"):
        request(port)


def test_a_stopping_server_serves_requests_for_linger_s_and_closes_their_connections() -> None:
    lingers, leaves = threading.Event(), threading.Event()

    def linger(_: float) -> None:
        lingers.set()
        leaves.wait(PATIENCE_S)

    server = server_at(linger_s=1.0, sleep=linger)
    server.start()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)) as kept:
        kept.request("GET", "/x")
        assert kept.getresponse().read() == b"GET /x 0"
        ending = threading.Thread(target=server.stop)
        ending.start()
        assert lingers.wait(PATIENCE_S)
        kept.request("GET", "/x")
        answer = kept.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (200, "close")
        assert request(server.port) == (200, "GET /x 0")
        leaves.set()
        ending.join()
    with pytest.raises(OSError, match="refused"):
        request(server.port)


def test_without_the_token_only_health_is_served(serve: Serve) -> None:
    port = serve(token=lambda: "secret").port
    basic = base64.b64encode(b"any:secret").decode()
    assert request(port)[0] == 401
    assert request(port, "POST", "/x", b"{}")[0] == 401
    assert request(port, Authorization="Bearer wrong")[0] == 401
    assert request(port, Authorization="Basic !")[0] == 401
    assert request(port, Authorization="Bearer ")[0] == 401
    assert request(port, path="/healthz")[0] == 200
    assert request(port, Authorization="Bearer secret")[0] == 200
    assert request(port, Authorization=f"Basic {basic}")[0] == 200


def test_a_web_page_cannot_send_requests(serve: Serve) -> None:
    port = serve().port
    assert request(port, "POST", "/x", b"{}", Origin="http://evil.example")[0] == 403
    assert request(port, "POST", "/x", b"{}", Origin="null")[0] == 403
    assert request(port, path="/healthz", Origin="null")[0] == 200


def test_an_empty_token_authorizes_no_client(serve: Serve) -> None:
    assert request(serve(token=str).port, Authorization="Bearer ")[0] == 401


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    return made(tmp_path, "one")


def secure(
    port: int, authority: str, own: tuple[str, str] | None = None, path: str = "/x", method: str = "POST"
) -> str:
    context = ssl.create_default_context(cafile=authority)
    if own:
        context.load_cert_chain(*own)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
    try:
        connection.request(method, path, b"abc" if method == "POST" else None)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_tls_is_served_and_a_new_certificate_is_used_at_once(
    serve: Serve, certificate: tuple[str, str], tmp_path: Path
) -> None:
    server = serve(certificate=certificate[0], key=certificate[1])
    assert secure(server.port, certificate[0]) == "POST /x 3"
    with suppress(OSError):
        assert raw(server.port, b"GET /x HTTP/1.1\r\n\r\n")[:4] != b"HTTP"
    other = made(tmp_path, "two")
    for new, old in zip(other, certificate, strict=True):
        shutil.copyfile(new, old + ".new")
        shutil.move(old + ".new", old)
    assert secure(server.port, other[0]) == "POST /x 3"


def encrypted(port: int, authority: str) -> ssl.SSLSocket:
    """Return a client with TLS 1.2, which receives nothing between handshake and response."""
    context = ssl.create_default_context(cafile=authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    return context.wrap_socket(connection, server_hostname="127.0.0.1")


def test_a_tls_connection_is_idle_after_a_response(serve: Serve, certificate: tuple[str, str]) -> None:
    port = serve(certificate=certificate[0], key=certificate[1], idle_s=0.1).port
    with encrypted(port, certificate[0]) as client:
        client.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        assert client.recv(1 << 12).endswith(b"GET /x 0")
        # The server closes an idle connection after idle_s, and other connections after request_s.
        assert client.recv(1) == b""


def test_a_tls_client_that_reads_slowly_receives_the_whole_response(
    serve: Serve, certificate: tuple[str, str]
) -> None:
    port = serve(certificate=certificate[0], key=certificate[1]).port
    with encrypted(port, certificate[0]) as client:
        client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        received = client.recv(1 << 12)
        pause(2.0)
        while part := client.recv(1 << 16):
            received += part
    assert received.endswith(LARGE)


def test_a_client_is_not_served_if_a_newer_client_has_replaced_it_before_its_handshake(
    serve: Serve, certificate: tuple[str, str]
) -> None:
    server = serve(certificate=certificate[0], key=certificate[1])
    crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MAX_CONNECTIONS + 8)]
    # The server accepts this connection after all connections of the crowd.
    assert secure(server.port, certificate[0]) == "POST /x 3"
    context = ssl.create_default_context(cafile=certificate[0])
    for each in crowd[:8]:
        each.settimeout(PATIENCE_S)
        received = b""
        with suppress(OSError), context.wrap_socket(each, server_hostname="127.0.0.1") as wrapped:
            wrapped.sendall(b"GET /x HTTP/1.1\r\n\r\n")
            received = wrapped.recv(99)
        assert received == b""
    for each in crowd[8:]:
        each.close()


def test_clients_without_a_required_certificate_are_refused(
    serve: Serve, certificate: tuple[str, str], tmp_path: Path
) -> None:
    client = made(tmp_path, "client")
    server = serve(certificate=certificate[0], key=certificate[1], client_ca=client[0])
    assert secure(server.port, certificate[0], client) == "POST /x 3"
    refusal = secure(server.port, certificate[0])
    assert "a client certificate from the CA in --client-ca is required" in refusal
    assert secure(server.port, certificate[0], path="/healthz", method="GET") == "GET /healthz 0"
    with pytest.raises((OSError, http.client.HTTPException)):
        secure(server.port, certificate[0], made(tmp_path, "stranger"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"client"}, "POST /x 3"),
        ({"other", "scheduler.example"}, "POST /x 3"),
        ({"127.0.0.1"}, "POST /x 3"),
        (
            {"Client", "*", "clien", "example"},
            "the client certificate has none of the names in --client-name\n",
        ),
    ],
)
def test_a_client_certificate_needs_one_of_the_configured_names(
    serve: Serve, certificate: tuple[str, str], tmp_path: Path, names: set[str], expected: str
) -> None:
    client = made(tmp_path, "client", "DNS:scheduler.example,IP:127.0.0.1")
    server = serve(
        certificate=certificate[0], key=certificate[1], client_ca=client[0], client_names=frozenset(names)
    )
    assert secure(server.port, certificate[0], client) == expected


def test_the_body_of_a_request_without_authorization_is_not_read(serve: Serve) -> None:
    port = serve(token=lambda: "secret").port
    head = b"POST %b HTTP/1.1\r\nContent-Length: 8000000\r\n\r\n"
    for path, status in ((b"/healthz", b"405"), (b"/healthz?a", b"401"), (b"/x", b"401")):
        assert status in raw(port, head % path).split(b"\r\n", 1)[0]


def test_an_address_or_certificate_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be served"):
        server_at("203.0.113.1", 1).start()
    bad = tmp_path / "bad.crt"
    bad.write_text(json.dumps({}))
    with pytest.raises(StoreError, match="cannot be served"):
        server_at(access=Access(certificate=str(bad))).start()
    with pytest.raises(StoreError, match=r"missing\.crt: No such file"):
        server_at(access=Access(certificate=str(tmp_path / "missing.crt"))).start()


def test_an_encrypted_key_causes_an_error_and_no_prompt(tmp_path: Path) -> None:
    certificate, key = made(tmp_path, "one")
    locked = str(tmp_path / "locked.key")
    subprocess.run([tool("openssl"), "ec", "-aes256", "-in", key, "-passout", "pass:x", "-out", locked],
                   check=True, capture_output=True)  # fmt: skip
    with pytest.raises(StoreError, match="the key is encrypted"):
        server_at(access=Access(certificate=certificate, key=locked)).start()
