"""The addresses of metrics and health: a socket in the run directory, and a loopback port."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import answer, free_port, get, server_of, serving
from support.waiting import PATIENCE_S

from cdigen.model.errors import StoreError
from cdigen.service.http.routes import Response
from cdigen.service.http.server import LOOPBACK

if TYPE_CHECKING:
    from support.daemon.http_client import Daemon

    from cdigen.service.http.routes import Route
    from cdigen.service.http.server import HttpServer


def test_the_socket_of_an_ended_daemon_is_replaced(daemon: Daemon, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(path)
    with serving(daemon.routes(), path):
        assert get(path, "/healthz")[0] == 200


def test_the_socket_of_a_running_daemon_is_not_replaced(
    daemon: Daemon, path: str, server: HttpServer
) -> None:
    with pytest.raises(StoreError, match="in use by another process"):
        server_of(daemon.routes(), path).start()
    assert get(path, "/healthz")[0] == 200
    assert server.problem() == ""


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_file_that_is_not_a_socket_of_cdigen_is_kept(
    daemon: Daemon, tmp_path: Path, path: str, kind: str
) -> None:
    foreign = Path(path)
    if kind == "file":
        foreign.write_text("mine")
    elif kind == "folder":
        foreign.mkdir()
    else:
        foreign.symlink_to(tmp_path / "elsewhere")
    before = foreign.lstat()
    with pytest.raises(StoreError, match="not a socket of cdigen"):
        server_of(daemon.routes(), path).start()
    assert foreign.lstat().st_ino == before.st_ino


def test_a_socket_of_another_process_at_the_same_path_is_not_removed(daemon: Daemon, path: str) -> None:
    with serving(daemon.routes(), path):
        os.unlink(path)
        Path(path).write_text("another's")
    assert Path(path).read_text() == "another's"


def test_a_path_too_long_for_a_socket_is_refused_with_a_message(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="107 bytes at most"):
        server_of(daemon.routes(), str(tmp_path / ("x" * 120) / "http.sock")).start()


def test_a_missing_run_directory_is_refused_with_a_message(daemon: Daemon, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot make the socket .*No such file"):
        server_of(daemon.routes(), str(tmp_path / "gone/http.sock")).start()


def test_a_loopback_port_serves_the_same_routes_as_the_socket(daemon: Daemon, path: str) -> None:
    port = free_port()
    with serving(daemon.routes(), path, port=port):
        assert answer(port, "/metrics") == (200, "cdigen_up 1\n")
        assert get(path, "/metrics")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)


def test_a_route_of_the_port_may_differ_from_the_route_of_the_socket(daemon: Daemon, path: str) -> None:
    port = free_port()
    public: dict[str, Route] = {"/metrics": lambda _: Response(body=b"nothing for all\n")}
    with serving(daemon.routes(), path, port=port, port_routes=public):
        assert answer(port, "/metrics") == (200, "nothing for all\n")
        assert answer(port, "/healthz") == (200, "ok\n")
        assert get(path, "/metrics")[2] == b"cdigen_up 1\n"


def test_a_port_in_use_is_a_problem_and_the_socket_is_served(daemon: Daemon, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with serving(daemon.routes(), path, port=port) as server:
            assert f"127.0.0.1 port {port}: Address already in use" in server.problem()
            assert get(path, "/metrics")[0] == 200
    server.start()
    assert server.problem() == ""
    server.stop()
