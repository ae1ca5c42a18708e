"""Run the command line within the test's process, with the result that a process of its own would have.

A run has its own arguments, environment and descriptors 0, 1 and 2. Modules stay imported: their
import is most of the time of a process. A run must not change other state of the process, see ``_state``.
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
    """Return whether ARGUMENTS are of the daemon, which handles signals before it parses them."""
    return "run" in arguments[:2]


def run_here(
    arguments: tuple[str, ...], *, stdin: bytes, environment: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    """Run ARGUMENTS in ENVIRONMENT; returns the exit code, standard output and standard error.

    AssertionError: ARGUMENTS or ENVIRONMENT need a process of their own, or the run changed this process. It
    raises an exception that the command does not catch (``--verbose``).
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
    """Run ARGUMENTS in ENVIRONMENT with FILES as descriptors 0, 1 and 2; returns the exit code."""
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
    """Return the state of this process that a command must leave as it is."""
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
    """Give the process ARGUMENTS, ENVIRONMENT and Python's streams at its descriptors, as its start does."""
    streams, argv, variables = (sys.stdin, sys.stdout, sys.stderr), sys.argv, dict(os.environ)
    collects = gc.isenabled()
    # cdigen.kubelet.wire sets it at its import, which happens once in this process.
    own = {"GRPC_VERBOSITY": "NONE", **environment}
    # As Python opens them where LANG is C.UTF-8.
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
    """Replace the descriptors 0, 1 and 2 by FILES for a while."""
    saved = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
        yield
    finally:
        for number, old in enumerate(saved):
            os.dup2(old, number)
            os.close(old)
