"""The real kernel's uevents; sent by writing to a device's uevent file, which takes root."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.daemon.watching import (
    Ear,
    descriptors,
    kill,
    kills_threads,
    put_null_in_place_of,
    quickest,
    run_apart,
    send,
    thread_of,
    threads,
)
from support.waiting import PATIENCE_S, until

from cdigen.watch.uevents import MOST, UeventSource

if TYPE_CHECKING:
    from cdigen.watch.triggers import Trigger

pytestmark = pytest.mark.usefixtures("uevents")

OTHER = Path("/sys/devices/virtual/tty/tty/uevent")


@pytest.fixture
def source(ear: Ear) -> UeventSource:
    """Return a source that tells the ear of the subsystem mem, from the kernel and udev."""
    return ear.start(UeventSource(("mem",)))


@pytest.mark.usefixtures("source")
def test_an_event_is_told_with_subsystem_action_and_device(ear: Ear) -> None:
    send()
    assert ear.hears("mem change null")
    send(action="add")
    assert ear.hears("mem add null")


@pytest.mark.usefixtures("source")
def test_other_subsystems_are_not_heard(ear: Ear) -> None:
    send(OTHER)
    send()
    assert ear.hears("mem change null")
    assert set(ear.reasons) == {"mem change null"}


def test_what_the_kernel_said_can_be_taken_once(source: UeventSource, ear: Ear) -> None:
    # The kernel writes SYNTH_ARG_ before what users say (Documentation/ABI/testing/sysfs-uevent).
    send(action="change 01234567-89ab-cdef-0123-456789abcdef WEDGED=none LONG=" + "x" * 300)
    assert ear.hears("mem change null")
    events = source.take()
    assert [(event.subsystem, event.action, event.address) for event in events] == [("mem", "change", "")]
    properties = dict(events[0].properties)
    assert properties["SYNTH_ARG_WEDGED"] == "none"
    assert events[0].is_synthetic
    assert properties["SYNTH_ARG_LONG"] == "x" * 200
    assert not {"ACTION", "SEQNUM", "WEDGED"} & set(properties)
    assert abs(events[0].at_s - time.clock_gettime(time.CLOCK_BOOTTIME)) < PATIENCE_S
    assert source.take() == ()


def test_an_event_of_a_pci_device_has_its_address(ear: Ear) -> None:
    devices = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not devices:
        cannot_run("this machine has no PCI bus")
    source = ear.start(UeventSource(("pci", "drm", "module")))
    send(devices[0])
    assert ear.hears(f"pci change {devices[0].parent.name}")
    addresses = [event.address for event in source.take() if event.subsystem == "pci"]
    assert addresses == [devices[0].parent.name]


def test_only_the_newest_events_are_kept(source: UeventSource, ear: Ear) -> None:
    for _ in range(MOST):
        send()
    send(action="add")
    assert ear.hears("mem add null")
    events = source.take()
    assert len(events) == MOST
    assert events[-1].action == "add"


def test_events_that_the_queue_does_not_hold_are_told_as_lost(ear: Ear) -> None:
    held, go_on = threading.Event(), threading.Event()

    def slow(trigger: Trigger) -> None:
        held.set()
        go_on.wait()
        ear.inbox.put(trigger)

    before = descriptors("socket")
    source = UeventSource(("mem",))
    source.start(slow)
    try:
        # For root, libudev makes it hold 128 MiB; without CAP_NET_ADMIN it holds some hundred events.
        for descriptor in descriptors("socket") - before:
            with socket.socket(fileno=os.dup(descriptor)) as netlink:
                netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        send()
        assert held.wait(PATIENCE_S)
        for _ in range(200):
            send()
        go_on.set()
        assert ear.hears("events were lost: too many at once")
        ear.forget()
        send(action="add")
        assert ear.hears("mem add null")
        assert source.problem() == ""
    finally:
        go_on.set()
        source.stop()


def test_a_stopped_source_says_nothing_and_leaves_nothing(ear: Ear) -> None:
    before = descriptors("socket"), descriptors("eventfd")
    source = UeventSource(("mem",))

    def live() -> None:
        source.start(ear.inbox.put)
        source.stop()

    assert quickest(live) < 1
    ear.forget()
    send()
    assert ear.hears_nothing()
    assert until(lambda: threads() == [])
    assert (descriptors("socket"), descriptors("eventfd")) == before


@kills_threads
def test_a_thread_that_is_killed_is_a_problem_and_can_be_started_again(
    ear: Ear, source: UeventSource
) -> None:
    kill(thread_of("uevents"))
    send()
    assert ear.hears("stopped by itself")
    assert source.problem() == "its thread has ended: killed"
    source.stop()
    source.start(ear.inbox.put)
    ear.forget()
    send()
    assert ear.hears("mem change null")


def test_a_socket_that_is_gone_is_a_problem_and_can_be_started_again(ear: Ear) -> None:
    before = descriptors("socket")
    source = ear.start(UeventSource(("mem",)))
    for descriptor in descriptors("socket") - before:
        put_null_in_place_of(descriptor)
    send()
    assert ear.hears("stopped by itself")
    assert source.problem().startswith("its thread has ended: ")
    source.stop()
    source.start(ear.inbox.put)
    send()
    assert ear.hears("mem change null")
    assert source.problem() == ""


LISTEN = """
from pathlib import Path
from support.daemon.watching import Ear
from cdigen.watch.uevents import MOST, UeventSource

ear = Ear()
source = UeventSource(("mem",))
source.start(ear.inbox.put)
Path("/sys/devices/virtual/mem/null/uevent").write_text("change")
print(ear.hears("mem change null"))
source.stop()
"""


def test_the_kernels_events_reach_a_private_network() -> None:
    send()
    assert run_apart(LISTEN, start=("unshare", "--net")) == ["True"]
