"""A server of metrics and health on a socket of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import AGE_S, Daemon

from cdigen.frontend.http import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "http.sock")


@pytest.fixture
def server(daemon: Daemon, path: str) -> Iterator[Server]:
    made = Server(daemon.routes(), path, max_age_s=AGE_S)
    made.start()
    yield made
    made.stop()
