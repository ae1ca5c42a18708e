"""The real daemon asks the real API socket of an engine in a test host who has its GPUs: `looking`."""

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
from support.daemon.figures import got
from support.waiting import PATIENCE_S, until


class Page:
    """What the page of the daemon says."""

    def __init__(self, running: hosts.Daemon) -> None:
        self._running = running

    def holders(self, index: int = 0) -> list[str]:
        """Return who has the GPU of INDEX, and by whose word, sorted."""
        device = json.loads(got(self._running, "/page.json")[1])["devices"][index]
        return sorted(f"{one['name']} ({one['said_by']})" for one in device["holders"])

    def comes_to(self, holders: list[str]) -> None:
        """Wait until these have the first GPU; an answer is good for 5 s."""
        assert until(lambda: self.holders() == holders, PATIENCE_S), self.holders()
        text = got(self._running, "/")[1]
        assert all(name.rpartition(" (")[0] in text for name in holders)
        assert "hunter2" not in text


class Passing(socketserver.StreamRequestHandler):
    """Pass one client's request to the engine, and the answer back."""

    rbufsize = 0  # else it waits for more than a request

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self.server.engine)  # type: ignore[attr-defined]
            asked = threading.Thread(target=self._pass_request, args=[engine], daemon=True)
            asked.start()
            with engine.makefile("rb", buffering=0) as answer:
                shutil.copyfileobj(answer, self.wfile)
            # The thread reads until the client sends no more; its file is closed after that.
            self.connection.shutdown(socket.SHUT_RD)
            asked.join()

    def _pass_request(self, engine: socket.socket) -> None:
        with engine.makefile("wb", buffering=0) as there:
            shutil.copyfileobj(self.rfile, there)


@contextmanager
def looking(folder: Path, host: Host, path: str) -> Iterator[Page]:
    """Run the daemon of a host of its own, with the same names of devices, that asks HOST's socket at PATH.

    The daemon follows no link out of its host, so what it asks is a socket of its own that passes all on.
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
