"""The host of a public report, written by a function: ``ReportHost``."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS
from support.command.in_process import run_here
from support.doctor.broken_host import BINARIES, BrokenHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class ReportHost(BrokenHost):
    """A host with the files that a report describes. It has specs only after ``generate``."""

    def lay(self, write: Callable[[Path], object], *runtimes: str) -> ReportHost:
        """Write the host by the function WRITE, and install RUNTIMES."""
        write(self.root)
        for folder in ("run", "var", "etc", "usr/bin"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.link("var/run", "/run")
        for runtime in runtimes:
            self.put(f"usr/bin/{BINARIES[runtime]}", "", mode=0o755)
        return self

    def shell(self, command: str, code: int = 0) -> str:
        """Run a command line of cdigen within the test's process, and return its output."""
        program, *words = shlex.split(command)
        assert program == "cdigen"
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS}
        ended, out, err = run_here(tuple(words), stdin=b"", environment=variables)
        assert ended == code, f"{command}\n{out.decode()}{err.decode()}"
        return out.decode()

    def results(self, *options: str) -> list[dict[str, Any]]:
        """Return all results of the doctor."""
        words = ("doctor", "--json", "--root", str(self.root), *options)
        variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS}
        _, out, _ = run_here(words, stdin=b"", environment=variables)
        rows: list[dict[str, Any]] = json.loads(out)
        return rows

    def generate(self, *options: str, code: int = 0) -> None:
        """Write the specs of the host."""
        self.shell(" ".join(("cdigen generate --write --quiet", f"--root {self.root}", *options)), code)

    def sources(self) -> dict[str, str]:
        """Return the mounts of the spec of the GPUs: container path -> host path."""
        mounts = self.document()["containerEdits"]["mounts"]
        return {mount["containerPath"]: mount["hostPath"] for mount in mounts}
