"""``HttpServer``: serves the routes of one or more addresses; ``local_server``: those of most processes."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from contextlib import ExitStack, suppress
from errno import EACCES, EAFNOSUPPORT, EPERM
from functools import partial

from cdigen import page_url
from cdigen.host.root import reason, shown
from cdigen.model.errors import StoreError
from cdigen.service.http.client import ClientLimits, ConnectionTable
from cdigen.service.http.messages import refuse
from cdigen.service.rundir import present_identity
from cdigen.store.failures import store_error
from cdigen.value import frozen
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from cdigen.service.http.messages import RequestHead
    from cdigen.service.http.routes import Routes
    from cdigen.watch.triggers import Trigger

SOCKET_FILE = "http.sock"
SOCKET_MODE = 0o660
LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_MAX_PATH = 107  # sun_path of unix(7) without the NUL
# The errors under systemd's RestrictAddressFamilies= (systemd.exec(5)), and the errors of a kernel without
# IP.
_REFUSALS = {EAFNOSUPPORT, EPERM, EACCES}
_NO_NETWORK = (
    f"install the drop-in http-port.conf, which permits the network ({page_url('how-to/monitoring')})"
)
# The time limit for the end of requests in progress, and the time after which a thread that hangs is left.
DRAIN_S, LEAVE_S = 0.5, 0.3
_LOCAL = ClientLimits()


class BoundSocket:
    """A socket that listens at ADDRESS, which is the path of a unix socket, or a host and a port.

    TLS returns the TLS context for the next connection; None if the socket serves no TLS. ``port`` is 0 for a
    unix socket. The constructor raises OSError if the address cannot be used.
    """

    def __init__(
        self, address: str | tuple[str, int], tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self.tls = tls
        self._path = address if isinstance(address, str) else ""
        host = "" if isinstance(address, str) else address[0]
        family = socket.AF_UNIX if self._path else socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)  # noqa: FBT003 - the socket module's own signature
            if self._path:
                # ``bind`` makes the file with this mode, minus the umask (unix_bind in the kernel).
                os.fchmod(made.fileno(), SOCKET_MODE)
            else:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            if self._path:
                os.chmod(self._path, SOCKET_MODE)
            made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
        self.port = 0 if self._path else int(made.getsockname()[1])
        self._identity = present_identity(self._path)

    def problem(self) -> str:
        """Return the reason why no client can connect, or ""."""
        return f"{shown(self._path)} was removed" if present_identity(self._path) != self._identity else ""

    def close(self) -> None:
        """Close the socket, and remove its file if the file is still that of this socket."""
        self.listener.close()
        if self._path and not self.problem():
            with suppress(OSError):
                os.unlink(self._path)


@frozen
class Address:
    """An address of a server, and its routes.

    ``bind`` returns a listening socket, or raises StoreError. ``check`` raises RefusedRequest for a request
    that is not permitted, by its head and its TLS connection. If ``is_optional``, the server also works if
    ``bind`` raises an error.
    """

    routes: Routes
    bind: Callable[[], BoundSocket]
    check: Callable[[RequestHead, ssl.SSLObject | None], None] = lambda _head, _tls: None
    is_optional: bool = False


def local_server(
    routes: Routes, run_dir: str, port: int, port_routes: Routes | None = None, limits: ClientLimits = _LOCAL
) -> HttpServer:
    """Return a server of ROUTES on the socket of RUN_DIR, and on the loopback port PORT if PORT is not 0.

    Only root and its group can use the socket. Every user and every browser of the host can reach the port,
    where PORT_ROUTES replace routes.
    """
    # No browser uses the socket, and a proxy may pass any host name, so host names are not checked.
    addresses = [Address(routes=routes, bind=partial(_bind_unix, f"{run_dir}/{SOCKET_FILE}"))]
    if port:
        on_port = Address(
            routes={**routes, **(port_routes or {})},
            bind=partial(_bind_loopback, port),
            check=lambda head, _: refuse(head, port),
            is_optional=True,
        )
        addresses.append(on_port)
    return HttpServer(*addresses, limits=limits)


class HttpServer:
    """Serves the routes of ADDRESSES in one thread with an asyncio loop.

    LIMITS are for each address, because any user can flood the port: a flood evicts no client of the unix
    socket.
    A route must return within seconds. If as many routes as LIMITS permits block, all requests to the address
    wait. The server is a ``Source`` with a single event, the end of its thread. The supervisor restarts the
    server if a socket is removed or a port is in use. LINGER_S is the time for which ``stop`` still accepts
    connections, and SLEEP waits for this time. Then requests in progress have DRAIN_S.
    """

    name = "http"

    def __init__(
        self,
        *addresses: Address,
        limits: ClientLimits = _LOCAL,
        linger_s: float = 0.0,
        drain_s: float = DRAIN_S,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._addresses = addresses
        self._limits = limits
        self._linger_s = linger_s
        self._drain_s = drain_s
        self._sleep = sleep
        self._tables: list[ConnectionTable] = []
        self._refusal = ""
        self._worker = Worker(self.name)
        self._end: Callable[[], object] = bool

    def start(self, put: Callable[[Trigger], None] = lambda _: None) -> None:
        """Bind the addresses and serve them in a thread.

        An optional address that cannot be bound is a ``problem``, not an error. Raises StoreError if another
        address cannot be bound, and OSError if no thread can be started.
        """
        self._refusal = ""
        with ExitStack() as undo:
            undo.callback(self._close)
            for address in self._addresses:
                try:
                    self._tables.append(ConnectionTable(address, address.bind(), self._limits))
                except StoreError as error:
                    if not address.is_optional:
                        raise
                    self._refusal = f"{error.message} ({error.hint})"
            runner = undo.enter_context(asyncio.Runner(loop_factory=asyncio.new_event_loop))
            stopped = asyncio.Event()
            self._end = partial(runner.get_loop().call_soon_threadsafe, stopped.set)
            self._worker.start(partial(_run, runner, self._tables, stopped, self._drain_s), put)
            undo.pop_all()

    def stop(self) -> None:
        """End the server within ``linger_s``, ``drain_s`` and LEAVE_S, independent of the clients."""
        if self._tables and self._worker.is_running():
            for each in self._tables:
                each.is_stopping = True
            if self._linger_s:
                self._sleep(self._linger_s)
            self._worker.stopping.set()
            with suppress(RuntimeError):  # the thread has ended
                self._end()
            self._worker.stop(self._drain_s + LEAVE_S)
        self._close()

    @property
    def port(self) -> int:
        """The TCP port that the server has bound, 0 if there is none."""
        return max((each.bound.port for each in self._tables), default=0)

    def problem(self) -> str:
        """Return the reason why clients are not served, or ""."""
        if not self._tables:
            return "not started"
        problems = (self._worker.problem(), *(each.bound.problem() for each in self._tables), self._refusal)
        return next(filter(None, problems), "")

    def _close(self) -> None:
        for each in self._tables:
            each.bound.close()
        self._tables = []


def _run(
    runner: asyncio.Runner, tables: list[ConnectionTable], stopped: asyncio.Event, drain_s: float
) -> None:
    with runner:
        runner.run(_serve(tables, stopped, drain_s))


async def _serve(tables: list[ConnectionTable], stopped: asyncio.Event, drain_s: float) -> None:
    """Accept and serve connections of TABLES until STOPPED is set."""
    async with asyncio.TaskGroup() as group:
        accepting = [group.create_task(each.accept()) for each in tables]
        await stopped.wait()
        for task in accepting:
            task.cancel()
    await asyncio.gather(*(each.drain(drain_s) for each in tables))


def _bind_unix(path: str) -> BoundSocket:
    """Bind the unix socket PATH; the socket of an ended process is replaced."""
    if len(os.fsencode(path)) > _MAX_PATH:
        text = f"{shown(path)}: the path of a socket can have {_MAX_PATH} bytes at most"
        raise StoreError(text, hint="choose a shorter run_dir")
    try:
        _remove_stale(path)
        return BoundSocket(path)
    except OSError as error:
        raise store_error("cannot make the socket", path, error) from error


def _bind_loopback(port: int) -> BoundSocket:
    try:
        return BoundSocket((LOOPBACK, port))
    except OSError as error:
        hint = _NO_NETWORK if error.errno in _REFUSALS else "set another http_port, or end the other process"
        raise StoreError(f"cannot listen on {LOOPBACK} port {port}: {reason(error)}", hint=hint) from error


def _remove_stale(path: str) -> None:
    """Remove the socket PATH of an ended daemon; raise StoreError if PATH is not cdigen's or is in use."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise StoreError(f"{shown(path)} exists and is not a socket of cdigen", hint="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # noqa: FBT003 - the socket module's own signature
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # another process listens and is busy
    raise StoreError(f"{shown(path)} is in use by another process", hint="end the other daemon")
