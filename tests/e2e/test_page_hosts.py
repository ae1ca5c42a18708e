"""For each host, the page of the real daemon has the expected texts and layout in a real browser."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.browser.page_layout import LAYOUT_FAULTS
from support.daemon.host import Host, daemon
from support.daemon.http_client import free_port
from support.daemon.kernel_records import FakeLog, record
from support.hosts import amd_tree, intel_tree
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus
from support.nvml.standin import Gpu, Instance, Machine, install, trusted_folder, uuid
from support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.browser.chromium import Chromium, Page

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("real_nodes")]

SCREENS = ((360, False), (1240, False), (1240, True), (3840, False))
GPUS, PARTS = 16, range(7, 11)
LOST = "NVRM: Xid (PCI:{address}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def kernel_log(host: Host, stack: ExitStack) -> FakeLog:
    host.put("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
    (host.root / "dev/kmsg").unlink(missing_ok=True)
    log = FakeLog(host.root / "dev/kmsg")
    stack.callback(log.close)
    return log


def healthy(host: Host, stack: ExitStack) -> tuple[str, ...]:
    host.make(8)
    kernel_log(host, stack)
    return ()


def degraded(host: Host, stack: ExitStack) -> tuple[str, ...]:
    """Make a GPU fall off the bus, and remove the node of another GPU."""
    host.make(8)
    log = kernel_log(host, stack)
    text = LOST.format(address=example_gpus(1)[0].bdf[:-2])
    log.write(record(text, 1, stamp_us=int(time.monotonic() * 1e6)))
    (host.root / "dev/nvidia3").unlink()
    return ()


def no_gpu(host: Host, _: ExitStack) -> tuple[str, ...]:
    host.prepare()
    return ()


def mixed(host: Host, _: ExitStack) -> tuple[str, ...]:
    host.make(2)
    amd_tree.write(host.root, amd_tree.mi300x(8, count=1))
    intel_tree.lay(host.root, *intel_tree.flex_170())
    return ()


def large(host: Host, stack: ExitStack) -> tuple[str, ...]:
    """Split each of 16 GPUs into four MIG instances."""
    host.make(GPUS)
    write_minors(host.root, GPUS)
    gpus = []
    for place, each in enumerate(example_gpus(GPUS)):
        for gi in PARTS:
            write_instance(host.root, place, gi)
        parts = tuple(
            Instance(
                gpu_instance=gi, compute_instance=0, uuid=uuid(place * 64 + gi, "MIG"), profile="1g.20gb"
            )
            for gi in PARTS
        )
        gpus.append(Gpu(address=each.bdf, uuid=each.uuid, minor=place, mig=True, instances=parts))
    folder = stack.enter_context(trusted_folder())
    return ("--nvml", str(install(folder, Machine(gpus=tuple(gpus)))))


@pytest.mark.parametrize(
    ("prepare", "texts"),
    [
        (healthy, ("Ready: containers can use 8 devices", "No action is needed.", "nvidia.com/gpu=7")),
        (degraded, ("Degraded: ", "nvidia.com/gpu=0 is unhealthy: xid-79", "left out")),
        (no_gpu, ("Absent: ", "This host has no device", "No devices of these vendors: nvidia, amd, intel.")),
        (mixed, ("nvidia.com/gpu=1", "amd.com/gpu=", "intel.com/gpu=")),
        (large, ("Ready: containers can use 64 devices", "64 of 64", "split into 4", "15:0", "1g.20gb")),
    ],
)
def test_the_page_of_each_host_has_the_expected_texts_and_a_correct_layout(
    browser: Chromium,
    tmp_path: Path,
    prepare: Callable[[Host, ExitStack], tuple[str, ...]],
    texts: tuple[str, ...],
) -> None:
    host, port = Host(tmp_path / "host"), free_port()
    with ExitStack() as stack, browser.page() as tab:
        options = prepare(host, stack)
        # The device nodes of these hosts have no driver. The health probe would report this.
        host.configure("health: {ignore: [node-unusable]}\n", http_port=port)
        running = stack.enter_context(daemon(host, *options))
        running.rests()

        def shown() -> str:
            tab.show(f"http://127.0.0.1:{port}/?reload=off", width=1240)
            return str(tab.run("document.body.innerText"))

        until(lambda: all(each in shown() for each in texts), PATIENCE_S)
        text = shown()
        assert [each for each in texts if each not in text] == [], text
        for width, dark in SCREENS:
            _check_layout(tab, port, width=width, dark=dark)
            (tmp_path / f"{width}{'-dark' if dark else ''}.png").write_bytes(tab.picture())
        assert tab.complaints() == []


def _check_layout(tab: Page, port: int, *, width: int, dark: bool) -> None:
    tab.show(f"http://127.0.0.1:{port}/?reload=off", width=width, dark=dark)
    assert tab.run(LAYOUT_FAULTS) == [], (width, dark)
