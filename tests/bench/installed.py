"""cdigen as users install it, for a measurement: in a venv of its own, its modules compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def install(venv: Path, *wanted: str) -> Path:
    """Install this repository, or what is WANTED, into VENV; returns its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([*pip, *(wanted or (str(REPOSITORY),))], check=True, env=done)
    return venv / "bin"
