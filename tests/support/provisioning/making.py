"""Makes parts by their recipes, several concurrently, and makes a failed part a second time."""

import os
import subprocess
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from support.own_trees import remove_tree
from support.provisioning.condition import record
from support.provisioning.parts import E2E, Part
from support.provisioning.progress import Progress, tail

# The number of parts that are made concurrently, without the optional parts.
AT_A_TIME = max(2, min(4, os.cpu_count() or 1))
# The usual failure is an interrupted download.
ATTEMPTS = 2


class ProvisionError(Exception):
    """A step has failed; its message is printed."""


class Schedule:
    """Makes the parts in STALE, which has a reason for each. A part is made after the parts that it needs.

    A failed part is made again after the waiting parts. All parts that do not need it are still made.
    """

    def __init__(self, cache: Path, stale: dict[Part, str], progress: Progress) -> None:
        self._cache = cache
        self._stale = stale
        self._progress = progress
        self._waiting = list(stale)
        self._running: dict[Future[float], Part] = {}
        self._attempts = dict.fromkeys(stale, 0)
        self._failures: dict[str, str] = {}

    def run(self) -> None:
        """Make all parts. Then raise ProvisionError with the logs of the failed parts, if there are any."""
        with ThreadPoolExecutor(max_workers=max(1, len(self._stale))) as threads:
            while self._waiting or self._running:
                while part := self._next():
                    self._start(threads, part)
                for future in wait(self._running, timeout=1, return_when=FIRST_COMPLETED).done:
                    self._end(self._running.pop(future), future)
                self._progress.running(self._running.values())
        if self._failures:
            raise ProvisionError("\n".join(self._failures.values()))

    def _next(self) -> Part | None:
        """Return the part that can be started now."""
        unmade = {part.name for part in (*self._waiting, *self._running.values())}
        shared = sum(not part.is_optional for part in self._running.values())
        ready = (part for part in self._waiting if part.is_optional or shared < AT_A_TIME)
        return next((part for part in ready if not unmade & set(part.needs)), None)

    def _start(self, threads: ThreadPoolExecutor, part: Part) -> None:
        self._waiting.remove(part)
        self._attempts[part] += 1
        is_first = self._attempts[part] == 1
        self._progress.begun(part, self._stale[part] if is_first else "failed")
        self._running[threads.submit(make, self._cache, part, is_first=is_first)] = part

    def _end(self, part: Part, future: Future[float]) -> None:
        try:
            self._progress.ended(part, f"made in {future.result():.1f} s")
        except ProvisionError as error:
            if self._attempts[part] < ATTEMPTS:
                self._progress.line(f"{part.name}: failed, a second attempt follows")
                self._waiting.append(part)
                return
            self._failures[part.name] = str(error)
            self._progress.ended(part, f"failed {ATTEMPTS} times")
            for other in [other for other in self._waiting if self._failures.keys() & set(other.needs)]:
                self._waiting.remove(other)
                self._failures[other.name] = f"{other.name} was not made: it needs {part.name}"
                self._progress.ended(other, f"not made, it needs {part.name}")


def make(cache: Path, part: Part, *, is_first: bool = True) -> float:
    """Run the recipe of PART, move the result into CACHE, and write the stamp; return the seconds.

    The recipe writes to CACHE/making-NAME. It runs in its own mount namespace, so its mounts end with it.
    """
    started = time.monotonic()
    making = cache / f"making-{part.name}"
    log = cache / "logs" / part.name
    (cache / "stamps" / part.name).unlink(missing_ok=True)
    remove_tree(making, within=cache)
    making.mkdir()
    recipe = E2E / "recipes" / part.name
    with log.open("w" if is_first else "a") as output:
        done = subprocess.run(
            ["unshare", "--mount", recipe, making / part.name],
            cwd=cache,
            env={**os.environ, "E2E": str(E2E)},
            check=False,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    if done.returncode != 0:
        raise ProvisionError(f"recipes/{part.name} failed ({log}):\n{tail(log)}")
    remove_tree(cache / part.name, within=cache)
    (making / part.name).rename(cache / part.name)
    record(cache, part)
    remove_tree(making, within=cache)
    return time.monotonic() - started
