"""The hook as 'make install-hook' installs it, and a container to start it on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.abilities import tool
from support.hook.container_root import Case

REPOSITORY = Path(__file__).resolve().parents[2]


def install(destination: Path, *, umask: int = 0o022, sources: Path = REPOSITORY) -> Path:
    """Install the hook of SOURCES below DESTINATION, and return the program."""
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
