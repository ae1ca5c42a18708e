"""Tests of event sources: an inbox that starts them, ways to break a thread, other namespaces and limits."""

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
from cdigen.watch.triggers import Inbox, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from cdigen.watch.supervisor import Source

    S = TypeVar("S", bound=Source)


NULL = Path("/sys/devices/virtual/mem/null/uevent")
# Namespaces of a script's own, for ``run_apart``.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
OWN_USER = ("unshare", "--user", "--map-root-user")


class Ear:
    """An inbox that starts sources, and remembers every reason that it has heard."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.heard: list[Trigger] = []
        self._sources: list[Source] = []

    def start(self, source: S) -> S:
        """Start SOURCE, which reports to this inbox until ``stop``; returns it."""
        self._sources.append(source)
        source.start(self.inbox.put)
        return source

    def watch(self, *paths: object, roots: tuple[str, ...] = ()) -> FileSource:
        """Start a source that watches PATHS."""
        return self.start(FileSource(tuple(map(str, paths)), roots=roots))

    def poll(self, *paths: object, interval_s: float = 0.02) -> PollSource:
        """Start a source that polls PATHS."""
        return self.start(PollSource(tuple(map(str, paths)), interval_s))

    def stop(self) -> None:
        """Stop the sources that were started."""
        for source in self._sources:
            source.stop()

    @property
    def reasons(self) -> list[str]:
        return [trigger.reason for trigger in self.heard]

    def hears(self, *reasons: str, within_s: float = PATIENCE_S) -> bool:
        """Return whether each of REASONS has been heard, or is soon."""
        deadline = time.monotonic() + within_s
        while not set(reasons) <= set(self.reasons):
            left = deadline - time.monotonic()
            if left <= 0 or not self.inbox.wait(left):
                return False
            self.heard += self.inbox.take().triggers
        return True

    def hears_nothing(self, for_s: float = 0.2) -> bool:
        """Return whether nothing comes for a while; afterwards, the ear remembers nothing."""
        quiet = not self.inbox.wait(for_s)
        self.forget()
        return quiet

    def forget(self) -> None:
        """Forget what was heard, and what is just being said."""
        while self.inbox.wait(0.1):
            self.inbox.take()
        self.heard.clear()


def quickest(work: Callable[[], object]) -> float:
    """Return how long WORK takes: the least of three times, for a busy machine is not busy in all of them."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        work()
        took.append(time.monotonic() - began)
    return min(took)


def thread_of(source: str) -> threading.Thread:
    """Return the thread that works for the source called SOURCE."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == f"cdigen-{source}"]
    return thread


def threads() -> list[str]:
    """Return the names of the threads of sources."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cdigen-")]


def is_in(thread: threading.Thread, function: str) -> bool:
    """Return whether THREAD is in FUNCTION, or in what that has called."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and any(
        each.f_code.co_name == function for each, _ in traceback.walk_stack(frame)
    )


def kills_threads(test: Callable[..., None]) -> Callable[..., None]:
    """Mark TEST, which calls ``kill``: pytest ignores the warning, and coverage traces no thread of the test.

    While an exception waits for a thread that sleeps, CPython 3.11 does not leave the first instruction of a
    traced function (RESUME), in any thread: the sleeping thread is never woken.
    """
    ignored = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    marked: Callable[..., None] = ignored(pytest.mark.usefixtures("untraced")(test))
    return marked


def kill(thread: threading.Thread, within: str = "_work") -> None:
    """End THREAD from outside, as soon as it runs Python again; it is to be WITHIN that function."""
    # Before its work has begun, nothing of ours is there yet to notice.
    assert until(lambda: is_in(thread, within))
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def descriptors(kind: str) -> set[int]:
    """Return this process's descriptors of that KIND: inotify, eventfd, pipe, socket."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        # A path is no kind.
        if kind in link and not link.startswith("/"):
            found.add(int(name))
    return found


def watches() -> list[str]:
    """Return what the kernel lists of this process's inotify watches: number and inode of each."""
    (descriptor,) = descriptors("inotify")
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    return sorted(line for line in lines if line.startswith("inotify"))


def is_watched(folder: Path) -> bool:
    """Return whether the kernel tells this process of what happens in FOLDER, which exists."""
    return any(f" ino:{folder.stat().st_ino:x} " in line for line in watches())


def put_null_in_place_of(descriptor: int) -> None:
    """Make DESCRIPTOR another file; its number stays in use, so that nobody else's is closed later."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def run_apart(script: str, *arguments: str, start: tuple[str, ...]) -> list[str]:
    """Run the Python text SCRIPT in the namespaces that START makes; returns the lines that it prints."""
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
