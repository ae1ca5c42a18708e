"""A server of metrics and health on a socket in the test's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.daemon.http_client import AGE_S, Daemon, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.service.http.server import HttpServer


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "http.sock")


@pytest.fixture
def server(daemon: Daemon, path: str) -> Iterator[HttpServer]:
    with serving(daemon.routes(), path, request_s=AGE_S, idle_s=AGE_S) as made:
        yield made
