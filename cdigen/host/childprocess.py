"""Run a child process with an enforced deadline and bounded output: ``run``.

For code that must not run in root's own process, such as a driver's libraries. The child gets nothing from
this process except its arguments; it and all its children are gone when ``run`` returns.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from cdigen.host.root import shown
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen
    from typing import IO, Literal

# The child's whole environment: no LD_* or PYTHON* variables of this process.
ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

OUTPUT_LIMIT = 1 << 20
# NVML and Python need less than 100 MiB; a library that allocates for ever must not exhaust the host.
ADDRESS_SPACE = 16 << 30

LAST_WORDS = 200  # how many characters of its last line on standard error are kept
_TAIL = 4096
_CHUNK = 1 << 16
# How long a child may go on after its last output, where that is its end.
_LINGER_S = 0.5
# How often to check whether it has ended: while others may hold its pipes, and once these are closed.
_LOOK_S = 0.02
_LOOK_SHUT_S = 0.002


@frozen
class ChildResult:
    """How a child ended.

    ``by``: ``itself``, ``deadline`` (it was killed), ``flood`` (it was killed for printing too much),
    ``lingering`` (it was killed after its output had ended).
    ``status`` is its exit status, the negative number of the signal that killed it, or None where not
    even SIGKILL ended it: it hangs in the kernel. ``last_stderr_line`` is its last line on standard error.
    """

    by: Literal["itself", "deadline", "flood", "lingering"]
    status: int | None
    output: bytes
    last_stderr_line: str


def run(
    command: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"", ends_with_output: bool = False
) -> ChildResult:
    """Run COMMAND until it ends, DEADLINE_S seconds at the most, and return how it ended.

    ENDS_WITH_OUTPUT: one that has closed its standard output has nothing more to do, and is soon killed.

    It gets ENVIRONMENT, STDIN to read, no other open files, no terminal, the folder ``/``, a session of its
    own, no core dumps and ADDRESS_SPACE bytes. At the deadline, and when it ends, all processes of its group
    are killed. Raises OSError if it cannot be started.
    """
    import subprocess  # noqa: PLC0415 - 8 ms, and most runs of cdigen start no child
    import time  # noqa: PLC0415 - likewise

    deadline = time.monotonic() + deadline_s
    with _unblocked(), _held(stdin) as file:
        process = subprocess.Popen(  # noqa: S603 - the command is the caller's own, no text of strangers
            command,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
        )
    listener = _Listener(process)
    by: Literal["itself", "deadline", "flood", "lingering"] = "itself"
    try:
        _restrict(process.pid)
        while True:
            # Checked first: everything written before its end is then in the pipes.
            has_ended = _has_ended(process.pid)
            if has_ended and not listener.is_open():
                break
            left = deadline - time.monotonic()
            if left <= 0:
                by = "deadline"
                break
            if ends_with_output and listener.ended_s and time.monotonic() - listener.ended_s > _LINGER_S:
                by = "lingering"
                break
            patience_s = 0.0 if has_ended else _LOOK_S if listener.is_open() else _LOOK_SHUT_S
            heard = listener.hear(min(left, patience_s))
            if len(listener.output) > OUTPUT_LIMIT:
                by = "flood"
                break
            if has_ended and not heard:
                break  # its children hold the pipes
    finally:
        # At least 250 ms: on a busy machine a killed process ends late (75 ms were too few at a load of 10).
        status = _end(process, grace_s=max(deadline_s / 20, 0.25), waiter=_waiter(command))
    return ChildResult(
        by=by, status=status, output=bytes(listener.output), last_stderr_line=listener.last_stderr_line()
    )


def stuck(command: tuple[str, ...]) -> int:
    """Return how many children of ``run`` that began with COMMAND (three words count) cannot be ended yet."""
    import threading  # noqa: PLC0415 - see run

    return sum(thread.name == _waiter(command) for thread in threading.enumerate())


def _waiter(command: tuple[str, ...]) -> str:
    """Return the name of the thread that waits for a child that hangs in the kernel."""
    return f"waits for {' '.join(command[:3])}"


@contextmanager
def _held(content: bytes) -> Iterator[int]:
    """Put CONTENT into an unnamed file: unlike a pipe, nobody has to write while the child reads."""
    if not content:
        yield -3  # subprocess.DEVNULL
        return
    descriptor = os.memfd_create("stdin")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _unblocked() -> Iterator[None]:
    """Unblock all signals that this process handles while the body runs.

    A started program inherits the blocked signals of the starting thread; signals with a handler get their
    default action (execve(2)).
    """
    import signal  # noqa: PLC0415 - see run

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handled = [number for number in before if callable(signal.getsignal(number))]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Listener:
    """Both outputs of a process, read without blocking on either."""

    def __init__(self, process: Popen[bytes]) -> None:
        import select  # noqa: PLC0415 - see run

        self.output = bytearray()
        # When the standard output ended (time.monotonic); 0 while it has not.
        self.ended_s = 0.0
        self._tail = b""
        self._stdout, stderr = (pipe.fileno() for pipe in _pipes(process))
        self._open = {self._stdout, stderr}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    def is_open(self) -> bool:
        return bool(self._open)

    def hear(self, timeout_s: float) -> bool:
        """Wait for output and read what is there; return whether anything happened."""
        import time  # noqa: PLC0415 - see run

        ready = self._poll.poll(timeout_s * 1000)
        for descriptor, _ in ready:
            # After poll(2) a read of a pipe does not block, however few bytes there are.
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                self._poll.unregister(descriptor)
                self._open.remove(descriptor)
                if descriptor == self._stdout:
                    self.ended_s = time.monotonic()
            elif descriptor == self._stdout:
                self.output += chunk
            else:
                self._tail = (self._tail + chunk)[-_TAIL:]
        return bool(ready)

    def last_stderr_line(self) -> str:
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return shown(lines[-1].strip()[:LAST_WORDS]) if lines else ""


def _pipes(process: Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdout is None or process.stderr is None:
        raise ValueError("run starts every child with both pipes")
    return process.stdout, process.stderr


def _restrict(pid: int) -> None:
    """Set the child's limits from this process: Python code must not run between fork and exec."""
    import resource  # noqa: PLC0415 - see run

    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, ADDRESS_SPACE)):
        try:
            resource.prlimit(pid, limit, (most, most))
        except (OSError, ValueError):
            continue  # it has ended, or a lower limit holds already


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, without reaping it: its number is not reused until _end."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # this process ignores SIGCHLD, so the kernel reaps


def _end(process: Popen[bytes], *, grace_s: float, waiter: str) -> int | None:
    """Kill the child's group, and reap the child; None where it does not end within GRACE_S.

    A thread named WAITER then waits for it.
    """
    import contextlib  # noqa: PLC0415 - see run
    import signal  # noqa: PLC0415 - see run
    import subprocess  # noqa: PLC0415 - see run
    import threading  # noqa: PLC0415 - see run

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # it leads a session, so it cannot have left its group
    for pipe in _pipes(process):
        pipe.close()
    try:
        return process.wait(grace_s)
    except subprocess.TimeoutExpired:
        # When the kernel lets it go, it must not stay as a zombie.
        threading.Thread(target=process.wait, name=waiter, daemon=True).start()
        return None
