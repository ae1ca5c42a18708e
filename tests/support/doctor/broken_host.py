"""A fake host in a folder, methods that change its files, and the doctor's results for the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS, cannot_run
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.paths import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KIND, NAME = "nvidia.com/gpu", "nvidia.com-gpu.json"
DEVICE = f"{KIND}=0"
# The text of an /etc/passwd with an ordinary user.
ALICE = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n"
# The binaries of the runtimes in the tree; no test runs them.
BINARIES = {"podman": "podman", "docker": "dockerd", "containerd": "containerd", "crio": "crio"}


class BrokenHost:
    """A fake host with two GPUs and a valid spec, without failures until a test breaks it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root.parent / "tools"

    def make(self, *runtimes: str, lay: Callable[[Path], object] | None = None) -> BrokenHost:
        """Create the host with RUNTIMES and two GPUs (or the devices that LAY writes), and its specs."""
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
        self.install_cdigen()
        self.shell(f"cdigen generate --write --root {self.root}")
        return self

    def install_cdigen(self) -> BrokenHost:
        """Install a command `cdigen` that runs this repository's code, for ``shell``."""
        tool = self.tools / "cdigen"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m cdigen "$@"\n')
        tool.chmod(0o755)
        return self

    def path(self, name: str) -> Path:
        """Return the path of the host's file NAME, with the link var/run resolved."""
        return self.root / name.replace("var/run/", "run/")

    def put(self, name: str, content: str | dict[str, Any], mode: int = 0o644) -> Path:
        file = self.path(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(mode)
        return file

    def set_label(self, type_: str, *names: str) -> None:
        """Set a SELinux label with TYPE_ on the host's paths NAMES."""
        for name in names:
            try:
                label = f"u:object_r:{type_}:s0\0".encode()
                os.setxattr(self.path(name).resolve(), "security.selinux", label)
            except OSError as error:
                cannot_run(f"labels cannot be set here: {error.strerror}")

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
        """Return the document of cdigen's own spec."""
        found: dict[str, Any] = json.loads(self.spec.read_bytes())
        return found

    def changed(self, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Return the spec's document after the function CHANGE has changed it."""
        document = self.document()
        change(document)
        return document

    def shell(self, command: str, code: int = 0) -> str:
        """Run a command line on this machine, and return its output; the exit code must be CODE."""
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
        """Return the doctor's results. If WRONG is true, they must contain a failure, otherwise none."""
        words = " ".join(("cdigen doctor --json", f"--root {self.root}", *options))
        rows: list[dict[str, Any]] = json.loads(self.shell(words, code=int(wrong)))
        assert any(not row["ok"] for row in rows) == wrong
        return rows

    def diagnosis(self, *options: str) -> dict[str, Any]:
        """Return the doctor's first result, which must be a failure."""
        row = self.doctor(*options, wrong=True)[0]
        assert not row["ok"]
        return row

    def remedy_on_host(self, row: dict[str, Any]) -> str:
        """Return the commands in ROW for the examined host, "" if ROW has a remedy for this machine."""
        return "" if row["remedy"] else str(row["detail"].partition("; on that host: ")[2])

    def fixed(self, row: dict[str, Any], *options: str) -> None:
        """Run the printed remedy of ROW, and assert that the host has no failure afterwards."""
        assert row["remedy"], row
        self.shell(row["remedy"])
        rows = [row for row in self.results(*options) if not row["ok"]]
        assert rows == []

    def results(self, *options: str) -> list[dict[str, Any]]:
        """Return all results of the doctor."""
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
        rows = [row for row in self.results(*options) if row["check"] == check]
        assert rows, f"no result of {check}"
        return rows[0]
