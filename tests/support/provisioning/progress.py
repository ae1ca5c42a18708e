"""The lines that a run prints while parts are made: at the start and end of each part.

On a terminal the last line shows which parts are being made, and the end of a log.
"""

import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from support.provisioning.parts import Part

CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Counts the parts that are left; used by one thread."""

    def __init__(self, logs: Path, total: int) -> None:
        self._logs = logs
        self._total = total
        self._ended = 0
        self._started_s = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def begun(self, part: Part, why: str) -> None:
        """Print that a part is being made, and why."""
        self.line(f"{part.name}: {part.what}: {why}, being made")

    def ended(self, part: Part, outcome: str) -> None:
        """Print the result of a part, and the number of remaining parts."""
        self._ended += 1
        left = self._total - self._ended
        self.line(f"{part.name}: {outcome}; {left} of {self._total} left after {self.elapsed()}")

    def line(self, text: str) -> None:
        """Print a line over the line that `running` has drawn."""
        print(f"{CLEAR_LINE if self._is_terminal else ''}  {text}", flush=True)

    def running(self, parts: Iterable[Part]) -> None:
        """On a terminal, draw one line with the parts being made and the last log line of the first part."""
        if self._is_terminal and (names := [part.name for part in parts]):
            text = f"  {self.elapsed()} {', '.join(names)}: {last_line(self._logs / names[0])}"
            print(f"{CLEAR_LINE}{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)

    def elapsed(self) -> str:
        """Return the time since the start as MINUTES:SECONDS."""
        minutes, seconds = divmod(int(time.monotonic() - self._started_s), 60)
        return f"{minutes}:{seconds:02}"


def last_line(log: Path) -> str:
    """Return the last line of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            rows = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return rows[-1].strip() if rows else ""


def tail(log: Path) -> str:
    """Return the last 20 lines of a log, for an error message."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
