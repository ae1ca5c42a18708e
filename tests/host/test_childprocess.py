"""Child processes that misbehave do not stop the parent."""

import os
import sys
import time
from pathlib import Path
from types import FrameType

import pytest
from support.abilities import cannot_run
from support.waiting import PATIENCE_S, by_deadline, limited, until

from cdigen.host.childprocess import OUTPUT_LIMIT, ChildResult, run, stuck

DEADLINE_S = 1.5


PYTHON = (sys.executable, "-I", "-c")


def python(source: str, *, deadline_s: float = PATIENCE_S) -> ChildResult:
    return run((*PYTHON, f"import os, signal, sys, time; {source}"), deadline_s=deadline_s)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; false for a zombie."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(pid: int) -> bool:
    """Return whether a process ends soon: the kernel needs some time after a signal."""
    return until(lambda: not is_alive(pid))


def test_all_output_of_a_child_that_ends_is_read() -> None:
    ending = python("print('out'); print('one', file=sys.stderr); print('two', file=sys.stderr); sys.exit(3)")
    assert ending == ChildResult(by="itself", status=3, output=b"out\n", last_stderr_line="two")


def test_output_right_before_the_end_is_read_on_a_busy_machine() -> None:
    """A profile function delays each check of the child's end until the child has ended."""

    def stall(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "_has_ended":
            assert until(lambda: os.waitid(os.P_PID, frame.f_locals["pid"], os.WEXITED | os.WNOWAIT))

    sys.setprofile(stall)
    try:
        ending = python("time.sleep(0.2); print('out')")
    finally:
        sys.setprofile(None)
    assert ending == ChildResult(by="itself", status=0, output=b"out\n", last_stderr_line="")


def test_a_crash_is_reported_with_its_signal() -> None:
    ending = python("os.kill(os.getpid(), signal.SIGSEGV)")
    assert (ending.by, ending.status) == ("itself", -11)


def test_a_missing_program_raises_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        run(("/nowhere/program",), deadline_s=1.0)


def test_the_child_gets_no_environment_and_no_open_files_of_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    with (tmp_path / "secret").open("w") as secret:
        os.dup2(secret.fileno(), 77)  # inheritable
    ending = python(
        "print(sorted(os.environ), os.getcwd(), sorted(map(int, os.listdir('/proc/self/fd')))[:-1],"
        " os.readlink('/proc/self/fd/0'), os.getsid(0) == os.getpgid(0) == os.getpid())"
    )
    os.close(77)
    assert ending.output == b"['LANG', 'PATH'] / [0, 1, 2] /dev/null True\n"


def test_the_child_has_limits() -> None:
    ending = python(
        "import resource; time.sleep(0.2);"
        "print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_AS));"
        "bytearray(17 << 30)"
    )
    assert ending.output == b"(0, 0) (17179869184, 17179869184)\n"
    assert ending.last_stderr_line == "MemoryError"


STUBBORN = {
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(9)",
    "floods standard error": "\nwhile True: print('rubbish' * 99, file=sys.stderr)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "shuts its outputs and hangs": "os.close(1); os.close(2); time.sleep(99)",
    "hangs beside a process that has its pipes": "os.fork(); time.sleep(99)",
    "hangs beside a process in a new session": "os.fork() or os.setsid() or signal.alarm(3); time.sleep(99)",
}


@limited(DEADLINE_S * 2)
@pytest.mark.parametrize("source", STUBBORN.values(), ids=STUBBORN.keys())
def test_run_returns_at_the_deadline(source: str, within_s: float) -> None:
    started = time.monotonic()
    ending = python(source, deadline_s=DEADLINE_S)
    took = time.monotonic() - started
    assert ending.by == "deadline"
    # On a busy machine, the child may end after `run` has returned.
    assert ending.status == -9 or (ending.status is None and until(lambda: stuck(PYTHON) == 0))
    assert DEADLINE_S <= took < within_s


def test_no_process_of_the_childs_group_outlives_the_deadline() -> None:
    ending = by_deadline(
        lambda deadline_s: python(
            "os.fork(); print(os.getpid(), flush=True); time.sleep(99)", deadline_s=deadline_s
        ),
        lambda ending: ending.output.count(b"\n") == 2,
    )
    pids = [int(pid) for pid in ending.output.split()]
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)


