"""Fixtures: the hook that 'make install-hook' installs, and a container for the hook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import tool
from support.hook.container_root import Case

REPOSITORY = Path(__file__).resolve().parents[2]


def install(destination: Path, *, umask: int = 0o022, sources: Path = REPOSITORY) -> Path:
    """Install the hook of the source tree SOURCES below the folder DESTINATION; return its program's path."""
    subprocess.run(
        [tool("make"), "-s", "install-hook", f"DESTDIR={destination}", f"HOOK_PYTHON={sys.executable}"],
        cwd=sources,
        check=True,
        umask=umask,
    )
    return destination / "usr/libexec/cdigen/cdigen-hook"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def case(tmp_path: Path, program: Path) -> Case:
    return Case(tmp_path, program)
