"""A real browser shows the page of the real daemon during a driver upgrade, and while NVML hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.browser.page_layout import LAYOUT_FAULTS
from support.containers.upgrade_host import daemon as daemon_on
from support.containers.upgrade_host import upgrade_host
from support.daemon.host import Host, daemon
from support.daemon.http_client import free_port
from support.daemon.stats import FIRST
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Machine, gpu, install, trusted_folder
from support.waiting import limited

if TYPE_CHECKING:
    from pathlib import Path

    from support.browser.chromium import Page

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("real_nodes")]

RELOAD_S = 5
# The start time of the document, which changes with each load.
DOCUMENT_START = "performance.timeOrigin"
RESPONSE_MS = "(n => n.responseEnd - n.requestStart)(performance.getEntriesByType('navigation')[0])"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host").make()


def text(tab: Page) -> str:
    shown: str = tab.run("document.body.innerText")
    return shown


def loads_until(tab: Page, expected: str, *, most: int = 4) -> str:
    """Wait for at most `most` automatic reloads until the page contains EXPECTED; return the page's text."""
    tab.forget_loads()
    for _ in range(most):
        tab.wait_for_load()
        if expected in (shown := text(tab)):
            return shown
    raise AssertionError(shown)


def test_an_upgrade_by_apt_appears_on_the_open_page(tab: Page, upgrade_tree: Path, images: Path) -> None:
    port = free_port()
    # The nodes of this host have no GPU, so each health probe fails to open them.
    config = f"daemon: {{settle_timeout_s: 2, http_port: {port}}}\nhealth: {{ignore: [node-unusable]}}\n"
    with upgrade_host(upgrade_tree, images=images, config=config, hook=False) as upgraded:
        older, newer = upgraded.versions
        with daemon_on(upgraded):
            upgraded.becomes("ready")
            tab.show(f"http://127.0.0.1:{port}/?reload={RELOAD_S}", width=1240)
            first, shown = tab.run(DOCUMENT_START), text(tab)
            assert "Ready: " in shown
            assert older in shown
            upgraded.install(newer)
            upgraded.becomes("mismatch")
            between = loads_until(tab, "Mismatch: ")
            assert (
                f"the kernel module has version {older}, but the installed libraries have version {newer}"
                in between
            )
            assert "rmmod nvidia_uvm" in between
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            after = loads_until(tab, "Ready: ")
            assert newer in after
            assert tab.run(DOCUMENT_START) > first
            assert tab.run(LAYOUT_FAULTS) == []
    assert tab.complaints() == []


@limited(1.0)
def test_the_page_is_served_within_a_second_while_nvml_hangs(tab: Page, host: Host, within_s: float) -> None:
    port = free_port()
    host.configure(http_port=port)
    gpus = tuple(
        gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid) for each in example_gpus(2)
    )
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=gpus, faults=(f"{FIRST} hang",)))
        with daemon(host, "--nvml", str(library)) as running:
            running.sees(lambda: running.state == "ready")
            durations_ms = []
            for _ in range(3):
                tab.show(f"http://127.0.0.1:{port}/?reload=off", width=1240)
                assert "Memory and load are unknown: no response yet" in text(tab)
                durations_ms.append(tab.run(RESPONSE_MS))
            # A busy machine may delay a response.
            assert min(durations_ms) < 1000 * within_s
    assert tab.complaints() == []
