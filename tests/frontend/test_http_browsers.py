"""The loopback port and other sites' pages in a browser on the same host."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import asked as asked_at_socket
from support.daemon.http_client import free_port, received, serving
from support.waiting import PATIENCE_S

from cdigen.frontend import http
from cdigen.frontend.browsers import refusal
from cdigen.frontend.http import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = b"what is here is nobody else's"


@pytest.fixture
def port(path: str) -> Iterator[int]:
    number = free_port()
    routes: dict[str, http.Route] = {
        "/": lambda _: Response(body=SECRET),
        "/page": lambda _: Response(
            body=SECRET, headers=(("Content-Security-Policy", "default-src 'self'"),)
        ),
        "/docker/cli": lambda _: Response(body=SECRET),
    }
    with serving(routes, path, port=number):
        yield number


def asked(port: int, *lines: str, target: str = "/", version: str = "1.1", method: str = "GET") -> bytes:
    request = "\r\n".join((f"{method} {target} HTTP/{version}", *lines, "Connection: close", "", ""))
    with socket.create_connection((http.LOOPBACK, port), timeout=PATIENCE_S) as client:
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
def test_who_asks_for_this_host_is_answered(port: int, host: str) -> None:
    assert asked(port, f"Host: {host}").endswith(SECRET)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9091", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2",
     "x@localhost", "localhost:80:80", "[::1].evil.example", "localhost, evil.example", "0.0.0.0",
     "[::ffff:127.0.0.1]"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_name_that_was_made_to_mean_this_host_gets_nothing(port: int, host: str, method: str) -> None:
    answer = asked(port, f"Host: {host}", method=method)
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert SECRET not in answer


def test_the_command_of_nvidia_docker_1_0_calls_every_machine_plugin(port: int) -> None:
    assert asked(port, "Host: plugin", target="/docker/cli?vol=nvidia_driver&dev=").endswith(SECRET)
    for host, target in ((f"plugin:{port}", "/docker/cli"), ("plugin", "/"), ("plugin.evil", "/docker/cli")):
        assert asked(port, f"Host: {host}", target=target).startswith(b"HTTP/1.1 421 ")
    assert asked(port, "Host: plugin", "Origin: http://plugin", target="/docker/cli")[9:12] == b"403"


def test_at_port_80_a_browser_can_say_plugin_as_well() -> None:
    request = {"HTTP_HOST": "plugin", "PATH_INFO": "/docker/cli", "SERVER_PORT": "80"}
    assert refusal(request)[0].startswith("421 ")
    assert refusal({**request, "SERVER_PORT": "3476"}) == ("", "")


def test_two_hosts_and_hosts_in_the_target_do_not_help(port: int) -> None:
    assert SECRET not in asked(port, "Host: localhost", "Host: evil.example")
    assert SECRET not in asked(port, "Host: evil.example", target="http://localhost/")


def test_a_program_without_host_is_no_browser(port: int) -> None:
    assert asked(port, version="1.0").endswith(SECRET)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "websocket", ""])
def test_other_sites_pages_cannot_even_make_it_work(port: int, site: str, mode: str) -> None:
    answer = asked(
        port, "Host: localhost", f"Sec-Fetch-Site: {site}", *([f"Sec-Fetch-Mode: {mode}"] if mode else [])
    )
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert SECRET not in answer


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8080"])
def test_scripts_get_nothing_of_browsers_without_fetch_metadata_too(port: int, origin: str) -> None:
    answer = asked(port, "Host: localhost", f"Origin: {origin}")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert SECRET not in answer


@pytest.mark.parametrize("dest", ["iframe", "frame", "embed", "object", ""])
def test_other_sites_pages_cannot_frame_it(port: int, dest: str) -> None:
    answer = asked(
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
def test_a_person_may_come_by_a_link(port: int, lines: tuple[str, ...]) -> None:
    assert asked(port, "Host: localhost", *lines).endswith(SECRET)


@pytest.mark.parametrize("target", ["/", "/nothing"])
def test_every_answer_forbids_what_a_browser_might_do_with_it(port: int, target: str) -> None:
    head = asked(port, "Host: localhost", target=target).partition(b"\r\n\r\n")[0].decode().lower()
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


def test_a_page_has_its_own_policy_alone(port: int) -> None:
    head = asked(port, "Host: localhost", target="/page").partition(b"\r\n\r\n")[0].decode()
    assert head.count("Content-Security-Policy") == 1
    assert "default-src 'self'" in head


def test_on_the_unix_socket_any_name_will_do(port: int, path: str) -> None:
    assert port
    request = b"GET / HTTP/1.1\r\nHost: gpu-node-17.example\r\nConnection: close\r\n\r\n"
    assert asked_at_socket(path, request).endswith(SECRET)
