"""The folders that the tests of the store use."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.store import views
from support.store.processes import make_proc


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a host with the small driver of ``views.PLAN``."""
    return views.driver(tmp_path / "host")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a /proc in which no process has a view mounted."""
    return make_proc(tmp_path)


@pytest.fixture
def top(other_users: None) -> Iterator[Path]:  # noqa: ARG001 - the folder has files of other users
    """Return a folder that every user can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
