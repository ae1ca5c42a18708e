"""The page of the real daemon in a real browser that nobody touches: a driver is upgraded, NVML hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.browser.page_layout import LOOKS
from support.containers.upgrade_host import daemon as daemon_on
from support.containers.upgrade_host import upgrade_host
from support.daemon.figures import FIRST
from support.daemon.host import Host, daemon
from support.daemon.http_client import free_port
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Machine, gpu, install, trusted_folder
from support.waiting import limited

if TYPE_CHECKING:
    from pathlib import Path

    from support.browser.chromium import Page

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("real_nodes")]

RELOAD_S = 5
# Which document a page is: of one that was loaded anew the time of its beginning is another.
BEGUN = "performance.timeOrigin"
ANSWERED_MS = "(n => n.responseEnd - n.requestStart)(performance.getEntriesByType('navigation')[0])"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host").make()


def text(tab: Page) -> str:
    shown: str = tab.run("document.body.innerText")
    return shown


def loads_until(tab: Page, word: str, *, most: int = 4) -> str:
    """Return what the page shows once it shows WORD, after so many of its own reloads at the MOST."""
    tab.forget_loads()
    for _ in range(most):
        tab.wait_for_load()
        if word in (shown := text(tab)):
            return shown
    raise AssertionError(shown)


def test_an_upgrade_by_apt_is_seen_on_the_page_that_is_open(
    tab: Page, upgrade_tree: Path, images: Path
) -> None:
    port = free_port()
    config = f"daemon: {{settle_timeout_s: 2, http_port: {port}}}\n"
    with upgrade_host(upgrade_tree, images=images, config=config, hook=False) as upgraded:
        older, newer = upgraded.versions
        with daemon_on(upgraded):
            upgraded.becomes("ready")
            tab.show(f"http://127.0.0.1:{port}/?reload={RELOAD_S}", width=1240)
            first, shown = tab.run(BEGUN), text(tab)
            assert "Ready for" in shown
            assert older in shown
            upgraded.install(newer)
            upgraded.becomes("mismatch")
            between = loads_until(tab, "Mismatch for")
            assert f"the kernel module is {older}, but the installed libraries are {newer}" in between
            assert "rmmod nvidia_uvm" in between
            upgraded.load_module(newer)
            upgraded.becomes("ready")
            after = loads_until(tab, "Ready for")
            assert newer in after
            assert tab.run(BEGUN) > first
            assert tab.run(LOOKS) == []
    assert tab.complaints() == []


@limited(1.0)
def test_the_page_comes_within_a_second_while_nvml_hangs(tab: Page, host: Host, within_s: float) -> None:
    port = free_port()
    host.configure(http_port=port)
    gpus = tuple(
        gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid) for each in example_gpus(2)
    )
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=gpus, faults=(f"{FIRST} hang",)))
        with daemon(host, "--nvml", str(library)) as running:
            running.sees(lambda: running.state == "ready")
            answered = []
            for _ in range(3):
                tab.show(f"http://127.0.0.1:{port}/?reload=off", width=1240)
                assert "Memory and load are unknown: there is no answer yet" in text(tab)
                answered.append(tab.run(ANSWERED_MS))
            # A busy machine may hold up one of them.
            assert min(answered) < 1000 * within_s
    assert tab.complaints() == []
