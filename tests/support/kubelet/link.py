"""A double of a kubelet, and a link to it, for tests of the protocol: `kubelet`, `link`, their `folder`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.kubelet.double import Kubelet
from support.waiting import until

from cdigen.kubelet.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    made = Link(
        str(folder / "device-plugins"),
        str(folder / "pod-resources" / "kubelet.sock"),
        notify=lambda: None,
        log=lambda _, __: None,
        # The link reads the folder when a test calls `look`, and never by itself.
        look_s=3600.0,
    )
    made.start()
    yield made
    made.stop()
    assert until(lambda: not made.is_running())


def status(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "run" / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return found
