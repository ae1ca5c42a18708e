"""Connections to the API server: ``connect`` opens one, ``ask`` sends a request on it and returns the answer.

Everything has its time as a whole: the standard library's timeouts are for each read alone, and a server that
sends a byte a second would hold us for ever.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cdigen.kubeapi.calls import Call
    from cdigen.kubeapi.credentials import Server

# A server that is gone without a word is noticed after a minute (tcp(7)).
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class Answer(http.client.HTTPResponse):
    """An answer whose parts have to come before ``until_s`` (time.monotonic), which may be moved."""

    def __init__(self, sock: socket.socket, *rest: Any, **more: Any) -> None:
        self._parts = _Parts(sock)
        super().__init__(self, *rest, **more)  # type: ignore[arg-type]  # it asks for ``makefile`` alone

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what the answer is read from."""
        return io.BufferedReader(self._parts)

    def wait_until(self, until_s: float) -> None:
        """Have everything from now on come before UNTIL_S."""
        self._parts.until_s = until_s


class _Parts(io.RawIOBase):
    """What comes from SOCK before ``until_s``; TimeoutError after it."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        # It keeps the descriptor open: the connection may be closed before the answer is read.
        self._raw = sock.makefile("rb", buffering=0)
        self.until_s = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        """Return that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read into BUFFER; returns how many bytes came."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("its answer takes too long")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


def connect(server: Server, timeout_s: float) -> http.client.HTTPConnection:
    """Open a connection to SERVER within TIMEOUT_S for each of its steps. OSError, ValueError: it fails."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
    connection.auto_open = 0  # by itself it would open one without TLS
    connection.response_class = Answer
    connection.connect()
    try:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, number in _KEEPALIVE.items():
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
        if server.contexts is not None:
            name = server.tls_name or server.host
            connection.sock = server.contexts().wrap_socket(connection.sock, server_hostname=name)
    except BaseException:
        connection.close()
        raise
    return connection


def ask(
    connection: http.client.HTTPConnection,
    call: Call,
    headers: Mapping[str, str],
    *,
    prefix: str,
    timeout_s: float,
) -> Answer:
    """Send CALL on CONNECTION, its path below PREFIX; returns the answer once its head is there.

    That and the rest of the answer have TIMEOUT_S, unless it is moved (``Answer.wait_until``).
    OSError, HTTPException: there is none, and the connection is of no more use.
    """
    connection.sock.settimeout(timeout_s)
    content = None if call.body is None else json.dumps(call.body)
    connection.request(call.method, prefix + call.path, content, headers)
    answer: Any = connection.getresponse()
    return answer  # type: ignore[no-any-return]  # our response_class
