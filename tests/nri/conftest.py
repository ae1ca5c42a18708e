"""`cdigen nri` as a process, for one test or all tests of a module, and what its loop knows of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import Host, Plugin, host, plugin
from support.nri.serving import known_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.nri.decision.context import DecisionContext


@pytest.fixture
def running() -> Iterator[Plugin]:
    """Return a plugin whose host listens for it."""
    with host() as here, plugin(here) as made:
        yield made


@pytest.fixture
def here(running: Plugin) -> Host:
    """Return the host of `running`."""
    return running.host


@pytest.fixture(scope="module")
def host_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a host with a spec of two GPUs."""
    made = Host(tmp_path_factory.mktemp("known") / "host")
    made.write_spec()
    return made.root


@pytest.fixture(scope="module")
def known(host_root: Path) -> DecisionContext:
    """Return the state of that host, by which the plugin decides."""
    return known_of(host_root)


@pytest.fixture(scope="module")
def shared() -> Iterator[Plugin]:
    """Return the plugin of all tests of a module: it connects again when a runtime closes the connection."""
    with host() as here, plugin(here) as made:
        yield made
        assert "Traceback" not in made.text
        assert "defect" not in made.text
