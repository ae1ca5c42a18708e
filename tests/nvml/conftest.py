"""A fixture with a folder for the stand-in, a library that replaces NVIDIA's libnvidia-ml."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvml.standin import trusted_folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a folder that only this user can change, so that cdigen loads a library from it."""
    with trusted_folder() as made:
        yield made
