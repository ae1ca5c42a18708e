"""``connect`` opens a connection to the API server, ``send_request`` sends a request on a connection.

Each time limit is for a whole reply. The timeouts of the standard library are for each read. A server that
sends a byte per second would never exceed such a timeout.
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
    from cdigen.kubeapi.credentials import ApiServerConfig

# If a server disappears, the kernel detects this after a minute (tcp(7)).
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ResponseBody(http.client.HTTPResponse):
    """A response that must arrive before a deadline (time.monotonic); see ``set_deadline``."""

    def __init__(self, sock: socket.socket, *rest: Any, **more: Any) -> None:
        self._parts = _Parts(sock)
        super().__init__(self, *rest, **more)  # type: ignore[arg-type]  # the base class only calls ``makefile``

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return the reader of the response."""
        return io.BufferedReader(self._parts)

    def set_deadline(self, until_s: float) -> None:
        """Set the deadline of all later reads to UNTIL_S."""
        self._parts.until_s = until_s


class _Parts(io.RawIOBase):
    """Reads from SOCK until ``until_s``; later reads raise TimeoutError."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        # This object keeps the descriptor open, because the connection may be closed before the last read.
        self._raw = sock.makefile("rb", buffering=0)
        self.until_s = time.monotonic() + (sock.gettimeout() or 0.0)

    def readable(self) -> bool:
        """Return True, because the stream is readable."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read into BUFFER; return the number of bytes."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the response takes too long")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the socket."""
        self._raw.close()
        super().close()


def connect(server: ApiServerConfig, timeout_s: float) -> http.client.HTTPConnection:
    """Return a new connection to SERVER, or raise OSError or ValueError; TIMEOUT_S is for each step."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
    connection.auto_open = 0  # the base class would open a connection without TLS
    connection.response_class = ResponseBody
    connection.connect()
    try:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, number in _KEEPALIVE.items():
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
        if server.tls is not None:
            name = server.tls_name or server.host
            connection.sock = server.tls().wrap_socket(connection.sock, server_hostname=name)
    except BaseException:
        connection.close()
        raise
    return connection


def send_request(
    connection: http.client.HTTPConnection,
    call: Call,
    headers: Mapping[str, str],
    *,
    prefix: str,
    timeout_s: float,
) -> ResponseBody:
    """Send CALL on CONNECTION, and return the response after the headers have arrived.

    PREFIX precedes the path of CALL. TIMEOUT_S is the limit for the whole response;
    ``ResponseBody.set_deadline`` can change this limit. Raise OSError or HTTPException if there is no
    response. The connection is then unusable.
    """
    connection.sock.settimeout(timeout_s)
    content = None if call.body is None else json.dumps(call.body)
    connection.request(call.method, prefix + call.path, content, headers)
    answer: Any = connection.getresponse()
    return answer  # type: ignore[no-any-return]  # response_class
