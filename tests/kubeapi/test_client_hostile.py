"""API servers that are away, slow, full of work, or answer nonsense."""

from __future__ import annotations

import http.client
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest
from support.kubernetes.api_server import ApiServer
from support.kubernetes.cluster_model import cluster_of
from support.kubernetes.shared_pods import node_object
from support.waiting import PATIENCE_S, pause

from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import Server, TokenFile, in_cluster
from cdigen.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NODE = Call(method="GET", path="/api/v1/nodes/node1")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(cluster_of(node_object())) as found:
        yield found


@pytest.fixture
def opened() -> Iterator[Callable[..., Client]]:
    """Make clients, and close them at the end of the test."""
    with ExitStack() as ends:
        yield lambda at, timeout_s=PATIENCE_S: ends.enter_context(closing(Client(at, timeout_s=timeout_s)))


@pytest.fixture
def client(server: ApiServer, opened: Callable[..., Client]) -> Client:
    return opened(Server(host="127.0.0.1", port=server.server_address[1], token=lambda: "secret"))


@pytest.fixture
def raw(opened: Callable[..., Client]) -> Iterator[Callable[[bytes], Client]]:
    """Servers that answer each connection with the same bytes, drip others without an end, or close."""
    listeners: list[socket.socket] = []

    def make(data: bytes, drips: bytes = b"") -> Client:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def work() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    connection.sendall(data)
                    while drips:
                        connection.sendall(drips)
                        pause(0.05)

        threading.Thread(target=work, daemon=True).start()
        return opened(Server(host="127.0.0.1", port=listener.getsockname()[1]), timeout_s=0.5)

    yield make
    for each in listeners:
        each.close()


def test_an_object_is_read_and_a_connection_that_was_closed_is_opened_again(client: Client) -> None:
    assert client.send(NODE).body["metadata"]["name"] == "node1"  # type: ignore[index]
    client._kept[0][1].sock.shutdown(socket.SHUT_RDWR)
    assert client.send(NODE).is_done


def test_a_server_that_is_away_is_unknown_and_not_an_error(opened: Callable[..., Client]) -> None:
    reply = opened(Server(host="127.0.0.1", port=1)).send(NODE)
    assert reply.status == UNKNOWN
    assert "refused" in reply.text


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", b"garbage\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n\r\n<html>",
     b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
     b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"[" * 9000],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_unknown(raw: Callable[[bytes], Client], data: bytes) -> None:
    assert raw(data).send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


def test_a_server_that_drips_does_not_hold_us(raw: Callable[..., Client]) -> None:
    client = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", drips=b" ")
    assert client.send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 2"])
def test_a_server_that_drips_its_head_does_not_hold_us(raw: Callable[..., Client], head: bytes) -> None:
    client = raw(head, drips=b"x")
    with pytest.raises((OSError, http.client.HTTPException)):
        list(client.lines("/x", 60.0))
    assert client.send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


def test_many_threads_share_few_connections(client: Client) -> None:
    with ThreadPoolExecutor(20) as threads:
        for _ in range(3):
            assert all(reply.is_done for reply in threads.map(client.send, [NODE] * 20))
    assert 1 <= len(client._kept) <= 8


def test_what_a_server_says_is_told_in_one_short_line() -> None:
    reply = Reply(status=500, body={"message": "a\nb" * 10_000})
    assert "\n" not in reply.text
    assert len(reply.text) <= 400


def test_a_server_that_is_busy_is_asked_once_more(server: ApiServer, client: Client) -> None:
    told = iter([429])
    server.faults = lambda _, _path: next(told, None)
    assert client.send(NODE).is_done


def test_a_token_that_was_replaced_is_read_again(
    server: ApiServer, opened: Callable[..., Client], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    token = TokenFile(str(file))
    assert token() == "old"
    file.write_text("secret\n")
    at = Server(host="127.0.0.1", port=server.server_address[1], token=token)
    assert opened(at).send(NODE).is_done
    file.unlink()
    token.forget()
    assert token() == "secret"


def test_outside_of_a_cluster_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no pod of Kubernetes"):
        in_cluster(str(tmp_path), {})
    with pytest.raises(ConfigError, match="cannot be used"):
        in_cluster(str(tmp_path), {"KUBERNETES_SERVICE_HOST": "x", "KUBERNETES_SERVICE_PORT": "1"})
