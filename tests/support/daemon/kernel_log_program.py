"""cdigen's program that reads the kernel log, as a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import REPOSITORY

PROGRAM = REPOSITORY / "cdigen/kernellog"


class Program:
    """A process of the program, which reads the log at the open descriptor LOG."""

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

    def next_line(self) -> dict[str, Any]:
        """Return the next line that the program prints."""
        line: dict[str, Any] = json.loads(self.lines.readline())
        return line

    def next_record(self) -> dict[str, Any]:
        """Return the next record that the program prints; skip its reports of overwritten records."""
        line = self.next_line()
        while "lost" in line:
            line = self.next_line()
        return line

    def status(self) -> dict[str, str]:
        """Return the fields of the process's file /proc/PID/status."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def cpu_s(self) -> float:
        """Return the CPU time of the process in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
