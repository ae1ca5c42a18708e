"""``ExtenderServer``: an HTTP or HTTPS server that passes each request to one function.

The server is based on the standard library's server, which supports TLS
(docs/decisions/0018-http-server-with-tls.md). Slow clients do not block other clients, because a request must
arrive within seconds. If the number of connections has reached the limit, a new connection replaces the
connection that has waited longest for its client.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import socket
import ssl
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from cdigen.host.root import reason
from cdigen.kubeapi.tls import ReloadingTlsContext, no_password
from cdigen.model.errors import StoreError
from cdigen.service.http import Response
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cdigen.watch.triggers import Trigger

    # Method, path and body.
    Answer = Callable[[str, str, bytes], Response]

# A filter request with the names of 5,000 nodes has 300 kB. A request with 1,000 whole Node objects exceeds
# this limit.
MAX_BODY = 8 << 20
MAX_CONNECTIONS = 64
# At most MAX_LARGE bodies above LARGE_BODY bytes are processed at a time, because a pod's memory is limited.
LARGE_BODY, MAX_LARGE = 1 << 20, 4
# The time limit of a client for a handshake, for a request, or for reading the response.
REQUEST_S = 10.0
# The time limit of an idle connection. Go's clients, such as kube-scheduler, close idle connections after 90
# s (net/http, DefaultTransport). So the server never closes a connection while a request is being
# transferred.
IDLE_S = 120.0
# The time limit at shutdown for requests in progress.
DRAIN_S = 15.0
# The time for which a pod accepts connections after SIGTERM, because its endpoint may still be in use
# (kubernetes.io, "Pod Lifecycle", on the removal of endpoints).
LINGER_S = 3.0
# These paths need no authorization, because they have no data of the cluster.
OPEN = frozenset({"/healthz", "/readyz", "/version"})
_TOO_LARGE = "the request is larger than 8 MiB: set 'nodeCacheCapable: true' for this extender\n"


@frozen
class Access:
    """The TLS files and the requirements for clients.

    ``certificate`` and ``key`` are files, or "" for no TLS. ``client_ca`` is the file with the CA of client
    certificates, or "" if clients need no certificate. If ``client_names`` is not empty, a client certificate
    must have one of these names. A client without a certificate may only read the paths in ``OPEN``, because
    the kubelet's probes have no certificate. ``token`` returns the token that clients must send.
    """

    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    client_names: frozenset[str] = frozenset()
    token: Callable[[], str] | None = None


class ExtenderServer:
    """Serves the clients that ACCESS permits, at HOST and PORT; ANSWER returns the responses.

    The server is a ``Source`` of the runner (``cdigen.watch.supervisor``). REQUEST_S is the time limit of a
    client. LINGER_S is the time for which ``stop`` still accepts connections. SLEEP waits for this time.
    """

    name = "extender-http"

    def __init__(  # noqa: PLR0913 - each parameter is a setting of a server
        self,
        host: str,
        port: int,
        answer: Answer,
        access: Access,
        *,
        request_s: float = REQUEST_S,
        linger_s: float = 0.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.port = port
        self._linger_s = linger_s
        self._sleep = sleep
        self._request_s = request_s
        self._host = host
        self._answer = answer
        self._access = access
        self._server: _Listener | None = None
        self._thread: threading.Thread | None = None

    def start(self, _put: Callable[[Trigger], None] | None = None) -> None:
        """Bind and serve in a thread, or raise StoreError if the address or the TLS files cannot be used."""
        try:
            tls = _tls_context(self._access) if self._access.certificate else None
            server = _Listener((self._host, self.port), self._answer, self._access, tls)
            server.request_s = self._request_s
        except (OSError, ValueError) as error:
            address = f"{self._host}:{self.port}"
            problem = reason(error) if isinstance(error, OSError) else str(error)
            if isinstance(error, OSError) and error.filename:
                problem = f"{error.filename}: {problem}"
            raise StoreError(
                f"{address} cannot be served: {problem}", hint="see --listen and --tls-*"
            ) from None
        self.port = server.server_address[1]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.2,), name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Accept connections for another ``linger_s``, then drain open connections within DRAIN_S."""
        server, self._server = self._server, None
        if server is not None:
            server.is_stopping = True
            self._sleep(self._linger_s)
            server.shutdown()
            server.server_close()
            server.drain(time.monotonic() + DRAIN_S)

    def problem(self) -> str:
        """Return the reason why the server does not serve, or ""."""
        if self._thread is None or not self._thread.is_alive():
            return "the thread that accepts connections has ended"
        return ""


