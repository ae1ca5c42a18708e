"""Fixtures of the tests of `cdigen kubelet`: a double of a kubelet, a KubeletLink to it, and a host."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.kubelet.advertised import linked
from support.kubelet.double import Kubelet
from support.kubelet.process import side_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.kubelet.process import Side

    from cdigen.kubelet.registration.link import KubeletLink


@pytest.fixture
def folder() -> Iterator[Path]:
    # The prefix is short, because a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="k") as made:
        yield Path(made)


@pytest.fixture
def kubelet(folder: Path) -> Iterator[Kubelet]:
    double = Kubelet(folder)
    yield double
    double.stop()


@pytest.fixture
def link(folder: Path) -> Iterator[KubeletLink]:
    # The KubeletLink reads the folder only when a test calls `check_folder`.
    with linked(folder / "device-plugins", folder / "pod-resources/kubelet.sock", check_s=3600.0) as made:
        yield made


@pytest.fixture
def side() -> Iterator[Side]:
    """Yield a host whose kubelet has started."""
    with side_of() as made:
        made.kubelet.start()
        yield made
