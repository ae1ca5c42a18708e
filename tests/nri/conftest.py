"""Fixtures: a process `cdigen nri` for one test or for all tests of a module, and a DecisionContext."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.nri.plugin import Host, Plugin, host, plugin
from support.nri.serving import context_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdigen.nri.decision.context import DecisionContext


@pytest.fixture
def running() -> Iterator[Plugin]:
    """Return a running plugin, whose host has a double of a runtime that listens at the socket."""
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
def context(host_root: Path) -> DecisionContext:
    """Return the context of decisions about containers on the host below `host_root`."""
    return context_on(host_root)


@pytest.fixture(scope="module")
def shared() -> Iterator[Plugin]:
    """Return a running plugin for all tests of a module. It reconnects if a runtime closes the connection."""
    with host() as here, plugin(here) as made:
        yield made
        assert "Traceback" not in made.text
        assert "defect" not in made.text
