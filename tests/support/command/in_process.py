"""Runs the command line within the test's process, with the same result as in a separate process.

A run has its own arguments, environment and descriptors 0, 1 and 2. Modules stay imported, because their
import takes most of the time of a process. A run must not change other state of the process (``_state``).
"""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from cdigen.cli.main import run


def needs_process(arguments: tuple[str, ...]) -> bool:
    """Return whether ARGUMENTS start the daemon, which handles signals before it parses its arguments."""
    return "run" in arguments[:2]


def run_here(
    arguments: tuple[str, ...], *, stdin: bytes, environment: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run ARGUMENTS in ENVIRONMENT; return the exit code, standard output and standard error.

    Raises AssertionError if ARGUMENTS or ENVIRONMENT need a separate process, or if the run changed this
    process. Also raises each exception that the command does not catch (``--verbose``).
    """
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.pwrite(files[0], stdin, 0)
        code = run_on(files, arguments, environment)
        out, err = (os.pread(file, os.fstat(file).st_size, 0) for file in files[1:])
        return code, out, err
    finally:
        for file in files:
            os.close(file)


def run_on(files: Sequence[int], arguments: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Run ARGUMENTS in ENVIRONMENT with FILES as descriptors 0, 1 and 2; return the exit code."""
    assert not needs_process(arguments), f"{arguments[0]}: this command needs cdigen_process"
    own = [name for name in environment if name.startswith(("PYTHON", "LC_")) and name != "PYTHONWARNINGS"]
    assert not own, f"{', '.join(own)}: Python reads them at its start, which needs cdigen_process"
    assert threading.current_thread() is threading.main_thread(), "parallel runs need cdigen_process"
    before = _state()
    with _descriptors(files), _start(arguments, environment), pytest.raises(SystemExit) as end:
        run()
    after = _state()
    assert after == before, f"the run changed {[name for name in before if after[name] != before[name]]}"
    assert isinstance(end.value.code, int)
    return end.value.code


def _state() -> dict[str, object]:
    """Return the state of this process that a command must not change."""
    umask = os.umask(0o022)
    os.umask(umask)
    root = logging.getLogger()
    return {
        "the working directory": os.getcwd(),
        "the umask": umask,
        "the signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "the signal mask": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "the log": (root.level, tuple(root.handlers)),
        "sys.excepthook": sys.excepthook,
        "sys.path": tuple(sys.path),
        "the recursion limit": sys.getrecursionlimit(),
        "the frozen objects": gc.get_freeze_count(),
    }


@contextmanager
def _start(arguments: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[None]:
    """Set ARGUMENTS, ENVIRONMENT and Python's streams for the body, as at the start of a process."""
    streams, argv, variables = (sys.stdin, sys.stdout, sys.stderr), sys.argv, dict(os.environ)
    collects = gc.isenabled()
    # cdigen.kubelet.wire sets GRPC_VERBOSITY at its import, which happens only once in this process.
    own = {"GRPC_VERBOSITY": "NONE", **environment}
    # Python opens its streams with these arguments if LANG is C.UTF-8.
    with (
        open(0, encoding="utf-8", errors="surrogateescape", closefd=False) as stdin,
        open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stdout,
        open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False) as stderr,
    ):
        try:
            sys.stdin, sys.stdout, sys.stderr = stdin, stdout, stderr
            sys.argv = ["cdigen", *arguments]
            os.environ.clear()
            os.environ.update(own)
            yield
            assert dict(os.environ) == own, "the run changed its environment"
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            sys.argv = argv
            os.environ.clear()
            os.environ.update(variables)
            if collects:
                gc.enable()


@contextmanager
def _descriptors(files: Sequence[int]) -> Iterator[None]:
    """Replace the descriptors 0, 1 and 2 by FILES until the body ends."""
    saved = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        yield
    finally:
        for number, old in enumerate(saved):
            os.dup2(old, number)
            os.close(old)
