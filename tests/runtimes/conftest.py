"""Fixtures of the tests of runtimes."""

from pathlib import Path

import pytest
from support.hosts.runtime_config import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a host without files."""
    return Tree(tmp_path)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """Return the spec directory of lower priority, which does not exist yet."""
    return tmp_path / "etc/cdi"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the spec directory of higher priority, which does not exist yet."""
    return tmp_path / "run/cdi"
