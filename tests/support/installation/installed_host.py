"""A clean Debian root with a GPU host in it (`debian_root`), and its systemd with cdigen (`started`)."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.abilities import cannot_run
from support.containers.booted_host import booted
from support.hosts.driver_files import V535, debian_12
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.installation.installing import done, make
from support.paths import REPOSITORY
from support.processes import succeeded

NAMESPACES = ("--mount", "--pid", "--ipc", "--net", "--cgroup")
HOST_PYTHON = "HOST_PYTHON=/usr/bin/python3"
# The folder of the GPU host, which is the --root of cdigen.
GPU_HOST = "gpu-host"


@contextmanager
def debian_root(cache: Path) -> Iterator[Path]:
    """Yield a clean Debian root of this machine's release, with systemd and Python, and a GPU host in it."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    if release.get("ID") != "debian" or not Path("/usr/bin/python3").exists():
        cannot_run("needs Debian and its python3: a root gets modules for the same Python")
    with tempfile.TemporaryDirectory(prefix="installed-", dir=cache) as folder:
        root = Path(folder) / "root"
        recipe = (
            REPOSITORY / "tests/e2e/recipes/debian-root",
            "--variant=minbase",
            "--include=python3,systemd-sysv",
            "--quiet",
            root,
        )
        environment = {**os.environ, "SUITE": release["VERSION_CODENAME"]}
        subprocess.run(recipe, check=True, env=environment, stdin=subprocess.DEVNULL)
        gpu_host = root / GPU_HOST
        gpu_host.mkdir()
        debian_12(gpu_host)
        write_kernel_side(gpu_host, example_gpus(2), driver_version=V535)
        (gpu_host / "run").mkdir()
        (gpu_host / "var").mkdir(exist_ok=True)
        (gpu_host / "var/run").symlink_to("../run")
        (gpu_host / "usr/bin").mkdir(exist_ok=True)
        shutil.copy("/usr/bin/python3", gpu_host / "usr/bin/python3")
        done(make("install-hook", gpu_host))
        yield root


def main_pid(run: Callable[..., str], unit: str) -> int:
    """Return the PID of a unit's main process (0 if there is none); RUN runs a command on the unit's host."""
    return int(run("systemctl", "show", "--property=MainPID", "--value", unit))


def assert_confined(run: Callable[..., str], unit: str) -> None:
    """Assert that a unit's process has no capability, its own network, and filtered system calls."""
    process = main_pid(run, unit)
    text = run("cat", f"/proc/{process}/status")
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert {status["CapEff"], status["CapBnd"]} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    namespaces = [run("readlink", f"/proc/{pid}/ns/net") for pid in (process, 1)]
    assert namespaces[0] != namespaces[1]


@contextmanager
def started(root: Path, **commands: str) -> Iterator[Callable[..., str]]:
    """Boot ROOT's own systemd with cdigen installed; yield a function that runs a command there.

    For each unit in COMMANDS, a drop-in replaces the unit's command.
    """
    done(make("install", root, HOST_PYTHON))
    for unit, command in commands.items():
        folder = root / f"etc/systemd/system/{unit.replace('_', '-')}.service.d"
        folder.mkdir()
        (folder / "root.conf").write_text(f"[Service]\nExecStart=\nExecStart={command}\n")
    with booted(root) as first:

        def run(*command: str) -> str:
            enter = ["nsenter", f"--target={first}", *NAMESPACES, "--root", "--wd"]
            return succeeded([*enter, *command], timeout=60)

        yield run