def _tls_context(access: Access) -> ReloadingTlsContext:
    def make_context() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(access.certificate, access.key or None, password=no_password)
        if access.client_ca:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(access.client_ca)
        return context

    files = [each for each in (access.certificate, access.key, access.client_ca) if each]
    return ReloadingTlsContext(files, make_context)


class _Listener(HTTPServer):
    """Accepts at most MAX_CONNECTIONS connections; each connection has a thread."""

    allow_reuse_address = True
    request_queue_size = 128
    request_s = REQUEST_S

    def __init__(
        self, address: tuple[str, int], answer: Answer, access: Access, tls: ReloadingTlsContext | None
    ) -> None:
        self.answer, self.access, self.tls = answer, access, tls
        self._lock = threading.Lock()
        # The connections that wait for their client, with the start and the limit of the wait. A connection
        # with a request in progress is not in this mapping.
        self.waiting: dict[socket.socket, tuple[float, float]] = {}
        self.large = threading.BoundedSemaphore(MAX_LARGE)
        # is_stopping: each response is the last response of its connection. is_draining: the server closes
        # each connection that waits for its client.
        self.is_stopping = self.is_draining = False
        self._connections: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Request)

    def server_bind(self) -> None:
        """Bind without the DNS query for the host's name that the base class sends."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "cdigen", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve the connection in its own thread if the number of connections permits it."""
        if not self._admit(request):
            self.shutdown_request(request)
            return
        work = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        try:
            work.start()
        except RuntimeError:  # the system permits no more threads
            self._forget(request)
            self.shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections whose client has exceeded the time limit; called a few times per second."""
        now_s = time.monotonic()
        with self._lock:
            late = [each for each, (since_s, limit_s) in self.waiting.items() if now_s > since_s + limit_s]
            for each in late:
                del self.waiting[each]
                _shut_down(each)

    def wait_for(self, connection: socket.socket, limit_s: float) -> None:
        """Record that CONNECTION waits for its client from now on, for at most LIMIT_S."""
        with self._lock:
            if connection in self._connections:
                self.waiting[connection] = (time.monotonic(), limit_s)
                if self.is_draining:
                    _shut_down(connection)

    def has_request(self, connection: socket.socket) -> None:
        """Record that the request of CONNECTION is complete and in progress."""
        with self._lock:
            self.waiting.pop(connection, None)

    def drain(self, until_s: float) -> None:
        """Close waiting connections at once, and other connections after their response or at UNTIL_S."""
        with self._lock:
            self.is_draining = True
            for each in self.waiting:
                _shut_down(each)
        while time.monotonic() < until_s and self._connections:
            time.sleep(0.02)
        with self._lock:
            for each in self._connections:
                _shut_down(each)

    def handle_error(self, _request: Any, _client_address: Any) -> None:
        """Log nothing, because clients may close connections, and responses report the errors of routes."""

    def _admit(self, connection: socket.socket) -> bool:
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                if not self.waiting:
                    return False
                oldest = min(self.waiting, key=lambda each: self.waiting[each][0])
                del self.waiting[oldest]
                self._connections.discard(oldest)
                _shut_down(oldest)
            self._connections.add(connection)
            self.waiting[connection] = (time.monotonic(), self.request_s)
        return True

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
            self.waiting.pop(connection, None)

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        served = connection
        try:
            connection.settimeout(self.request_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                served = self.tls().wrap_socket(connection, server_side=True)
                with self._lock:  # the wrapper owns the descriptor now
                    if connection not in self._connections:
                        return  # a newer connection has replaced this connection
                    self._connections.remove(connection)
                    self._connections.add(served)
                    since = (time.monotonic(), self.request_s)
                    self.waiting[served] = self.waiting.pop(connection, since)
            self.finish_request(served, client_address)
        except (OSError, ValueError):
            pass  # the handshake failed, or the client has closed the connection
        finally:
            self._forget(connection)
            self._forget(served)
            self.shutdown_request(served)


class _Request(BaseHTTPRequestHandler):
    """Reads a request within the limits and sends the response."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # headers and body in one packet
    server_version = "cdigen"
    sys_version = ""
    server: _Listener
    _has_answered = False

    def do_GET(self) -> None:
        """Send the response to a GET request."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # The server would read the body as the next request.
            self._refuse(400, "a GET request must not have a body\n")
        elif self._is_allowed():
            self._serve(b"")

    def do_POST(self) -> None:
        """Send the response to a POST request after its body has arrived."""
        length = self.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdecimal() and len(length) < 12
        if self.path in OPEN:
            self._refuse(405, "this path allows only GET\n", ("Allow", "GET"))
        elif "Transfer-Encoding" in self.headers or not is_number:
            self._refuse(411, "a body needs a Content-Length\n")
        elif int(length) > MAX_BODY:
            self._refuse(413, _TOO_LARGE)
        elif self._is_allowed():
            self._serve_body(int(length))

    def _serve_body(self, length: int) -> None:
        is_large = length > LARGE_BODY
        if is_large and not self.server.large.acquire(blocking=False):
            self._refuse(503, "too many large requests in progress\n", ("Retry-After", "1"))
            return
        try:
            body = self.rfile.read(length)
            if len(body) == length:
                self._serve(body)
            else:
                self.close_connection = True
        finally:
            if is_large:
                self.server.large.release()

    def handle_one_request(self) -> None:
        """Wait for the next request of this connection and send the response."""
        if not self._has_more():
            self.close_connection = True
            return
        super().handle_one_request()

    def _has_more(self) -> bool:
        """Return whether a request begins in time; the first request has a lower limit than later ones."""
        limit_s = IDLE_S if self._has_answered else self.server.request_s
        self.server.wait_for(self.connection, limit_s)
        try:
            self.connection.settimeout(limit_s)
            has_data = bool(self.rfile.peek(1))  # type: ignore[attr-defined]  # it is a BufferedReader
            self.connection.settimeout(self.server.request_s)
        except (OSError, ValueError):
            return False
        self.server.wait_for(self.connection, self.server.request_s)
        return has_data

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class has this name
        """Log nothing, because any client could fill the log."""

    def _serve(self, body: bytes) -> None:
        self.server.has_request(self.connection)
        try:
            answer = self.server.answer(self.command, self.path.partition("?")[0], body)
        except Exception as error:  # noqa: BLE001 - an error must affect only one request
            answer = Response(body=f"{type(error).__name__}: {error}\n".encode(), status="500 Internal")
        self._send(answer)

    def _is_allowed(self) -> bool:
        access = self.server.access
        if self.path in OPEN:
            return True
        if access.client_ca and not _has_certificate(self.connection):
            self._refuse(403, "a client certificate from the CA in --client-ca is required\n")
        elif access.client_names and not access.client_names & _names(self.connection):
            self._refuse(403, "the client certificate has none of the names in --client-name\n")
        elif access.token and not _has_token(self.headers.get("Authorization", ""), access.token()):
            self._refuse(401, "the token is missing or wrong\n", ("WWW-Authenticate", "Bearer"))
        else:
            return True
        return False

    def _refuse(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        self.close_connection = True  # the body was not read
        line = f"{status} {HTTPStatus(status).phrase}"
        self._send(Response(body=text.encode(), status=line, headers=(("Connection", "close"), *headers)))

    def _send(self, answer: Response) -> None:
        headers = answer.headers
        if self.server.is_stopping and not self.close_connection:
            self.close_connection = True
            headers = (*headers, ("Connection", "close"))
        if not self.server.is_draining:
            self.server.wait_for(self.connection, self.server.request_s)
        self._has_answered = True
        code, _, phrase = answer.status.partition(" ")
        self.send_response(int(code), phrase)
        for name, value in (
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)


def _shut_down(connection: socket.socket) -> None:
    """Shut down the socket of CONNECTION without TLS messages, because another thread may use CONNECTION."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _has_certificate(connection: socket.socket) -> bool:
    """Return whether CONNECTION's client has a certificate; an invalid certificate fails the handshake."""
    return isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert(binary_form=True))


def _names(connection: socket.socket) -> set[str]:
    """Return the common name and the alternative names of the verified certificate of CONNECTION's client."""
    found = connection.getpeercert() if isinstance(connection, ssl.SSLSocket) else None
    certificate: Mapping[str, Any] = found or {}
    subject = [each for part in certificate.get("subject", ()) for each in part]
    common = {value for key, value in subject if key == "commonName"}
    return common | {value for _, value in certificate.get("subjectAltName", ())}


def _has_token(authorization: str, token: str) -> bool:
    """Return whether AUTHORIZATION has TOKEN, as Bearer token or as Basic password of any user.

    The configuration of kube-scheduler has no token for an extender, but the URL may have a user and a
    password.
    """
    scheme, _, credentials = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            decoded = base64.b64decode(credentials, validate=True).decode("utf-8", "replace")
            credentials = decoded.partition(":")[2]
        except (ValueError, binascii.Error):
            return False
    elif scheme.lower() != "bearer":
        return False
    return bool(token) and hmac.compare_digest(credentials.strip().encode(), token.encode())
