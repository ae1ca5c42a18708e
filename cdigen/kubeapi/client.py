"""Send calls to the API server: ``Client``, for any number of threads; its connections are kept open."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import suppress

from cdigen.kubeapi.calls import JSON, UNKNOWN, Call, Reply
from cdigen.kubeapi.connection import ask, connect
from cdigen.kubeapi.credentials import TokenFile
from cdigen.model.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.kubeapi.connection import Answer
    from cdigen.kubeapi.credentials import Server

TIMEOUT_S = 10.0
# For a page of ten pods of 1.8 MB from a busy server.
PAGE_TIMEOUT_S = 60.0
# No object is above 3 MiB (k8s.io/apiserver, MaxRequestBodyBytes); pages of lists have ten.
MAX_REPLY = 32 << 20
_CHUNK = 1 << 16
# The server closes what was idle for 90 s (k8s.io/apiserver, secure_serving.go), perhaps under our hands.
_IDLE_S = 60.0
_MAX_KEPT = 8
_MAX_WAIT_S = 2.0


class Client:
    """Sends calls to SERVER; a reply takes TIMEOUT_S at most, that to a raw call PAGE_TIMEOUT_S."""

    def __init__(
        self, server: Server, *, timeout_s: float = TIMEOUT_S, page_timeout_s: float = PAGE_TIMEOUT_S
    ) -> None:
        self._server = server
        self._timeout_s, self._page_timeout_s = timeout_s, page_timeout_s
        self._lock = threading.Lock()
        # Connections that wait for a call, and since when.
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []

    def send(self, call: Call) -> Reply:
        """Send CALL and return the reply; what never came, or not whole, has the status UNKNOWN."""
        reply, wait_s = self._send_once(call)
        if reply.status == UNKNOWN and call.method == "GET":
            reply, wait_s = self._send_once(call)  # a kept connection may have been closed by its other end
        if reply.status == 401:
            self._renew()
            reply, wait_s = self._send_once(call)
        if reply.status == 429:  # nothing was done (API priority and fairness)
            time.sleep(min(_MAX_WAIT_S, wait_s))
            reply, _ = self._send_once(call)
        return reply

    def lines(self, path: str, silent_s: float) -> Iterator[bytes]:
        """Return the lines of PATH as they come, on their own connection; OSError, HTTPException: it broke.

        SILENT_S is how long none may come. ``Refusal``: the server refuses, which is known at once.
        """
        try:
            connection = connect(self._server, self._timeout_s)
        except (OSError, ValueError):
            self._renew()
            raise
        try:
            answer = self._ask(connection, Call(method="GET", path=path))
            if answer.status == 401:
                self._renew()
            if answer.status != 200:
                raise Refusal(_reply(answer.status, answer.read(_CHUNK)))
        except BaseException:
            connection.close()
            raise
        return _lines(connection, answer, silent_s)

    def _renew(self) -> None:
        """Read anew who we are: a token, a certificate, or the whole kubeconfig was replaced."""
        server = self._server
        if isinstance(server.token, TokenFile):
            server.token.forget()
        if server.again is not None:
            with suppress(ConfigError):  # it is being replaced
                self._server = server.again()
        self.close()

    def close(self) -> None:
        """Close what is kept open."""
        with self._lock:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _send_once(self, call: Call) -> tuple[Reply, float]:
        """Return the reply, and how long to wait before another call."""
        try:
            connection = self._take() or connect(self._server, self._timeout_s)
        except (OSError, ValueError) as error:
            self._renew()  # it may have another address or authority now
            return self._unknown(error), 0.0
        try:
            answer = self._ask(connection, call)
            wait_s = _seconds(answer.getheader("Retry-After"))
            reply = _reply(answer.status, _content(answer), is_raw=call.is_raw)
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            return self._unknown(error), 0.0
        self._keep(connection)
        return reply, wait_s

    def _ask(self, connection: http.client.HTTPConnection, call: Call) -> Answer:
        token = self._server.token()
        given = {"Authorization": f"Bearer {token}"} if token else {}
        headers = {"Accept": JSON, "User-Agent": "cdigen", "Content-Type": call.content_type, **given}
        timeout_s = self._page_timeout_s if call.is_raw else self._timeout_s
        return ask(connection, call, headers, prefix=self._server.prefix, timeout_s=timeout_s)

    def _unknown(self, error: Exception) -> Reply:
        told = f"no answer from {self._server.host}:{self._server.port}: {error or type(error).__name__}"
        return Reply(status=UNKNOWN, body={}, reason=told)

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            while self._kept:
                since_s, connection = self._kept.pop()
                if time.monotonic() - since_s < _IDLE_S:
                    return connection
                connection.close()
        return None

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if connection.sock is not None and len(self._kept) < _MAX_KEPT:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()


class Refusal(Exception):
    """The server refuses to show something: its ``reply`` says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.text)
        self.reply = reply


def _lines(connection: http.client.HTTPConnection, answer: Answer, silent_s: float) -> Iterator[bytes]:
    try:
        answer.wait_until(time.monotonic() + silent_s)
        while line := answer.readline(MAX_REPLY):
            yield line
            answer.wait_until(time.monotonic() + silent_s)
    finally:
        answer.close()
        connection.close()


def _content(answer: Answer) -> bytes:
    content = bytearray()
    while part := answer.read1(_CHUNK):
        content += part
        if len(content) > MAX_REPLY:
            raise OSError(f"its answer has more than {MAX_REPLY >> 20} MiB")
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    answer.close()  # read1 leaves that to us, and the connection takes no other request before
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
    # A proxy's page in place of an object: of a success nobody can tell what it was.
    reason = f"status {status}, and no JSON object"
    return Reply(status=UNKNOWN if 200 <= status < 300 else status, body={}, reason=reason)


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 6 else 1.0
