"""``Client`` sends calls to the API server. The class is thread-safe and reuses its connections.

Each time limit is for a whole reply. The timeouts of the standard library are for each read. A server that
sends a byte per second would never exceed such a timeout.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import threading
import time
from contextlib import suppress

from cdigen.kubeapi.calls import UNKNOWN, Call, Reply
from cdigen.kubeapi.credentials import TokenFile
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cdigen.kubeapi.credentials import ApiServerConfig

TIMEOUT_S = 10.0
# This limit is sufficient for a page of ten pods of 1.8 MB from a busy server.
PAGE_TIMEOUT_S = 60.0
# No object is larger than 3 MiB (k8s.io/apiserver, MaxRequestBodyBytes). A page of a list has ten objects.
MAX_REPLY = 32 << 20
_CHUNK = 1 << 16
# The server closes connections that are idle for 90 s (k8s.io/apiserver, secure_serving.go).
_IDLE_S = 60.0
_MAX_IDLE = 8
_MAX_WAIT_S = 2.0
# If a server disappears, the kernel detects this after a minute (tcp(7)).
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class Client:
    """Sends calls to SERVER.

    TIMEOUT_S is the maximum time to wait for a reply. PAGE_TIMEOUT_S is the maximum time to wait for the
    reply to a raw call (``Call.is_raw``).
    """

    def __init__(
        self, server: ApiServerConfig, *, timeout_s: float = TIMEOUT_S, page_timeout_s: float = PAGE_TIMEOUT_S
    ) -> None:
        self._server = server
        self._timeout_s, self._page_timeout_s = timeout_s, page_timeout_s
        self._lock = threading.Lock()
        # The idle connections, each with the start of its idle time.
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def send(self, call: Call) -> Reply:
        """Send CALL and return the reply; its status is UNKNOWN if the reply is missing or incomplete."""
        reply, wait_s = self._send_once(call)
        if reply.status == UNKNOWN and call.method == "GET":
            reply, wait_s = self._send_once(call)  # the server may have closed an idle connection
        if reply.status == 401:
            self._reload()
            reply, wait_s = self._send_once(call)
        if reply.status == 429:  # the server has not processed the request (API priority and fairness)
            time.sleep(min(_MAX_WAIT_S, wait_s))
            reply, _ = self._send_once(call)
        return reply

    def lines(self, path: str, idle_timeout_s: float) -> Iterator[bytes]:
        """Return an iterator over the lines of the response to PATH, on a separate connection.

        IDLE_TIMEOUT_S is the limit for the time between two lines. Raise ``ApiStatusError`` if the server
        refuses the request. The iterator raises OSError or HTTPException if the connection breaks.
        """
        try:
            connection = _connect(self._server, self._timeout_s)
        except (OSError, ValueError):
            self._reload()
            raise
        try:
            answer = self._send_on(connection, Call(method="GET", path=path))
            if answer.status == 401:
                self._reload()
            if answer.status != 200:
                raise ApiStatusError(_reply(answer.status, answer.read(_CHUNK)))
        except BaseException:
            connection.close()
            raise
        return _lines(connection, answer, idle_timeout_s)

    def _reload(self) -> None:
        """Read the credentials again, because a token, a certificate or the kubeconfig may have changed."""
        server = self._server
        if isinstance(server.token, TokenFile):
            server.token.invalidate()
        if server.reload is not None:
            with suppress(ConfigError):  # the file may be incomplete while it is replaced
                self._server = server.reload()
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _send_once(self, call: Call) -> tuple[Reply, float]:
        """Send CALL; return the reply, and the time in seconds to wait before the next call."""
        try:
            connection = self._idle_connection() or _connect(self._server, self._timeout_s)
        except (OSError, ValueError) as error:
            self._reload()  # the server may have another address or CA now
            return self._unknown(error), 0.0
        try:
            answer = self._send_on(connection, call)
            wait_s = _seconds(answer.getheader("Retry-After"))
            reply = _reply(answer.status, _content(answer), is_raw=call.is_raw)
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            return self._unknown(error), 0.0
        self._keep(connection)
        return reply, wait_s

    def _send_on(self, connection: http.client.HTTPConnection, call: Call) -> _ResponseBody:
        """Send CALL on CONNECTION, and return the response after the headers have arrived.

        Raise OSError or HTTPException if there is no response. The connection is then unusable.
        """
        token = self._server.token()
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        headers = {"Accept": call.accept, "Content-Type": call.content_type, **authorization}
        headers["User-Agent"] = "cdigen"
        connection.sock.settimeout(self._page_timeout_s if call.is_raw else self._timeout_s)
        content = None if call.body is None else json.dumps(call.body)
        connection.request(call.method, self._server.prefix + call.path, content, headers)
        answer: Any = connection.getresponse()
        return answer  # type: ignore[no-any-return]  # response_class

    def _unknown(self, error: Exception) -> Reply:
        address = f"{self._server.host}:{self._server.port}"
        reason = f"no valid response from {address}: {error or type(error).__name__}"
        return Reply(status=UNKNOWN, body={}, reason=reason)

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        with self._lock:
            while self._idle:
                since_s, connection = self._idle.pop()
                if time.monotonic() - since_s < _IDLE_S:
                    return connection
                connection.close()
        return None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if connection.sock is not None and len(self._idle) < _MAX_IDLE:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()


class ApiStatusError(Exception):
    """The server refuses a request; ``reply`` has the reason."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.text)
        self.reply = reply


def _lines(
    connection: http.client.HTTPConnection, answer: _ResponseBody, idle_timeout_s: float
) -> Iterator[bytes]:
    try:
        answer.set_deadline(time.monotonic() + idle_timeout_s)
        while line := answer.readline(MAX_REPLY):
            yield line
            answer.set_deadline(time.monotonic() + idle_timeout_s)
    finally:
        answer.close()
        connection.close()


def _content(answer: _ResponseBody) -> bytes:
    content = bytearray()
    while part := answer.read1(_CHUNK):
        content += part
        if len(content) > MAX_REPLY:
            raise OSError(f"the response has more than {MAX_REPLY >> 20} MiB")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    answer.close()  # read1 does not close the response, and an open response blocks the next request
    return bytes(content)


def _reply(status: int, content: bytes, *, is_raw: bool = False) -> Reply:
    if is_raw and 200 <= status < 300:
        return Reply(status=status, body={}, content=content)
    try:
        body = json.loads(content) if content else {}
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        return Reply(status=status, body=body)
    # Such a reply may be the page of a proxy. If the status is a success, the result of the request is
    # unknown.
    reason = f"status {status}, the body is not a JSON object"
    return Reply(status=UNKNOWN if 200 <= status < 300 else status, body={}, reason=reason)


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 6 else 1.0


class _ResponseBody(http.client.HTTPResponse):
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


def _connect(server: ApiServerConfig, timeout_s: float) -> http.client.HTTPConnection:
    """Return a new connection to SERVER, or raise OSError or ValueError; TIMEOUT_S is for each step."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
    connection.auto_open = 0  # the base class would open a connection without TLS
    connection.response_class = _ResponseBody
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
