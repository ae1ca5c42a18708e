"""Hosts that something is wrong with: a fake tree, what breaks it, and the doctor's word on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIND, NAME = "nvidia.com/gpu", "nvidia.com-gpu.json"
DEVICE = f"{KIND}=0"
# A /etc/passwd with an ordinary user.
ALICE = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
# The binaries that make a tree a host of these runtimes; none of them is ever started.
BINARIES = {"podman": "podman", "docker": "dockerd", "containerd": "containerd", "crio": "crio"}


class BrokenHost:
    """A fake host with two GPUs and a good spec, that was well until a test came."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root.parent / "tools"

    def make(self, *runtimes: str, lay: Callable[[Path], object] | None = None) -> BrokenHost:
        """Lay the host with RUNTIMES, by LAY if it has other devices, and let cdigen write its specs."""
        if lay is None:
            driver_files.debian_13(self.root)
            write_kernel_side(self.root, example_gpus(2))
        else:
            lay(self.root)
        for folder in ("run", "var", "etc", "usr/bin"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.link("var/run", "/run")
        for runtime in runtimes:
            self.put(f"usr/bin/{BINARIES[runtime]}", "", mode=0o755)
        tool = self.tools / "cdigen"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m cdigen "$@"\n')
        tool.chmod(0o755)
        self.shell(f"cdigen generate --write --root {self.root}")
        return self

    def path(self, name: str) -> Path:
        """Return a path of the host, links on the way followed as the host would."""
        return self.root / name.replace("var/run/", "run/")

    def put(self, name: str, content: str | dict[str, Any], mode: int = 0o644) -> Path:
        file = self.path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(mode)
        return file

    def link(self, name: str, target: str) -> None:
        (self.root / name).symlink_to(target)

    def enable(self, unit: str, text: str = "[Unit]\n") -> None:
        """Install UNIT and enable it, as ``systemctl enable`` does."""
        self.put(f"usr/lib/systemd/system/{unit}", text)
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")

    @property
    def spec(self) -> Path:
        return self.root / "run/cdi" / NAME

    def document(self) -> dict[str, Any]:
        """Return what stands in cdigen's own spec."""
        found: dict[str, Any] = json.loads(self.spec.read_bytes())
        return found

    def changed(self, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Return the spec's document with a change."""
        document = self.document()
        change(document)
        return document

    def shell(self, command: str, code: int = 0) -> str:
        """Run a command line as it is printed, on this machine."""
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": f"{self.tools}:{os.environ['PATH']}", "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS},
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def doctor(self, *options: str, wrong: bool) -> list[dict[str, Any]]:
        """Ask the doctor, who must say by its exit code whether anything is WRONG."""
        words = " ".join(("cdigen doctor --json", f"--root {self.root}", *options))
        rows: list[dict[str, Any]] = json.loads(self.shell(words, code=int(wrong)))
        assert any(not row["ok"] for row in rows) == wrong
        return rows

    def diagnosis(self, *options: str) -> dict[str, Any]:
        """Return the first thing that is wrong."""
        row = self.doctor(*options, wrong=True)[0]
        assert not row["ok"]
        return row

    def told(self, row: dict[str, Any]) -> str:
        """Return the commands that ROW says are for that host, and no remedy for this machine."""
        return "" if row["remedy"] else str(row["detail"].partition("; on that host: ")[2])

    def fixed(self, row: dict[str, Any], *options: str) -> None:
        """Run the remedy in ROW as it is printed, after which nothing may be wrong."""
        assert row["remedy"], row
        self.shell(row["remedy"])
        rows = [row for row in self.ask(*options) if not row["ok"]]
        assert rows == []

    def ask(self, *options: str) -> list[dict[str, Any]]:
        """Return all results, whatever they are."""
        done = subprocess.run(
            ["/bin/sh", "-c", " ".join(("cdigen doctor --json", f"--root {self.root}", *options))],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": f"{self.tools}:{os.environ['PATH']}", "LANG": "C.UTF-8", "PYTHONWARNINGS": WARNINGS},
        )
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def result(self, check: str, *options: str) -> dict[str, Any]:
        """Return the first result of CHECK."""
        rows = [row for row in self.ask(*options) if row["check"] == check]
        assert rows, f"nothing was said of {check}"
        return rows[0]
