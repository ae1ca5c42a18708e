"""Uevents of the real kernel. Root causes them with writes to the uevent file of a device."""

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
    TriggerRecorder,
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
def source(recorder: TriggerRecorder) -> UeventSource:
    """Return a source for kernel and udev events of the subsystem mem; the recorder receives its triggers."""
    return recorder.start(UeventSource(("mem",)))


@pytest.mark.usefixtures("source")
def test_a_trigger_names_the_subsystem_the_action_and_the_device(recorder: TriggerRecorder) -> None:
    send()
    assert recorder.receives("mem change null")
    send(action="add")
    assert recorder.receives("mem add null")


@pytest.mark.usefixtures("source")
def test_events_of_other_subsystems_are_ignored(recorder: TriggerRecorder) -> None:
    send(OTHER)
    send()
    assert recorder.receives("mem change null")
    assert set(recorder.reasons) == {"mem change null"}


def test_an_event_of_the_kernel_is_returned_once(source: UeventSource, recorder: TriggerRecorder) -> None:
    # The kernel writes SYNTH_ARG_ before the arguments of users (Documentation/ABI/testing/sysfs-uevent).
    send(action="change 01234567-89ab-cdef-0123-456789abcdef WEDGED=none LONG=" + "x" * 300)
    assert recorder.receives("mem change null")
    events = source.take()
    assert [(event.subsystem, event.action, event.address) for event in events] == [("mem", "change", "")]
    properties = dict(events[0].properties)
    assert properties["SYNTH_ARG_WEDGED"] == "none"
    assert events[0].is_synthetic
    assert properties["SYNTH_ARG_LONG"] == "x" * 200
    assert not {"ACTION", "SEQNUM", "WEDGED"} & set(properties)
    assert abs(events[0].at_s - time.clock_gettime(time.CLOCK_BOOTTIME)) < PATIENCE_S
    assert source.take() == ()


def test_an_event_of_a_pci_device_contains_its_address(recorder: TriggerRecorder) -> None:
    devices = sorted(Path("/sys/bus/pci/devices").glob("*/uevent"))
    if not devices:
        cannot_run("this machine has no PCI bus")
    source = recorder.start(UeventSource(("pci", "drm", "module")))
    send(devices[0])
    assert recorder.receives(f"pci change {devices[0].parent.name}")
    addresses = [event.address for event in source.take() if event.subsystem == "pci"]
    assert addresses == [devices[0].parent.name]


def test_only_the_newest_events_are_kept(source: UeventSource, recorder: TriggerRecorder) -> None:
    for _ in range(MOST):
        send()
    send(action="add")
    assert recorder.receives("mem add null")
    events = source.take()
    assert len(events) == MOST
    assert events[-1].action == "add"


def test_events_beyond_the_queue_are_reported_as_lost(recorder: TriggerRecorder) -> None:
    held, go_on = threading.Event(), threading.Event()

    def slow(trigger: Trigger) -> None:
        held.set()
        go_on.wait()
        recorder.queue.put(trigger)

    before = descriptors("socket")
    source = UeventSource(("mem",))
    source.start(slow)
    try:
        # libudev sets the size of the queue to 128 MiB for root. Without CAP_NET_ADMIN, the queue has space
        # for some hundred events.
        for descriptor in descriptors("socket") - before:
            with socket.socket(fileno=os.dup(descriptor)) as netlink:
                netlink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        send()
        assert held.wait(PATIENCE_S)
        for _ in range(200):
            send()
        go_on.set()
        assert recorder.receives("events were lost: too many at once")
        recorder.clear()
        send(action="add")
        assert recorder.receives("mem add null")
        assert source.problem() == ""
    finally:
        go_on.set()
        source.stop()


def test_a_stopped_source_puts_no_trigger_and_leaves_no_thread_or_descriptor(
    recorder: TriggerRecorder,
) -> None:
    before = descriptors("socket"), descriptors("eventfd")
    source = UeventSource(("mem",))

    def start_and_stop() -> None:
        source.start(recorder.queue.put)
        source.stop()

    assert quickest(start_and_stop) < 1
    recorder.clear()
    send()
    assert recorder.receives_nothing()
    assert until(lambda: threads() == [])
    assert (descriptors("socket"), descriptors("eventfd")) == before


@kills_threads
def test_a_killed_thread_is_a_problem_and_the_source_can_be_started_again(
    recorder: TriggerRecorder, source: UeventSource
) -> None:
    kill(thread_of("uevents"))
    send()
    assert recorder.receives("stopped unexpectedly")
    assert source.problem() == "the source's thread has ended: killed"
    source.stop()
    source.start(recorder.queue.put)
    recorder.clear()
    send()
    assert recorder.receives("mem change null")


def test_a_closed_socket_is_a_problem_and_the_source_can_be_started_again(recorder: TriggerRecorder) -> None:
    before = descriptors("socket")
    source = recorder.start(UeventSource(("mem",)))
    for descriptor in descriptors("socket") - before:
        put_null_in_place_of(descriptor)
    send()
    assert recorder.receives("stopped unexpectedly")
    assert source.problem().startswith("the source's thread has ended: ")
    source.stop()
    source.start(recorder.queue.put)
    send()
    assert recorder.receives("mem change null")
    assert source.problem() == ""


LISTEN = """
from pathlib import Path
from support.daemon.watching import TriggerRecorder
from cdigen.watch.uevents import MOST, UeventSource

recorder = TriggerRecorder()
source = UeventSource(("mem",))
source.start(recorder.queue.put)
Path("/sys/devices/virtual/mem/null/uevent").write_text("change")
print(recorder.receives("mem change null"))
source.stop()
"""


def test_events_of_the_kernel_reach_a_private_network_namespace() -> None:
    send()
    assert run_apart(LISTEN, start=("unshare", "--net")) == ["True"]