@pytest.mark.wall_clock
def test_a_grandchild_that_holds_the_pipes_is_killed_without_a_wait() -> None:
    started = time.monotonic()
    ending = python("pid = os.fork(); print(pid, flush=True) if pid else time.sleep(99)")
    assert time.monotonic() - started < 5
    assert (ending.by, ending.status) == ("itself", 0)
    assert ends(int(ending.output))


@pytest.mark.wall_clock
def test_a_child_that_continues_after_its_output_is_killed() -> None:
    source = "import os, time; os.write(1, b'out'); os.close(1); time.sleep(60)"
    began = time.monotonic()
    ending = run((sys.executable, "-I", "-c", source), deadline_s=PATIENCE_S, ends_with_output=True)
    assert time.monotonic() - began < 10
    assert (ending.by, ending.status, ending.output) == ("lingering", -9, b"out")


def test_a_child_that_prints_without_end_is_killed_at_once() -> None:
    ending = python("\nwhile True: print('rubbish' * 99)")
    assert ending.by == "flood"
    assert OUTPUT_LIMIT < len(ending.output) < OUTPUT_LIMIT * 1.1


def test_the_last_line_on_standard_error_is_short_and_printable() -> None:
    ending = python(r"os.write(2, b'first\n' * 9999 + b'\x1b[2J\xff\x00' + b'a' * 999 + b'\n \n')")
    assert ending.last_stderr_line.startswith(r"\x1b[2J\ufffd\x00aaaa")
    assert len(ending.last_stderr_line) < 250
    assert ending.last_stderr_line.isprintable()


@pytest.fixture
def freezer() -> Path:
    """Return the folder of cgroups whose frozen processes ignore even SIGKILL (cgroup-v1/freezer)."""
    folder = Path("/sys/fs/cgroup/freezer")
    if not os.access(folder / "tasks", os.W_OK):
        cannot_run("there is no freezer of cgroup version 1 here, or no right to use it")
    return folder


@pytest.mark.needs_root
@pytest.mark.wall_clock
def test_a_child_that_hangs_in_the_kernel_does_not_block_run(freezer: Path) -> None:
    group = freezer / f"cdigen-test-{os.getpid()}"
    group.mkdir()
    freeze = f"open('{group}/tasks', 'w').write('0'); open('{group}/freezer.state', 'w').write('FROZEN')"
    try:
        started = time.monotonic()
        ending = python(f"{freeze}; time.sleep(99)", deadline_s=DEADLINE_S)
        assert time.monotonic() - started < DEADLINE_S * 2
        assert (ending.by, ending.status) == ("deadline", None)
    finally:
        (group / "freezer.state").write_text("THAWED")
        assert until(lambda: not (group / "tasks").read_text())
        group.rmdir()


@pytest.mark.needs_root
def test_children_that_hang_in_the_kernel_are_counted_until_they_end(freezer: Path) -> None:
    group = freezer / f"cdigen-test-{os.getpid()}"
    group.mkdir()
    freeze = f"open('{group}/tasks', 'w').write('0'); open('{group}/freezer.state', 'w').write('FROZEN')"
    assert stuck(PYTHON) == 0
    try:
        frozen = (*PYTHON, f"import time; {freeze}; time.sleep(99)")
        ending = by_deadline(
            lambda deadline_s: run(frozen, deadline_s=deadline_s), lambda ending: ending.status is None
        )
        assert ending.status is None
        assert (stuck(PYTHON), stuck(("another",))) == (1, 0)
    finally:
        (group / "freezer.state").write_text("THAWED")
        assert until(lambda: not (group / "tasks").read_text())
        group.rmdir()
    assert until(lambda: stuck(PYTHON) == 0)


def test_the_standard_input_of_a_child_is_empty_unless_it_is_set() -> None:
    code = "sys.stdout.write(str(len(sys.stdin.read())))"
    child = (sys.executable, "-I", "-c", f"import sys; {code}")
    assert run(child, deadline_s=PATIENCE_S).output == b"0"
    assert run(child, deadline_s=PATIENCE_S, stdin=b"x" * 1_000_000).output == b"1000000"
