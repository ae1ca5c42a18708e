"""Helpers for tests of event sources: a recorder of triggers, the end of a thread, inotify, namespaces."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run, tool
from support.paths import REPOSITORY
from support.waiting import PATIENCE_S, until

from cdigen.watch.files import FileSource
from cdigen.watch.poll import PollSource
from cdigen.watch.triggers import Trigger, TriggerQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from cdigen.watch.supervisor import Source

    S = TypeVar("S", bound=Source)


NULL = Path("/sys/devices/virtual/mem/null/uevent")
# Commands that create namespaces: values of START of ``run_apart``.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
OWN_USER = ("unshare", "--user", "--map-root-user")


class TriggerRecorder:
    """Starts sources that put triggers into one queue, and records the received triggers."""

    def __init__(self) -> None:
        self.queue = TriggerQueue()
        self.received: list[Trigger] = []
        self._sources: list[Source] = []

    def start(self, source: S) -> S:
        """Start SOURCE, which puts its triggers into the queue until ``stop``; return SOURCE."""
        self._sources.append(source)
        source.start(self.queue.put)
        return source

    def watch(self, *paths: object, roots: tuple[str, ...] = ()) -> FileSource:
        """Start a source that watches PATHS."""
        return self.start(FileSource(tuple(map(str, paths)), roots=roots))

    def poll(self, *paths: object, interval_s: float = 0.02) -> PollSource:
        """Start a source that polls PATHS."""
        return self.start(PollSource(tuple(map(str, paths)), interval_s))

    def stop(self) -> None:
        """Stop all sources that this recorder started."""
        for source in self._sources:
            source.stop()

    @property
    def reasons(self) -> list[str]:
        return [trigger.reason for trigger in self.received]

    def receives(self, *reasons: str, within_s: float = PATIENCE_S) -> bool:
        """Return whether all REASONS are received within WITHIN_S."""
        deadline = time.monotonic() + within_s
        while not set(reasons) <= set(self.reasons):
            left = deadline - time.monotonic()
            if left <= 0 or not self.queue.wait(left):
                return False
            self.received += self.queue.take().triggers
        return True

    def receives_nothing(self, for_s: float = 0.2) -> bool:
        """Return whether no trigger arrives within FOR_S; afterwards the recorder is empty."""
        quiet = not self.queue.wait(for_s)
        self.clear()
        return quiet

    def clear(self) -> None:
        """Drop all received and pending triggers."""
        while self.queue.wait(0.1):
            self.queue.take()
        self.received.clear()


def quickest(work: Callable[[], object]) -> float:
    """Return the shortest duration of three runs of WORK: a busy machine delays only some of the runs."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        work()
        took.append(time.monotonic() - began)
    return min(took)


def thread_of(source: str) -> threading.Thread:
    """Return the thread of the event source with the name SOURCE."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == f"cdigen-{source}"]
    return thread


def threads() -> list[str]:
    """Return the names of the threads of sources."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cdigen-")]


def is_in(thread: threading.Thread, function: str) -> bool:
    """Return whether THREAD is in FUNCTION, or in a function that it has called."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and any(
        each.f_code.co_name == function for each, _ in traceback.walk_stack(frame)
    )


def kills_threads(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a TEST that calls ``kill``: pytest ignores the thread's exception, and coverage traces no thread.

    While an exception is pending for a blocked thread, CPython 3.11 does not leave the first instruction
    (RESUME) of a traced function in any thread. Then the blocked thread would never continue.
    """
    ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    marked: Callable[..., None] = ignored(pytest.mark.usefixtures("untraced")(test))
    return marked


def kill(thread: threading.Thread, within: str = "_work") -> None:
    """Wait until THREAD is in the function WITHIN, then end THREAD when it next runs Python code."""
    # Before the thread has entered WITHIN, no code of cdigen can detect its end.
    assert until(lambda: is_in(thread, within))
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def descriptors(kind: str) -> set[int]:
    """Return this process's descriptors of KIND: inotify, eventfd, pipe or socket."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        # A path is an opened file, whose name may contain KIND.
        if kind in link and not link.startswith("/"):
            found.add(int(name))
    return found


def watches() -> list[str]:
    """Return this process's inotify watches as the kernel lists them: number and inode of each."""
    (descriptor,) = descriptors("inotify")
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return sorted(line for line in lines if line.startswith("inotify"))


def is_watched(folder: Path) -> bool:
    """Return whether the kernel reports events of FOLDER, which exists, to this process."""
    return any(f" ino:{folder.stat().st_ino:x} " in line for line in watches())


def put_null_in_place_of(descriptor: int) -> None:
    """Replace the file of DESCRIPTOR by /dev/null.

    The number stays in use. Therefore a later close of this number closes no other file.
    """
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def run_apart(script: str, *arguments: str, start: tuple[str, ...]) -> list[str]:
    """Run the Python code SCRIPT in the namespaces that START creates; return the lines that it prints."""
    tool(start[0], "util-linux")
    trial = subprocess.run([*start, "true"], check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        cannot_run(f"{' '.join(start)}: {trial.stderr.strip()}")
    done = subprocess.run(
        [*start, sys.executable, "-c", script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def send(file: Path = NULL, action: str = "change") -> None:
    file.write_text(action)
