"""Requests to the loopback port from pages of other sites in a browser on the same host."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import free_port, raw_response, received, serving
from support.waiting import PATIENCE_S

from cdigen.service.http.messages import parse_head, refuse
from cdigen.service.http.routes import RefusedRequest, Response
from cdigen.service.http.server import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.service.http.routes import Route

SECRET = b"this text is secret"


@pytest.fixture
def port(path: str) -> Iterator[int]:
    number = free_port()
    routes: dict[str, Route] = {
        "/": lambda _: Response(body=SECRET),
        "/page": lambda _: Response(
            body=SECRET, headers=(("Content-Security-Policy", "default-src 'self'"),)
        ),
        "/docker/cli": lambda _: Response(body=SECRET),
    }
    with serving(routes, path, port=number):
        yield number


def response(port: int, *lines: str, target: str = "/", version: str = "1.1", method: str = "GET") -> bytes:
    request = "\r\n".join((f"{method} {target} HTTP/{version}", *lines, "Connection: close", "", ""))
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S) as client:
        client.sendall(request.encode())
        return received(client)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "localhost:9091",
        "127.0.0.1:1",
        "[::1]:8080",
        "[::1]",
        "LocalHost:80",
        "localhost:",
    ],
)
def test_requests_with_a_name_of_this_host_are_permitted(port: int, host: str) -> None:
    assert response(port, f"Host: {host}").endswith(SECRET)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9091", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2",
     "x@localhost", "localhost:80:80", "[::1].evil.example", "localhost, evil.example", "0.0.0.0",
     "[::ffff:127.0.0.1]"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_requests_with_another_host_name_are_refused(port: int, host: str, method: str) -> None:
    answer = response(port, f"Host: {host}", method=method)
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert SECRET not in answer


def test_the_host_name_of_the_nvidia_docker_1_0_command_is_permitted(port: int) -> None:
    assert response(port, "Host: plugin", target="/docker/cli?vol=nvidia_driver&dev=").endswith(SECRET)
    for host, target in ((f"plugin:{port}", "/docker/cli"), ("plugin", "/"), ("plugin.evil", "/docker/cli")):
        assert response(port, f"Host: {host}", target=target).startswith(b"HTTP/1.1 421 ")
    assert response(port, "Host: plugin", "Origin: http://plugin", target="/docker/cli")[9:12] == b"403"


def test_at_port_80_the_host_name_plugin_is_refused() -> None:
    head = parse_head(b"GET /docker/cli HTTP/1.1\r\nHost: plugin\r\n\r\n")
    with pytest.raises(RefusedRequest) as refused:
        refuse(head, 80)
    assert refused.value.response.status.startswith("421 ")
    refuse(head, 3476)


def test_two_host_headers_and_a_host_in_the_target_are_refused(port: int) -> None:
    assert SECRET not in response(port, "Host: localhost", "Host: evil.example")
    assert SECRET not in response(port, "Host: evil.example", target="http://localhost/")


def test_a_request_without_a_host_header_is_permitted(port: int) -> None:
    assert response(port, version="1.0").endswith(SECRET)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "websocket", ""])
def test_requests_from_pages_of_other_sites_are_refused(port: int, site: str, mode: str) -> None:
    answer = response(
        port, "Host: localhost", f"Sec-Fetch-Site: {site}", *([f"Sec-Fetch-Mode: {mode}"] if mode else [])
    )
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert SECRET not in answer


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8080"])
def test_requests_with_an_origin_header_are_refused(port: int, origin: str) -> None:
    answer = response(port, "Host: localhost", f"Origin: {origin}")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert SECRET not in answer


@pytest.mark.parametrize("dest", ["iframe", "frame", "embed", "object", ""])
def test_requests_of_frames_in_pages_of_other_sites_are_refused(port: int, dest: str) -> None:
    answer = response(
        port,
        "Host: localhost",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        f"Sec-Fetch-Dest: {dest}",
    )
    assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize(
    "lines",
    [
        ("Sec-Fetch-Site: none",),
        ("Sec-Fetch-Site: same-origin",),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
    ],
)
def test_navigation_from_any_site_and_requests_from_the_page_itself_are_permitted(
    port: int, lines: tuple[str, ...]
) -> None:
    assert response(port, "Host: localhost", *lines).endswith(SECRET)


@pytest.mark.parametrize("target", ["/", "/nothing"])
def test_every_response_has_the_security_headers(port: int, target: str) -> None:
    head = response(port, "Host: localhost", target=target).partition(b"\r\n\r\n")[0].decode().lower()
    for line in (
        "x-content-type-options: nosniff",
        "cross-origin-resource-policy: same-origin",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "content-security-policy: default-src 'none';",
        "frame-ancestors 'none'",
    ):
        assert line in head
    assert "set-cookie" not in head
    assert "access-control" not in head


def test_a_response_with_a_content_security_policy_has_no_second_policy(port: int) -> None:
    head = response(port, "Host: localhost", target="/page").partition(b"\r\n\r\n")[0].decode()
    assert head.count("Content-Security-Policy") == 1
    assert "default-src 'self'" in head


def test_the_unix_socket_accepts_any_host_name(port: int, path: str) -> None:
    assert port
    request = b"GET / HTTP/1.1\r\nHost: gpu-node-17.example\r\nConnection: close\r\n\r\n"
    assert raw_response(path, request).endswith(SECRET)
