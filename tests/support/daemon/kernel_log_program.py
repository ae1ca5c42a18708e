"""The program that reads the kernel's log, as a child."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import REPOSITORY

PROGRAM = REPOSITORY / "cdigen/kernellog"


class Program:
    """The program, reading LOG, which is open."""

    def __init__(self, log: int, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-ISB", PROGRAM, *arguments],
            stdin=log,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        assert self.process.stdout is not None
        self.lines = self.process.stdout

    def says(self) -> dict[str, Any]:
        """Return the next line that it says."""
        said: dict[str, Any] = json.loads(self.lines.readline())
        return said

    def hears(self) -> dict[str, Any]:
        """Return the next record that it passes on; others may overwrite the machine's own log meanwhile."""
        said = self.says()
        while "lost" in said:
            said = self.says()
        return said

    def status(self) -> dict[str, str]:
        """Return what /proc tells of the process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def cpu_s(self) -> float:
        """Return how long it has been on a processor."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
