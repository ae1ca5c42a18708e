"""The source of the kernel log. Its real program runs as a child process and reads recorded messages."""

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

    from support.daemon.watching import TriggerRecorder

    from cdigen.model.health import LogRecord

pytestmark = pytest.mark.process


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FakeLog]:
    """Return a log whose records the test writes."""
    with closing(FakeLog(tmp_path / "kmsg")) as log:
        yield log


@pytest.fixture
def stopped(log: FakeLog, tmp_path: Path) -> KernelLogSource:
    """Return a source that reads LOG when it is started."""
    return KernelLogSource(socket_path=str(tmp_path / "none.sock"), log=str(log.path))


@pytest.fixture
def source(stopped: KernelLogSource, recorder: TriggerRecorder) -> KernelLogSource:
    """Return a source that reads LOG, and puts its triggers to the recorder."""
    return recorder.start(stopped)


def received(source: KernelLogSource, count: int) -> list[LogRecord]:
    """Return the next COUNT records that SOURCE receives."""
    records: list[LogRecord] = []

    def are_received() -> bool:
        records.extend(source.take().records)
        return len(records) >= count

    assert until(are_received), source.problem()
    return records


def test_a_line_of_a_driver_puts_a_trigger_at_once_and_is_returned_once(
    source: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    log.write(record(XID[0], 7))
    assert recorder.receives(XID[0][:100])
    (found,) = received(source, 1)
    assert (found.sequence, found.text, found.device) == (7, XID[0], "")
    assert source.take().records == ()


def test_a_record_contains_the_kernels_name_of_the_device(source: KernelLogSource, log: FakeLog) -> None:
    log.write(record(f"{AMDGPU}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:c1:00.0", 8))
    (found,) = received(source, 1)
    assert (found.text, found.device) == (AMDGPU, "+pci:0000:c1:00.0")


def test_lines_of_another_packages_driver_are_received(
    log: FakeLog, tmp_path: Path, recorder: TriggerRecorder
) -> None:
    own = KernelLogSource(
        socket_path=str(tmp_path / "none.sock"), log=str(log.path), drivers=("acme_npu", "other")
    )
    source = recorder.start(own)
    log.write(record("acme_npu 0000:41:00.0: engine 3 hung", 9))
    (found,) = received(source, 1)
    assert found.text == "acme_npu 0000:41:00.0: engine 3 hung"


def test_lost_records_are_counted(source: KernelLogSource, log: FakeLog) -> None:
    log.write(record(XID[0], 7), record("usb 1-1: new device", 9), record(XID[1], 19))
    lost = 0

    def all_lost() -> bool:
        nonlocal lost
        lost += source.take().lost
        return lost == 1 + 9

    assert until(all_lost), lost


def test_the_number_of_pending_records_is_limited_and_no_record_is_lost(
    source: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    # The texts differ, because the program limits the rate of equal texts.
    words = [f"{'ghijklmnop'[number % 10]}{'q' * (number // 10)}" for number in range(5 * MOST)]
    records = [record(f"NVRM: {word} {'-' * 200}", number) for number, word in enumerate(words)]
    with beside(log.write, *records):
        assert recorder.receives(f"NVRM: g {'-' * 200}"[:100])
        assert until(lambda: len(source._records) >= MOST)
        # The source may add the records of one more read.
        assert not until(lambda: len(source._records) > MOST + LONGEST_LINE // 200, within_s=0.3)
        assert [found.sequence for found in received(source, len(records))] == list(range(len(records)))


def test_a_single_trigger_is_put_for_all_pending_records(
    source: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    for number in range(50):
        log.write(record(XID[0], number))
        assert until(lambda expected=number + 1: len(source._records) == expected)  # type: ignore[misc]
    assert recorder.queue.take().events == 1
    source.take()
    log.write(record(AMDGPU, 50))
    assert recorder.receives(AMDGPU)


def child() -> int:
    """Return the process ID of the program. A single child of this process is the program."""
    # The kernel's list may omit children while other children start and end (proc_pid_children(5)).
    found: set[int] = set()

    def is_found() -> bool:
        found.update(children())
        return len(found) == 1

    assert until(is_found)
    return found.pop()


def children() -> list[int]:
    numbers = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = [int(number) for path in numbers for number in path.read_text().split()]
    return [number for number in found if b"kernellog" in Path(f"/proc/{number}/cmdline").read_bytes()]


def test_a_killed_program_is_a_problem_and_the_next_program_reads_the_log_again(
    source: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    log.write(record(XID[0], 1))
    received(source, 1)
    os.kill(child(), signal.SIGKILL)
    assert recorder.receives("stopped unexpectedly")
    assert source.problem() == "the source's thread has ended: the reader of the kernel log has ended"
    source.stop()
    source.start(recorder.queue.put)
    assert source.problem() == ""
    log.write(record(XID[0], 2))
    assert received(source, 1)[0].sequence == 2


def test_a_stopped_source_leaves_no_child_and_no_open_file(
    stopped: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    before = descriptors("pipe"), descriptors("eventfd"), threads()
    for _ in range(3):
        stopped.start(recorder.queue.put)
        log.write(record(XID[0], 1))
        received(stopped, 1)
        stopped.stop()
        assert children() == []
    assert (descriptors("pipe"), descriptors("eventfd"), threads()) == before


def test_a_program_that_hangs_does_not_delay_the_end_of_the_source(
    stopped: KernelLogSource, recorder: TriggerRecorder
) -> None:
    def stop() -> None:
        stopped.start(recorder.queue.put)
        os.kill(child(), signal.SIGSTOP)
        stopped.stop()

    assert quickest(stop) < 1
    assert children() == []


@pytest.fixture
def service(tmp_path: Path) -> Iterator[socket.socket]:
    """Return the socket of a service to which the source connects."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/log.sock")
        listener.listen()
        listener.settimeout(PATIENCE_S)
        yield listener


@pytest.fixture
def connected(
    service: socket.socket, recorder: TriggerRecorder
) -> Iterator[tuple[KernelLogSource, socket.socket]]:
    """Return a source that has connected to SERVICE, and the other end of its connection."""
    source = recorder.start(KernelLogSource(socket_path=service.getsockname(), log="/dev/null"))
    connection, _ = service.accept()
    with connection:
        yield source, connection
        source.stop()


def test_another_thread_may_call_take_while_the_source_starts_and_stops(
    stopped: KernelLogSource, log: FakeLog, recorder: TriggerRecorder
) -> None:
    count_taken, stopping = [0], threading.Event()

    def take() -> None:
        while not stopping.is_set():
            count_taken[0] += len(stopped.take().records)

    with beside(take):
        try:
            for turn in range(5):
                stopped.start(recorder.queue.put)
                log.write(*[record(XID[0], turn * 50 + number) for number in range(50)])
                assert until(lambda expected=turn * 50 + 50: count_taken[0] == expected)  # type: ignore[misc]
                stopped.stop()
        finally:
            stopping.set()


def test_with_a_service_the_source_starts_no_child(
    connected: tuple[KernelLogSource, socket.socket], log: FakeLog
) -> None:
    source, connection = connected
    # The program is started as the systemd unit starts it, with another log.
    command = [sys.executable, "-ISB", str(PROGRAM), "--stdin"]
    with log.path.open("rb", buffering=0) as file:
        program = subprocess.Popen(command, stdin=file, stdout=connection.fileno())
    connection.close()
    log.write(record(XID[0], 7))
    assert received(source, 1)[0].text == XID[0]
    source.stop()
    assert program.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b'{"problem": "/dev/kmsg: Operation not permitted"}\n', "/dev/kmsg: Operation not permitted"),
        (
            b"Traceback (most recent\n",
            "sent a line that is no record: Traceback (most recent",
        ),
        (b"7\n", "sent a line that is no record: 7"),
        (b"[]\n", "sent a line that is no record: []"),
        (b"null\n", "sent a line that is no record: null"),
        (b'{"seq": 1}\n', 'sent a line that is no record: {"seq": 1}'),
        (b'{"lost": []}\n', 'sent a line that is no record: {"lost": []}'),
        (b'{"seq": 1, "at": "x", "text": "", "device": ""}\n', "sent a line that is no record: "),
        (b'{"lost": Infinity}\n', 'sent a line that is no record: {"lost": Infinity}'),
        (b'{"seq": 1, "at": NaN, "text": "", "device": ""}\n', "sent a line that is no record: "),
        (b"[" * 60_000 + b"\n", "sent a line that is no record: [["),
        (b"\xff\x00\n", "sent a line that is no record: "),
        (b"x" * (3 * LONGEST_LINE), "sent a line that is too long"),
    ],
)
def test_a_service_that_sends_an_invalid_line_is_a_problem(
    connected: tuple[KernelLogSource, socket.socket], recorder: TriggerRecorder, sent: bytes, problem: str
) -> None:
    source, connection = connected
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(sent)
    assert recorder.receives("stopped unexpectedly")
    assert problem in source.problem()
    assert "\n" not in source.problem()


def test_a_line_may_be_received_in_pieces(
    connected: tuple[KernelLogSource, socket.socket], recorder: TriggerRecorder
) -> None:
    source, connection = connected
    for piece in (b'{"seq": 3, "at": 1.5, "te', b'xt": "NVRM: x", "device": ""}\n{"lo', b'st": 2}\n'):
        connection.sendall(piece)
        time.sleep(0.02)
    (found,) = received(source, 1)
    assert (found.sequence, found.at_s, found.text) == (3, 1.5, "NVRM: x")
    assert recorder.receives("NVRM: x")


@pytest.mark.needs_root
def test_a_service_of_another_user_is_refused(tmp_path: Path, recorder: TriggerRecorder) -> None:
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
                source.start(recorder.queue.put)


def test_the_error_of_an_unreadable_log_names_the_socket_and_the_file(
    tmp_path: Path, recorder: TriggerRecorder
) -> None:
    source = KernelLogSource(socket_path=str(tmp_path / "none.sock"), log=str(tmp_path / "none"))
    with pytest.raises(
        HostError, match=r"cannot be read \(.*none.sock: No such file.*none: No such file"
    ) as why:
        source.start(recorder.queue.put)
    assert "cdigen-kernel-log.socket" in why.value.hint
