"""The HTTP server as a source: the supervisor detects faults of the server, and restarts the server."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.daemon.http_client import server_of
from support.daemon.watching import TriggerRecorder, kills_threads
from support.paths import REPOSITORY
from support.waiting import until

from cdigen import page_url
from cdigen.service.http.routes import standard_routes
from cdigen.watch.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUTES = standard_routes(metrics=lambda: b"x 1\n", alive=str, ready=str)


class Clock:
    """A clock that advances by two seconds at each call."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 2.0
        return self.now


@pytest.fixture
def recorder() -> TriggerRecorder:
    return TriggerRecorder()


@pytest.fixture
def supervisor(recorder: TriggerRecorder, path: str) -> Iterator[Supervisor]:
    made = Supervisor((server_of(ROUTES, path),), recorder.queue, clock=Clock())
    made.start()
    yield made
    made.stop()


def connects(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def is_restored(supervisor: Supervisor) -> bool:
    """Return whether SUPERVISOR has restarted the server. Each call advances the clock."""
    supervisor.tick()
    return supervisor.health() == {"http": ""}


@kills_threads
def test_an_ended_thread_is_reported_and_restarted(
    recorder: TriggerRecorder, path: str, supervisor: Supervisor
) -> None:
    (thread,) = [each for each in threading.enumerate() if each.name == "cdigen-http"]
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    # The thread ends when it runs Python code again.
    connects(path)
    assert recorder.receives("stopped unexpectedly")
    thread.join()
    assert supervisor.health() == {"http": "the source's thread has ended: killed"}
    assert until(lambda: is_restored(supervisor))
    assert connects(path)
    assert recorder.receives("started again")


def test_without_a_thread_the_server_is_started_again(
    path: str, recorder: TriggerRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    supervisor = Supervisor((server_of(ROUTES, path),), recorder.queue, clock=Clock())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        supervisor.start()
    assert "no thread can be started" in supervisor.health()["http"]
    assert not os.path.exists(path)
    assert until(lambda: is_restored(supervisor))
    assert connects(path)
    supervisor.stop()


def test_a_removed_socket_is_reported_and_created_again(path: str, supervisor: Supervisor) -> None:
    os.unlink(path)
    assert supervisor.health() == {"http": f"{path} was removed"}
    assert until(lambda: is_restored(supervisor))
    assert connects(path)


def test_a_socket_that_cannot_be_created_is_a_problem_until_the_obstacle_is_removed(
    path: str, recorder: TriggerRecorder
) -> None:
    os.mkdir(path)
    supervisor = Supervisor((server_of(ROUTES, path),), recorder.queue, clock=Clock())
    supervisor.start()
    assert supervisor.health() == {"http": f"{path} exists and is not a socket of cdigen (move it away)"}
    os.rmdir(path)
    assert until(lambda: is_restored(supervisor))
    assert connects(path)
    supervisor.stop()


# A child that forbids IPv4 sockets with seccomp, as RestrictAddressFamilies= of the unit does.
REFUSED = """
import ctypes, errno, struct, sys
from cdigen.service.http.routes import standard_routes
from cdigen.service.http.server import local_server
AF_INET, SYS_SOCKET = 2, 41
def statement(code, jt, jf, k):
    return struct.pack("HBBI", code, jt, jf, k)
program = b"".join([
    statement(0x20, 0, 0, 0), statement(0x15, 0, 3, SYS_SOCKET),
    statement(0x20, 0, 0, 16), statement(0x15, 0, 1, AF_INET),
    statement(0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), statement(0x06, 0, 0, 0x7FFF0000),
])
held = ctypes.create_string_buffer(program, len(program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filtered = Program(len(program) // 8, ctypes.addressof(held))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filtered), 0, 0):
    print("no seccomp")
    sys.exit(0)
server = local_server(standard_routes(metrics=bytes, alive=str, ready=str), sys.argv[1], port=9095)
server.start()
print(server.problem())
server.stop()
"""


def test_if_the_unit_permits_no_network_the_problem_names_the_drop_in(path: str) -> None:
    if os.uname().machine != "x86_64":
        cannot_run("the filter in this test has the numbers of x86_64")
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, os.path.dirname(path)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    if done.stdout.startswith("no seccomp"):
        cannot_run("no seccomp filter can be set")
    assert "port 9095: Address family not supported" in done.stdout
    assert (
        f"install the drop-in http-port.conf, which permits the network ({page_url('how-to/monitoring')})"
        in done.stdout
    )
    assert "http-port.conf.example" in (REPOSITORY / "docs/how-to/monitoring.md").read_text()
    assert (REPOSITORY / "etc/cdigen.service.d/http-port.conf.example").exists()
