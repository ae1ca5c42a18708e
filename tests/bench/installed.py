"""Installs cdigen for a benchmark as users install it: in a separate venv, with compiled modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def install(venv: Path, *packages: str) -> Path:
    """Install this repository, or PACKAGES, into VENV; return the folder with the venv's programs."""
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([*pip, *(packages or (str(REPOSITORY),))], check=True, env=environment)
    return venv / "bin"
