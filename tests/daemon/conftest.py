"""A host whose daemon a test runs, cycles of that daemon, and the host's kernel log."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from support.daemon.cycles import CycleRunner, after_first_cycle
from support.daemon.host import Host
from support.daemon.kernel_records import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path, real_nodes: None) -> Host:  # noqa: ARG001 - real_nodes checks that nodes can be made
    """Return a host with two GPUs, with short delays in the configuration of its daemon."""
    host = Host(tmp_path / "host").make()
    host.configure()
    return host


@pytest.fixture
def cycles(host: Host) -> CycleRunner:
    """Return a runner for the cycles of a daemon that has already written the spec."""
    return after_first_cycle(host)


@pytest.fixture
def log(host: Host) -> Iterator[FakeLog]:
    """Return the kernel log of the host."""
    with closing(FakeLog(host.kernel_log())) as log:
        yield log
