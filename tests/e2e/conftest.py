"""Fixtures of several end-to-end test modules: a containerd with specs, a browser, a host for hook tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.abilities import tool
from support.browser.chromium import Chromium, Page
from support.containers.containerd_host import Containerd
from support.containers.gpu_hosts import HostOf
from support.containers.hostile_images import Target, arm
from support.nri.containerd_plugins import containerd_with_specs


@pytest.fixture(scope="module")
def containerd(cache: Path) -> Iterator[Containerd]:
    """Run the containerd of Debian's next release (it injects CDI devices), with specs and an inventory."""
    with containerd_with_specs(cache, "forky") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    """Run a real browser."""
    tool("chromium")
    with Chromium() as running:
        yield running


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Page]:
    """Return a new tab of the browser."""
    with browser.page() as opened:
        yield opened


@pytest.fixture(scope="module")
def target(driven: HostOf, tmp_path_factory: pytest.TempPathFactory) -> Target:
    """Return a host whose start-up hook is attacked by the images of the test module."""
    return arm(driven("view+hook").host, tmp_path_factory.mktemp("canaries"))
