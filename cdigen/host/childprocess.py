"""Run a child process with an enforced deadline and bounded output: ``run``.

The module is for code that must not run in root's own process, such as a driver's libraries. The child gets
only its arguments and its input from this process. When ``run`` returns, the child and all its children have
ended.
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

# The complete environment of the child. It contains no LD_* or PYTHON* variables of this process.
ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

OUTPUT_LIMIT = 1 << 20
# NVML and Python need less than 100 MiB. The limit protects the host from a library that allocates endlessly.
ADDRESS_SPACE = 16 << 30

MAX_LAST_LINE = 200  # characters of the last line on standard error that are kept
_TAIL = 4096
_CHUNK = 1 << 16
# The time that a child may run after the end of its output, if the caller sets ``ends_with_output``.
_LINGER_S = 0.5
# The intervals between checks of the child's end, while its pipes are open and after its pipes are closed.
_POLL_S = 0.02
_POLL_CLOSED_S = 0.002


@frozen
class ChildResult:
    """The result of a child process.

    ``by`` is the cause of the child's end:

    - ``itself``: the child ended without a signal from cdigen.
    - ``deadline``: cdigen killed the child at the deadline.
    - ``flood``: cdigen killed the child because the child printed more than OUTPUT_LIMIT bytes.
    - ``lingering``: cdigen killed the child because the child continued after the end of its output.

    ``status`` is the exit status, or the negative number of the signal that killed the child. None means that
    SIGKILL did not end the child, because the child hangs in the kernel. ``last_stderr_line`` is the last
    line on standard error.
    """

    by: Literal["itself", "deadline", "flood", "lingering"]
    status: int | None
    output: bytes
    last_stderr_line: str


def run(
    command: tuple[str, ...], *, deadline_s: float, stdin: bytes = b"", ends_with_output: bool = False
) -> ChildResult:
    """Run COMMAND until it ends, at most DEADLINE_S seconds, and return its result.

    If ENDS_WITH_OUTPUT is true, ``run`` kills a child that continues after it has closed its standard output.

    The child has the environment ENVIRONMENT, the input STDIN, the folder ``/``, a new session and at most
    ADDRESS_SPACE bytes of address space. It has no other open files, no terminal and no core dumps. At the
    end of the child or at the deadline, ``run`` kills all processes of the child's group. Raises OSError if
    the child cannot start.
    """
    import subprocess  # noqa: PLC0415 - 8 ms, and most runs of cdigen start no child
    import time  # noqa: PLC0415 - likewise

    deadline = time.monotonic() + deadline_s
    with _unblocked(), _stdin_file(stdin) as file:
        process = subprocess.Popen(  # noqa: S603 - the command is the caller's own, not input
            command,
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
        )
    reader = _OutputReader(process)
    by: Literal["itself", "deadline", "flood", "lingering"] = "itself"
    try:
        _restrict(process.pid)
        while True:
            # This check is first, because all output of an ended child is in the pipes.
            has_ended = _has_ended(process.pid)
            if has_ended and not reader.is_open():
                break
            left = deadline - time.monotonic()
            if left <= 0:
                by = "deadline"
                break
            if ends_with_output and reader.ended_s and time.monotonic() - reader.ended_s > _LINGER_S:
                by = "lingering"
                break
            wait_s = 0.0 if has_ended else _POLL_S if reader.is_open() else _POLL_CLOSED_S
            had_output = reader.read(min(left, wait_s))
            if len(reader.output) > OUTPUT_LIMIT:
                by = "flood"
                break
            if has_ended and not had_output:
                break  # children of the child hold the pipes open
    finally:
        # At least 250 ms, because a killed process ends late on a busy machine (75 ms failed at a load of
        # 10).
        status = _end(process, grace_s=max(deadline_s / 20, 0.25), waiter=_waiter(command))
    return ChildResult(
        by=by, status=status, output=bytes(reader.output), last_stderr_line=reader.last_stderr_line()
    )


def stuck(command: tuple[str, ...]) -> int:
    """Return the number of children with the first three words of COMMAND that SIGKILL did not end."""
    import threading  # noqa: PLC0415 - see run

    return sum(thread.name == _waiter(command) for thread in threading.enumerate())


def _waiter(command: tuple[str, ...]) -> str:
    """Return the name of the thread that waits for a child that hangs in the kernel."""
    return f"waits for {' '.join(command[:3])}"


@contextmanager
def _stdin_file(content: bytes) -> Iterator[int]:
    """Yield the descriptor of an unnamed file with CONTENT; a pipe would need a writing process."""
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
    """While the body runs, unblock all signals that this process handles.

    A started program inherits the blocked signals of the starting thread. Signals with a handler get their
    default action in the started program (execve(2)).
    """
    import signal  # noqa: PLC0415 - see run

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handled = [number for number in before if callable(signal.getsignal(number))]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, handled)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _OutputReader:
    """A non-blocking reader of the standard output and the standard error of a process."""

    def __init__(self, process: Popen[bytes]) -> None:
        import select  # noqa: PLC0415 - see run

        self.output = bytearray()
        # The time at which the standard output ended (time.monotonic), or 0 while it is open.
        self.ended_s = 0.0
        self._tail = b""
        self._stdout, stderr = (pipe.fileno() for pipe in _pipes(process))
        self._open = {self._stdout, stderr}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    def is_open(self) -> bool:
        return bool(self._open)

    def read(self, timeout_s: float) -> bool:
        """Read output for at most TIMEOUT_S seconds; return whether output or its end was read."""
        import time  # noqa: PLC0415 - see run

        ready = self._poll.poll(timeout_s * 1000)
        for descriptor, _ in ready:
            # After poll(2), a read of a pipe does not block, even if the pipe has fewer bytes than requested.
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
        return shown(lines[-1].strip()[:MAX_LAST_LINE]) if lines else ""


def _pipes(process: Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdout is None or process.stderr is None:
        raise ValueError("run starts every child with both pipes")
    return process.stdout, process.stderr


def _restrict(pid: int) -> None:
    """Set the limits of the child from this process, because no Python code may run between fork and exec."""
    import resource  # noqa: PLC0415 - see run

    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, ADDRESS_SPACE)):
        try:
            resource.prlimit(pid, limit, (most, most))
        except (OSError, ValueError):
            continue  # the child has ended, or a lower limit applies already


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended; the child is not reaped, so its ID stays reserved until ``_end``."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # this process ignores SIGCHLD, so the kernel reaps the child


def _end(process: Popen[bytes], *, grace_s: float, waiter: str) -> int | None:
    """Kill the child's group, reap the child, and return the child's status.

    If the child does not end within GRACE_S, return None. A thread with the name WAITER then waits for the
    child.
    """
    import contextlib  # noqa: PLC0415 - see run
    import signal  # noqa: PLC0415 - see run
    import subprocess  # noqa: PLC0415 - see run
    import threading  # noqa: PLC0415 - see run

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # a session leader cannot leave its group
    for pipe in _pipes(process):
        pipe.close()
    try:
        return process.wait(grace_s)
    except subprocess.TimeoutExpired:
        # The thread reaps the child, so that the child does not stay as a zombie.
        threading.Thread(target=process.wait, name=waiter, daemon=True).start()
        return None
