"""Fixtures that several test modules of this folder use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.installation.installed_host import debian_root


@pytest.fixture(scope="module")
def host(cache: Path) -> Iterator[Path]:
    """Return the root of a clean Debian host with GPUs."""
    with debian_root(cache) as root:
        yield root
