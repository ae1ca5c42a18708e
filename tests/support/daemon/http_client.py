"""Servers of metrics and health, and raw clients.

``Daemon``, ``server_of`` and ``serving`` are for servers. ``get`` and ``answer`` are clients.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from support.waiting import PATIENCE_S

from cdigen.service.http.client import ClientLimits
from cdigen.service.http.routes import standard_routes
from cdigen.service.http.server import LOOPBACK, SOCKET_FILE, HttpServer, local_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.service.http.routes import Route, Routes

AGE_S = 1.5


class Daemon:
    """The state that the server's routes return."""

    def __init__(self) -> None:
        self.dead = ""
        self.unready = ""
        self.body = b"cdigen_up 1\n"

    def routes(self) -> dict[str, Route]:
        return standard_routes(metrics=lambda: self.body, alive=lambda: self.dead, ready=lambda: self.unready)


def server_of(
    routes: Routes, path: str, *, port: int = 0, port_routes: Routes | None = None, **limits: Any
) -> HttpServer:
    """Return a server of ROUTES on the socket PATH, and on the loopback port PORT if PORT is not 0."""
    run_dir, name = os.path.split(path)
    assert name == SOCKET_FILE
    return local_server(routes, run_dir, port, port_routes, ClientLimits(**limits))


@contextmanager
def serving(routes: Routes, path: str, **options: Any) -> Iterator[HttpServer]:
    """Serve ROUTES on the socket PATH until the body ends."""
    server = server_of(routes, path, **options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connected(place: str | int) -> socket.socket:
    """Return a client that is connected to PLACE, the path of a socket or a port."""
    if isinstance(place, int):
        return socket.create_connection((LOOPBACK, place), timeout=PATIENCE_S)
    # The path of a socket has 107 bytes at most.
    folder = os.open(os.path.dirname(place), os.O_PATH)
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE_S)
    try:
        client.connect(f"/proc/self/fd/{folder}/{os.path.basename(place)}")
    except OSError:
        client.close()
        raise
    finally:
        os.close(folder)
    return client


def received(client: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def raw_response(path: str, request: bytes) -> bytes:
    with connected(path) as client:
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(request)
        return received(client)


def get(path: str, target: str, method: str = "GET") -> tuple[int, bytes, bytes]:
    answer = raw_response(
        path, f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head, body


def answer(place: str | int, target: str) -> tuple[int, str]:
    """Return status and body of PLACE's response for TARGET; 0 and "" if there is no response."""
    try:
        with connected(place) as client:
            client.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
            head, _, body = received(client).partition(b"\r\n\r\n")
    except OSError:
        head, body = b"", b""
    return (int(head.split(b" ")[1]) if head else 0), body.decode()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
