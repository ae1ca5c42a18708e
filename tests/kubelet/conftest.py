"""Fixtures of the kubelet's tests: a double of a kubelet, a link to it, and a host for `cdigen kubelet`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.kubelet.double import Kubelet
from support.kubelet.offered import linked
from support.kubelet.process import side_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.kubelet.process import Side

    from cdigen.kubelet.link import Link


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short: a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="k") as made:
        yield Path(made)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    double = Kubelet(folder)
    yield double
    double.stop()


@pytest.fixture
def link(folder: Path) -> Iterator[Link]:
    # The link reads the folder when a test calls `look`, and never by itself.
    with linked(folder / "device-plugins", folder / "pod-resources/kubelet.sock", look_s=3600.0) as made:
        yield made


@pytest.fixture
def side() -> Iterator[Side]:
    """Yield a host whose kubelet has started."""
    with side_of() as made:
        made.kubelet.start()
        yield made
