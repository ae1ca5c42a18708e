"""The real daemon reads the users of GPUs from the real API socket of an engine in a host: `daemon_page`."""

import json
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.containers.chroot_host import Host
from support.daemon import host as hosts
from support.daemon.stats import got
from support.waiting import PATIENCE_S, until


class Page:
    """The page of the daemon."""

    def __init__(self, running: hosts.Daemon) -> None:
        self._running = running

    def users(self, index: int = 0) -> list[str]:
        """Return the users of the GPU with INDEX, each with its source, sorted."""
        device = json.loads(got(self._running, "/page.json")[1])["devices"][index]
        return sorted(f"{one['name']} ({one['source']})" for one in device["users"])

    def comes_to(self, users: list[str]) -> None:
        """Wait until the page has USERS for the first GPU; the daemon keeps an engine's response for 5 s."""
        assert until(lambda: self.users() == users, PATIENCE_S), self.users()
        text = got(self._running, "/")[1]
        assert all(name.rpartition(" (")[0] in text for name in users)
        assert "hunter2" not in text


class Passing(socketserver.StreamRequestHandler):
    """Forwards the data of a client to the engine, and the engine's response to the client."""

    rbufsize = 0  # a buffered read would wait for more data than a request has

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self.server.engine)  # type: ignore[attr-defined]
            requests = threading.Thread(target=self._pass_request, args=[engine], daemon=True)
            requests.start()
            with engine.makefile("rb", buffering=0) as answer:
                shutil.copyfileobj(answer, self.wfile)
            # The shutdown ends the thread's read. After this method, the server closes the thread's file.
            self.connection.shutdown(socket.SHUT_RD)
            requests.join()

    def _pass_request(self, engine: socket.socket) -> None:
        with engine.makefile("wb", buffering=0) as there:
            shutil.copyfileobj(self.rfile, there)


@contextmanager
def daemon_page(folder: Path, host: Host, path: str) -> Iterator[Page]:
    """Run a daemon on a fake host with HOST's device names; the daemon reads HOST's socket at PATH.

    The daemon follows no link out of its root. Therefore the fake host's socket forwards all data to HOST's.
    """
    own = hosts.Host(folder / "host").make()
    own.configure("page: {sockets: [/run/engine.sock]}\n")
    with socketserver.ThreadingUnixStreamServer(str(own.root / "run/engine.sock"), Passing) as passing:
        passing.daemon_threads = True
        passing.engine = f"/proc/{host.pid}/root{path}"  # type: ignore[attr-defined]
        threading.Thread(target=passing.serve_forever, daemon=True).start()
        with hosts.daemon(own) as running:
            yield Page(running)
        passing.shutdown()
