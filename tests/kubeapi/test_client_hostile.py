"""API servers that are unreachable, slow or overloaded, or send invalid responses."""

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
from support.kubernetes.gpu_memory_pods import node_object
from support.waiting import PATIENCE_S, pause

from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubeapi.client import Client
from cdigen.kubeapi.credentials import ApiServerConfig, TokenFile, in_cluster
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
def new_client() -> Iterator[Callable[..., Client]]:
    """Yield a function that makes a client; each client is closed at the end of the test."""
    with ExitStack() as ends:
        yield lambda at, timeout_s=PATIENCE_S: ends.enter_context(closing(Client(at, timeout_s=timeout_s)))


@pytest.fixture
def client(server: ApiServer, new_client: Callable[..., Client]) -> Client:
    return new_client(
        ApiServerConfig(host="127.0.0.1", port=server.server_address[1], token=lambda: "secret")
    )


@pytest.fixture
def raw(new_client: Callable[..., Client]) -> Iterator[Callable[[bytes], Client]]:
    """Yield a function that makes a client; its server sends DATA, and then slowly sends DRIPS, or closes."""
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
        return new_client(ApiServerConfig(host="127.0.0.1", port=listener.getsockname()[1]), timeout_s=0.5)

    yield make
    for each in listeners:
        each.close()


def test_a_client_reads_an_object_and_replaces_a_closed_connection(client: Client) -> None:
    assert client.send(NODE).body["metadata"]["name"] == "node1"  # type: ignore[index]
    client._idle[0][1].sock.shutdown(socket.SHUT_RDWR)
    assert client.send(NODE).is_done


def test_the_reply_of_an_unreachable_server_has_the_status_unknown(new_client: Callable[..., Client]) -> None:
    reply = new_client(ApiServerConfig(host="127.0.0.1", port=1)).send(NODE)
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
def test_an_incomplete_or_invalid_response_has_the_status_unknown(
    raw: Callable[[bytes], Client], data: bytes
) -> None:
    assert raw(data).send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


def test_a_slow_body_exceeds_the_deadline(raw: Callable[..., Client]) -> None:
    client = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", drips=b" ")
    assert client.send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 2"])
def test_slow_headers_exceed_the_deadline(raw: Callable[..., Client], head: bytes) -> None:
    client = raw(head, drips=b"x")
    with pytest.raises((OSError, http.client.HTTPException)):
        list(client.lines("/x", 60.0))
    assert client.send(Call(method="PUT", path="/x", body={})).status == UNKNOWN


def test_many_threads_share_few_connections(client: Client) -> None:
    with ThreadPoolExecutor(20) as threads:
        for _ in range(3):
            assert all(reply.is_done for reply in threads.map(client.send, [NODE] * 20))
    assert 1 <= len(client._idle) <= 8


def test_the_text_of_a_reply_is_one_short_line() -> None:
    reply = Reply(status=500, body={"message": "a\nb" * 10_000})
    assert "\n" not in reply.text
    assert len(reply.text) <= 400


def test_a_request_to_a_busy_server_is_repeated_once(server: ApiServer, client: Client) -> None:
    statuses = iter([429])
    server.faults = lambda _, _path: next(statuses, None)
    assert client.send(NODE).is_done


def test_a_replaced_token_is_read_again(
    server: ApiServer, new_client: Callable[..., Client], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    token = TokenFile(str(file))
    assert token() == "old"
    file.write_text("secret\n")
    at = ApiServerConfig(host="127.0.0.1", port=server.server_address[1], token=token)
    assert new_client(at).send(NODE).is_done
    file.unlink()
    token.invalidate()
    assert token() == "secret"


def test_outside_of_a_cluster_an_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not in a pod of Kubernetes"):
        in_cluster(str(tmp_path), {})
    with pytest.raises(ConfigError, match="cannot be used"):
        in_cluster(str(tmp_path), {"KUBERNETES_SERVICE_HOST": "x", "KUBERNETES_SERVICE_PORT": "1"})
