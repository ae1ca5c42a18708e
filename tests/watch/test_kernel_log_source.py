"""The source of the kernel's log, with its real program as a child that reads recorded records."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.daemon.kernel_log_program import PROGRAM
from support.daemon.kernel_records import AMDGPU, XID, FakeLog, record
from support.daemon.threads import beside
from support.daemon.watching import descriptors, quickest, threads
from support.waiting import PATIENCE_S, until

from cdigen.model.errors import HostError
from cdigen.watch.kernel_log import LONGEST_LINE, MOST, KernelLogSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon.watching import Ear

    from cdigen.model.health import LogRecord

pytestmark = pytest.mark.process


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FakeLog]:
    """Return a log of which this test says what is in it."""
    with closing(FakeLog(tmp_path / "kmsg")) as log:
        yield log


@pytest.fixture
def stopped(log: FakeLog, tmp_path: Path) -> KernelLogSource:
    """Return a source that reads LOG once it is started."""
    return KernelLogSource(socket_path=str(tmp_path / "none.sock"), log=str(log.path))


@pytest.fixture
def source(stopped: KernelLogSource, ear: Ear) -> KernelLogSource:
    """Return a source that hears LOG, and tells the ear."""
    return ear.start(stopped)


def heard(source: KernelLogSource, count: int) -> list[LogRecord]:
    """Return the next COUNT records that SOURCE hears."""
    records: list[LogRecord] = []

    def are_there() -> bool:
        records.extend(source.take().records)
        return len(records) >= count

    assert until(are_there), source.problem()
    return records


def test_a_drivers_line_is_told_at_once_and_taken_once(
    source: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    log.write(record(XID[0], 7))
    assert ear.hears(XID[0][:100])
    (found,) = heard(source, 1)
    assert (found.sequence, found.text, found.device) == (7, XID[0], "")
    assert source.take().records == ()


def test_the_kernels_name_of_the_device_comes_along(source: KernelLogSource, log: FakeLog) -> None:
    log.write(record(f"{AMDGPU}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0", 8))
    (found,) = heard(source, 1)
    assert (found.text, found.device) == (AMDGPU, "+pci:0000:c1:00.0")


def test_records_that_were_lost_are_counted(source: KernelLogSource, log: FakeLog) -> None:
    log.write(record(XID[0], 7), record("usb 1-1: new device", 9), record(XID[1], 19))
    lost = 0

    def all_lost() -> bool:
        nonlocal lost
        lost += source.take().lost
        return lost == 1 + 9

    assert until(all_lost), lost


def test_what_waits_to_be_taken_is_bounded_and_nothing_is_lost(
    source: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    # As many as are not thinned out: no two say the same.
    sayings = [f"{'ghijklmnop'[number % 10]}{'q' * (number // 10)}" for number in range(5 * MOST)]
    records = [record(f"NVRM: {saying} {'-' * 200}", number) for number, saying in enumerate(sayings)]
    with beside(log.write, *records):
        assert ear.hears(f"NVRM: g {'-' * 200}"[:100])
        assert until(lambda: len(source._records) >= MOST)
        # What one read may bring comes on top.
        assert not until(lambda: len(source._records) > MOST + LONGEST_LINE // 200, within_s=0.3)
        assert [found.sequence for found in heard(source, len(records))] == list(range(len(records)))


def test_one_trigger_stands_for_all_that_was_not_taken(
    source: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    for number in range(50):
        log.write(record(XID[0], number))
        assert until(lambda expected=number + 1: len(source._records) == expected)  # type: ignore[misc]
    assert ear.inbox.take().events == 1
    source.take()
    log.write(record(AMDGPU, 50))
    assert ear.hears(AMDGPU)


def child() -> int:
    """Return the number of the one child of this process that is the program."""
    # The kernel's list leaves some out while others come and go (proc_pid_children(5)).
    found: set[int] = set()

    def look() -> bool:
        found.update(children())
        return len(found) == 1

    assert until(look)
    return found.pop()


def children() -> list[int]:
    numbers = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = [int(number) for path in numbers for number in path.read_text().split()]
    return [number for number in found if b"kernellog" in Path(f"/proc/{number}/cmdline").read_bytes()]


def test_a_program_that_was_killed_is_a_problem_and_the_next_one_begins_anew(
    source: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    log.write(record(XID[0], 1))
    heard(source, 1)
    os.kill(child(), signal.SIGKILL)
    assert ear.hears("stopped by itself")
    assert source.problem() == "its thread has ended: the reader of the kernel's log has ended"
    source.stop()
    source.start(ear.inbox.put)
    assert source.problem() == ""
    log.write(record(XID[0], 2))
    assert heard(source, 1)[0].sequence == 2


def test_a_stopped_source_leaves_no_child_and_no_open_file(
    stopped: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    before = descriptors("pipe"), descriptors("eventfd"), threads()
    for _ in range(3):
        stopped.start(ear.inbox.put)
        log.write(record(XID[0], 1))
        heard(stopped, 1)
        stopped.stop()
        assert children() == []
    assert (descriptors("pipe"), descriptors("eventfd"), threads()) == before


def test_a_program_that_hangs_does_not_keep_the_source_from_its_end(
    stopped: KernelLogSource, ear: Ear
) -> None:
    def stop() -> None:
        stopped.start(ear.inbox.put)
        os.kill(child(), signal.SIGSTOP)
        stopped.stop()

    assert quickest(stop) < 1
    assert children() == []


@pytest.fixture
def service(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the socket of a service, at which the source connects."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/log.sock")
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def connected(service: socket.socket, ear: Ear) -> Iterator[tuple[KernelLogSource, socket.socket]]:
    """Return a source that has connected to SERVICE, and the other end of its connection."""
    source = ear.start(KernelLogSource(socket_path=service.getsockname(), log="/dev/null"))
    connection, _ = service.accept()
    with connection:
        yield source, connection
        source.stop()


def test_another_thread_may_take_while_it_starts_and_stops(
    stopped: KernelLogSource, log: FakeLog, ear: Ear
) -> None:
    taken, stopping = [0], threading.Event()

    def take() -> None:
        while not stopping.is_set():
            taken[0] += len(stopped.take().records)

    with beside(take):
        try:
            for turn in range(5):
                stopped.start(ear.inbox.put)
                log.write(*[record(XID[0], turn * 50 + number) for number in range(50)])
                assert until(lambda expected=turn * 50 + 50: taken[0] == expected)  # type: ignore[misc]
                stopped.stop()
        finally:
            stopping.set()


def test_where_there_is_a_service_it_is_heard_and_there_is_no_child(
    connected: tuple[KernelLogSource, socket.socket], log: FakeLog
) -> None:
    source, connection = connected
    # As its unit starts it, but for the log.
    command = [sys.executable, "-ISB", str(PROGRAM), "--given"]
    with log.path.open("rb", buffering=0) as file:
        program = subprocess.Popen(command, stdin=file, stdout=connection.fileno())
    connection.close()
    log.write(record(XID[0], 7))
    assert heard(source, 1)[0].text == XID[0]
    source.stop()
    assert program.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b'{"problem": "/dev/kmsg: Operation not permitted"}\n', "/dev/kmsg: Operation not permitted"),
        (
            b"Traceback (most recent\n",
            "says what is no record: Traceback (most recent",
        ),
        (b"7\n", "says what is no record: 7"),
        (b"[]\n", "says what is no record: []"),
        (b"null\n", "says what is no record: null"),
        (b'{"seq": 1}\n', 'says what is no record: {"seq": 1}'),
        (b'{"lost": []}\n', 'says what is no record: {"lost": []}'),
        (b'{"seq": 1, "at": "x", "text": "", "device": ""}\n', "says what is no record: "),
        (b'{"lost": Infinity}\n', 'says what is no record: {"lost": Infinity}'),
        (b'{"seq": 1, "at": NaN, "text": "", "device": ""}\n', "says what is no record: "),
        (b"[" * 60_000 + b"\n", "says what is no record: [["),
        (b"\xff\x00\n", "says what is no record: "),
        (b"x" * (3 * LONGEST_LINE), "does not end its line"),
    ],
)
def test_a_service_that_says_anything_else_is_a_problem(
    connected: tuple[KernelLogSource, socket.socket], ear: Ear, said: bytes, problem: str
) -> None:
    source, connection = connected
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(said)
    assert ear.hears("stopped by itself")
    assert problem in source.problem()
    assert "\n" not in source.problem()


def test_a_line_may_come_in_pieces(connected: tuple[KernelLogSource, socket.socket], ear: Ear) -> None:
    source, connection = connected
    for piece in (b'{"seq": 3, "at": 1.5, "te', b'xt": "NVRM: x", "device": ""}\n{"lo', b'st": 2}\n'):
        connection.sendall(piece)
        time.sleep(0.02)
    (found,) = heard(source, 1)
    assert (found.sequence, found.at_s, found.text) == (3, 1.5, "NVRM: x")
    assert ear.hears("NVRM: x")


@pytest.mark.needs_root
def test_a_service_that_is_another_users_is_not_believed(tmp_path: Path, ear: Ear) -> None:
    with tempfile.TemporaryDirectory(prefix="cdigen-") as folder:
        Path(folder).chmod(0o777)
        path = f"{folder}/log.sock"
        code = (
            "import socket; s = socket.socket(socket.AF_UNIX)\n"
            f"s.bind({path!r}); s.listen(); print(flush=True); s.accept()"
        )
        command = ["/usr/bin/python3", "-ISBc", code]
        with subprocess.Popen(command, user=65534, stdout=subprocess.PIPE, cwd="/") as other:
            assert other.stdout is not None
            other.stdout.readline()
            source = KernelLogSource(socket_path=path, log=str(tmp_path / "none"))
            with pytest.raises(HostError, match=r"log\.sock: it belongs to uid 65534"):
                source.start(ear.inbox.put)


def test_a_log_that_may_not_be_read_is_a_reason_to_name_both_ways(tmp_path: Path, ear: Ear) -> None:
    source = KernelLogSource(socket_path=str(tmp_path / "none.sock"), log=str(tmp_path / "none"))
    with pytest.raises(
        HostError, match=r"cannot be read \(.*none.sock: No such file.*none: No such file"
    ) as why:
        source.start(ear.inbox.put)
    assert "cdigen-kernel-log.socket" in why.value.hint
