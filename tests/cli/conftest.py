"""A fake GPU host and the real command, run as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import hosttree
import pytest
from command import GPUS, Done, Run
from kernelside import write_kernel_side


@pytest.fixture
def cdigen() -> Run:
    """Return the command as a function of its arguments."""

    def run(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "cdigen", *map(str, arguments)],
            check=False,
            input=stdin,
            capture_output=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONWARNINGS": "error", **environment},
        )
        return Done(
            code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode(errors="surrogateescape")
        )

    return run


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a Debian 13 host with two GPUs, with real character devices."""
    if os.geteuid() != 0:
        reason = "making character devices needs root"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    root = tmp_path / "host"
    hosttree.debian_13(root)
    write_kernel_side(root, GPUS)
    (root / "run").mkdir(exist_ok=True)
    (root / "var").mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    return root
