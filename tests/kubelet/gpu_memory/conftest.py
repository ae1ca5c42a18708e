"""The fixture of tests of GPU memory: a device plugin on a node with shared GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.kubelet.gpu_memory_side import running_side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.kubelet.gpu_memory_side import Side


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with running_side(tmp_path) as made:
        yield made
