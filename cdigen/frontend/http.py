"""Metrics and health over HTTP, on a unix socket and, if asked, on a loopback port: ``Server``.

    GET /metrics   what Prometheus scrapes
    GET /healthz   200 while the daemon's loop is alive, else 503 and why
    GET /readyz    200 when containers can count on the vendors asked for, else 503 and why

waitress parses and answers; nothing that a client sends reaches anything but these three. It closes idle
connections, but one that sends a byte a second is never idle and holds its place for ever, so connections
here have an age instead: see ``_shed``.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from contextlib import suppress
from errno import EACCES, EAFNOSUPPORT, EPERM

from waitress import wasyncore  # type: ignore[import-untyped]  # waitress ships no types
from waitress.server import create_server  # type: ignore[import-untyped]  # likewise

from cdigen.frontend.metrics import CONTENT_TYPE
from cdigen.host.root import reason, shown
from cdigen.model.errors import ConfigError, StoreError
from cdigen.store.failures import store_error
from cdigen.value import frozen
from cdigen.watch.triggers import Trigger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

SOCKET_FILE = "http.sock"
SOCKET_MODE = 0o660
LOOPBACK = ("127.0.0.1", "::1")
# An honest client has its answer in milliseconds. Prometheus connects anew for its next scrape.
MAX_AGE_S = 5.0
MAX_CONNECTIONS = 16
STOP_S = 0.8
_MAX_PATH = 107  # sun_path of unix(7), less the NUL
_PLAIN = "text/plain; charset=utf-8"
_TICK_S = 0.5
# What systemd says with RestrictAddressFamilies= (systemd.exec(5)), and a kernel without IP.
_REFUSALS = {EAFNOSUPPORT, EPERM, EACCES}
_NO_NETWORK = (
    "the service may not use the network: copy http-port.conf.example, which lies with the documentation, to "
    "/etc/systemd/system/cdigen.service.d/http-port.conf"
)
_LIMITS = {
    "threads": 1,
    "backlog": 64,
    # More than we let live (the listeners count as well), so that accepting never stops.
    "connection_limit": 4 * MAX_CONNECTIONS,
    "channel_timeout": int(MAX_AGE_S),
    "max_request_header_size": 8192,
    # No request of ours has a body. waitress refuses what is as large as the limit.
    "max_request_body_size": 1,
    # Pipelined requests of one read are all answered: with so few bytes, they are not many.
    "recv_bytes": 1024,
    # Above this, waitress would make temporary files, for which a hardened service may have no place.
    "outbuf_overflow": 16 << 20,
    "log_socket_errors": False,
    "expose_tracebacks": False,
    "ident": "cdigen",
    "server_name": "localhost",
}


@frozen
class Answers:
    """What is served: each is asked at every request, in the server's thread, and must not block.

    ``alive`` and ``ready`` return "" or why not.
    """

    metrics: Callable[[], bytes]
    alive: Callable[[], str]
    ready: Callable[[], str]


class Server:
    """Serves ANSWERS on the unix socket PATH and, where PORT is not 0, on that port of a loopback HOST.

    It is a source (``watch.source``) that has nothing to say but that its thread has ended: so the supervisor
    starts it again when its socket was removed, or while a port is in use by others.
    """

    name = "http"

    def __init__(
        self,
        answers: Answers,
        path: str,
        *,
        port: int = 0,
        host: str = LOOPBACK[0],
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        if host not in LOOPBACK:
            raise ConfigError(
                f"HTTP is not served on {shown(host)}: only on {' or '.join(LOOPBACK)}",
                hint="let a reverse proxy with authentication serve it to other hosts",
            )
        self._answers = answers
        self._path = path
        self._address = (host, port)
        self._max_age_s = max_age_s
        self._map: dict[int, Any] = {}
        self._born: dict[Any, float] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._servers: list[Any] = []
        self._made: tuple[int, int] | None = None
        self._refusal = ""

    def start(self, put: Callable[[Trigger], None] | None = None) -> None:
        """Bind the sockets and serve them in a thread.

        A port that cannot be bound is a ``problem``, not an error. StoreError: the unix socket cannot be.
        """
        sockets = [_bind_unix(self._path)]
        self._made = _identity(self._path)
        self._refusal = ""
        if self._address[1]:
            try:
                sockets.append(_bind_loopback(self._address))
            except StoreError as error:
                self._refusal = f"{error.message} ({error.hint})"
        application = _Application(self._answers)
        # New ones, not those of a thread that may still hang.
        self._stopping, self._map, self._born = threading.Event(), {}, {}
        # One for each: waitress refuses to serve two families with one.
        self._servers = [
            create_server(application, map=self._map, sockets=[each], **_LIMITS) for each in sockets
        ]
        self._thread = threading.Thread(
            target=self._serve, args=(self._map, self._stopping, put), name=self.name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End within a second, whatever the clients do, and remove the unix socket."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping.set()
        with suppress(OSError):  # the thread has ended, and closed its trigger
            self._servers[0].pull_trigger()
        thread.join(STOP_S)
        for server in self._servers:
            server.task_dispatcher.shutdown(timeout=0.1)
        self._unlink()

    def problem(self) -> str:
        """Return why somebody is not served, "" where all is well."""
        if self._thread is None:
            return "not started"
        if not self._thread.is_alive():
            return "the thread that serves HTTP has ended"
        if _identity(self._path) != self._made:
            return f"{shown(self._path)} was removed"
        return self._refusal

    def _serve(
        self, map_: dict[int, Any], stopping: threading.Event, put: Callable[[Trigger], None] | None
    ) -> None:
        try:
            while not stopping.is_set():
                # Without clients nothing wakes us but a new one, or ``stop``.
                timeout = _TICK_S if self._born else None
                wasyncore.loop(timeout=timeout, use_poll=True, map=map_, count=1)
                self._shed(time.monotonic())
        finally:
            wasyncore.close_all(map_, ignore_all=True)
            if put is not None and not stopping.is_set():
                put(Trigger(source=self.name, reason="stopped by itself"))

    def _shed(self, now: float) -> None:
        """Close connections that are too old, and of too many the oldest.

        The oldest, because an honest client is done long before it is one of them: a crowd of slow clients
        pushes out its own.
        """
        living = [channel for server in self._servers for channel in server.active_channels.values()]
        self._born = {channel: self._born.get(channel, now) for channel in living}
        excess = len(living) - MAX_CONNECTIONS
        for position, (channel, born) in enumerate(sorted(self._born.items(), key=lambda item: item[1])):
            if position < excess or now - born > self._max_age_s:
                channel.handle_close()
                del self._born[channel]

    def _unlink(self) -> None:
        if self._made is not None and _identity(self._path) == self._made:
            with suppress(OSError):
                os.unlink(self._path)


class _Application:
    """The WSGI application: what is asked for, answered by ``Answers``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, kind, body = self._answer(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        if status.startswith("405"):
            headers.append(("Allow", "GET, HEAD"))
        start_response(status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        if path not in {"/metrics", "/healthz", "/readyz"}:
            return "404 Not Found", _PLAIN, b"here are /metrics, /healthz and /readyz\n"
        if method not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", _PLAIN, b"only GET and HEAD\n"
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE, self._answers.metrics()
        problem = self._answers.alive() if path == "/healthz" else self._answers.ready()
        text = f"{shown(problem) if problem else 'ok'}\n".encode("utf-8", "replace")
        return "503 Service Unavailable" if problem else "200 OK", _PLAIN, text


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells the file PATH from any other; None: it is not there."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bind_unix(path: str) -> socket.socket:
    if len(os.fsencode(path)) > _MAX_PATH:
        raise StoreError(
            f"{shown(path)}: the path of a socket can have {_MAX_PATH} bytes at most",
            hint="choose a shorter run_dir",
        )
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        # The file gets this mode less the umask (unix_bind in the kernel), so it is never open to more.
        os.fchmod(made.fileno(), SOCKET_MODE)
        made.bind(path)
        os.chmod(path, SOCKET_MODE)
    except OSError as error:
        made.close()
        raise store_error("cannot make the socket", path, error) from error
    except StoreError:
        made.close()
        raise
    return made


def _remove_stale(path: str) -> None:
    """Remove the socket that a dead daemon left at PATH; StoreError for anything else that is there."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreError(f"{shown(path)} is there and is no socket of ours", hint="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
    raise StoreError(f"{shown(path)} is in use by another process", hint="end the other daemon")


def _bind_loopback(address: tuple[str, int]) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = None
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        if made is not None:
            made.close()
        hint = _NO_NETWORK if error.errno in _REFUSALS else "choose another http_port, or end who has it"
        raise StoreError(f"cannot listen on {host} port {port}: {reason(error)}", hint=hint) from error
    return made
