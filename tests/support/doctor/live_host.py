"""This machine as a host: its root with a fake driver laid over it, in its own mount namespace.

On such a host, unlike below `--root`, the doctor runs runtimes to read their versions, and prints remedies
for the host itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

from support.abilities import WARNINGS, cannot_run, tool
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.paths import REPOSITORY

from cdigen.runtimes.installed import BINARIES, FOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The fake driver's files in /proc cover the machine's files. /sys has only the fake driver's files. The
# process keeps running, so that other processes can enter its namespace.
_SET_UP = """
set -e
base=$1
mount -t tmpfs live "$base"
mkdir "$base/lower" "$base/upper" "$base/work" "$base/root"
cp -a "$base.driver/." "$base/lower/"
mount -t overlay live -o "lowerdir=$base/lower:/,upperdir=$base/upper,workdir=$base/work" "$base/root"
cd "$base/root"
mount --rbind /proc proc
mount -t tmpfs driver proc/driver
cp -a "$base/lower/proc/driver/." proc/driver/
mount --bind "$base/lower/proc/devices" proc/devices
cp -a /dev/null /dev/zero /dev/random /dev/urandom dev/
for own in $2; do mkdir -p ".$own" && mount --rbind "$own" ".$own"; done
rm -rf etc/cdi etc/cdigen run/cdi run/cdigen var/lib/cdigen
rm -f .dockerenv run/.containerenv run/systemd/container
mkdir -p run tmp
for binary in $3; do rm -f ".$binary"; done
printf '%s\\n' "$4" >usr/bin/cdigen
chmod 755 usr/bin/cdigen
echo ready
exec sleep 100000
"""


class LiveHost:
    """A host with two GPUs, on which ``run`` and ``attempt`` run commands."""

    def __init__(self, base: Path, process: subprocess.Popen[str]) -> None:
        self._root = f"{base}/root"
        self._process = process

    def _enter(self, command: str) -> list[str]:
        pid = str(self._process.pid)
        return ["nsenter", "--target", pid, "--mount", "chroot", self._root, "/bin/sh", "-c", command]

    def attempt(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line on the host."""
        return subprocess.run(self._enter(command), check=False, capture_output=True, text=True)

    def run(self, command: str) -> str:
        """Run a command line on the host, and return its output; the command must succeed."""
        done = self.attempt(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, binary: str, version: str) -> None:
        """Install a runtime that prints VERSION."""
        script = f"#!/bin/sh\necho {binary} version {version}\n"
        self.run(f"printf '%s' '{script}' >/usr/bin/{binary} && chmod 755 /usr/bin/{binary}")

    def doctor(self, *options: str) -> list[dict[str, Any]]:
        """Return all results of the doctor."""
        done = self.attempt(f"cdigen doctor --json {' '.join(options)}")
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    def wrong(self, *options: str) -> dict[str, dict[str, Any]]:
        """Return the first failure of each check, by check."""
        return {row["check"]: row for row in reversed(self.doctor(*options)) if not row["ok"]}

    def spec(self) -> dict[str, Any]:
        """Return the spec of the GPUs."""
        document: dict[str, Any] = json.loads(self.run("cat /var/run/cdi/nvidia.com-gpu.json"))
        return document

    def status(self) -> dict[str, Any]:
        """Return the status of the daemon, empty before its first cycle has ended."""
        done = self.attempt("cat /run/cdigen/status.json")
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        return found if found.get("last_cycle") else {}

    @contextmanager
    def daemon(self) -> Iterator[list[dict[str, Any]]]:
        """Run the daemon until the body ends; yield a list that receives its log lines at the end."""
        process = subprocess.Popen(
            self._enter("exec cdigen run 2>/run/cdigen.log"), stdin=subprocess.DEVNULL, text=True
        )
        log: list[dict[str, Any]] = []
        try:
            yield log
        finally:
            process.terminate()
            process.wait()
            log += [json.loads(line) for line in self.run("cat /run/cdigen.log").splitlines()]


@contextmanager
def live_host(base: Path) -> Iterator[LiveHost]:
    """Run a host below BASE, a folder that does not exist yet; skip the test if this is impossible."""
    driver = base.with_name(f"{base.name}.driver")
    driver_files.debian_13(driver)
    write_kernel_side(driver, example_gpus(2))
    base.mkdir()
    # An interpreter without a virtual environment is in /usr, where the fake driver's libraries are too.
    own_folders = " ".join(sorted({str(REPOSITORY), sys.prefix} - {sys.base_prefix}))
    binaries = " ".join(f"{folder}/{name}" for folder in FOLDERS for name in BINARIES.values())
    command = f"""#!/bin/sh
unset KUBERNETES_SERVICE_HOST
cd {REPOSITORY} && PYTHONWARNINGS={quote(WARNINGS)} exec {sys.executable} -m cdigen "$@\""""
    unshare = (tool("unshare", "util-linux"), "--mount", "--propagation", "private")
    with subprocess.Popen(
        [*unshare, "/bin/sh", "-c", _SET_UP, "sh", str(base), own_folders, binaries, command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != "ready\n":
                cannot_run(f"a driver cannot be laid over the root of this machine: {process.stderr.read()}")
            yield LiveHost(base, process)
        finally:
            process.kill()
