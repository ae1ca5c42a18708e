"""A folder for the stand-in of NVIDIA's library."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nvml.standin import trusted_folder


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder from which root may load a library."""
    with trusted_folder() as made:
        yield made
