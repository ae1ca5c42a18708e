"""``UeventSource``: receives the device events of the kernel and of udev over netlink.

The kernel's event comes first and does not require udevd. udev's event comes when the nodes exist and have
their owners. The triggers of both events have the same reason, so a log line shows the reason once. The
properties of the kernel's events are kept until ``take``, because drivers report hangs and resets in them.

pyudev's MonitorObserver is not used, because its thread ends when the queue overflows.
"""

from __future__ import annotations

import os
import re
import select
import socket
import threading
import time
from collections import deque
from errno import ENOBUFS, ENOENT, ENOTCONN

import pyudev  # type: ignore[import-untyped]  # it ships no types

from cdigen.host.root import shown
from cdigen.model.health import DeviceEvent
from cdigen.watch.triggers import Trigger
from cdigen.watch.worker import Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Maximum number of kept events. More events are pending only if the daemon is blocked. The oldest events are
# then dropped.
MOST = 256
# Kept characters of a property. An event of the kernel has at most 2,048 bytes and 64 properties
# (include/linux/kobject.h).
_LONGEST_PROPERTY = 200
_ADDRESS = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)")
# Properties that are not kept. Every event has them, or they repeat another property.
_COMMON = frozenset({"ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM", "PCI_SLOT_NAME", "MODALIAS"})


class UeventSource:
    """Puts a trigger for each event of a device of SUBSYSTEMS; ``take`` returns the kernel's events.

    The reason is subsystem, action and device: ``pci add 0000:65:00.0``. Only network namespaces that belong
    to the first user namespace receive events (lib/kobject_uevent.c).
    """

    name = "uevents"

    def __init__(self, subsystems: tuple[str, ...]) -> None:
        self._subsystems = subsystems
        self._filtered: set[str] = set()
        self._worker = Worker(self.name)
        self._wake = -1
        self._lock = threading.Lock()
        self._events: deque[DeviceEvent] = deque(maxlen=MOST)

    def start(self, put: Callable[[Trigger], None]) -> None:
        """Start; see ``Source``."""
        try:
            context = pyudev.Context()
        except ImportError as error:
            raise OSError(ENOENT, "libudev.so.1 is not installed") from error
        subsystems, monitors = self._subsystems, {}
        for kind in ("kernel", "udev"):
            monitor = _monitor(context, kind, subsystems)
            monitors[monitor.fileno()] = monitor
        self._filtered = set(subsystems)
        wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._worker.start(lambda: self._work(monitors, wake, put), put)
        except OSError:
            os.close(wake)
            raise
        self._wake = wake

    def rearm(self, subsystems: tuple[str, ...]) -> None:
        """Receive events of SUBSYSTEMS from now on, and of earlier subsystems until a restart.

        The thread adds new subsystems and then puts a trigger, because the caller may have checked the host
        before the thread received events of the new subsystems.
        """
        is_more = not set(subsystems) <= set(self._subsystems)
        self._subsystems = subsystems
        if is_more and self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Stop; see ``Source``."""
        self._worker.stopping.set()
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)
            self._worker.stop()
            os.close(self._wake)
            self._wake = -1

    def take(self) -> tuple[DeviceEvent, ...]:
        """Return the kernel's events since the last call in their order, at most the last MOST events."""
        with self._lock:
            events = tuple(self._events)
            self._events.clear()
        return events

    def problem(self) -> str:
        """Return the reason why no events are received, or ""; see ``Source``."""
        return self._worker.problem()

    def _work(self, monitors: dict[int, pyudev.Monitor], wake: int, put: Callable[[Trigger], None]) -> None:
        stopping = self._worker.stopping
        kernel = next(iter(monitors))
        poller = select.poll()
        for descriptor in (*monitors, wake):
            poller.register(descriptor, select.POLLIN)
        while not stopping.is_set():
            for descriptor, state in poller.poll():
                if descriptor != wake:
                    self._receive(monitors[descriptor], state, put, is_kernel=descriptor == kernel)
                elif not stopping.is_set():
                    os.eventfd_read(wake)
                    self._add_subsystems(monitors, put)

    def _add_subsystems(self, monitors: dict[int, pyudev.Monitor], put: Callable[[Trigger], None]) -> None:
        # The receiving thread does this, because libudev's monitors are not thread-safe.
        new = set(self._subsystems) - self._filtered
        for monitor in monitors.values():
            for subsystem in new:
                monitor.filter_by(subsystem)
        self._filtered |= new
        put(Trigger(source=self.name, reason="further subsystems are watched"))

    def _receive(
        self, monitor: pyudev.Monitor, state: int, put: Callable[[Trigger], None], *, is_kernel: bool
    ) -> None:
        if state & (select.POLLNVAL | select.POLLHUP):
            raise OSError(ENOTCONN, "the netlink socket was closed")
        if state & select.POLLERR:
            # Reading fails while the error is pending. Reading the error clears it.
            self._lost(_take_error(monitor.fileno()), put)
        while not self._worker.stopping.is_set():
            try:
                device = monitor.poll(timeout=0)
            except ValueError:
                # pyudev raises ValueError for EINVAL. libudev cannot read the message.
                device = None
            except OSError as error:
                # If the error has no number, pyudev has found POLLERR or POLLNVAL. The next poll in ``_work``
                # reports the same state.
                if error.errno is not None:
                    self._lost(error.errno, put)
                return
            if device is None:
                return
            if is_kernel:
                with self._lock:
                    self._events.append(_event(device))
            reason = f"{device.subsystem} {device.action} {device.sys_name}"
            put(Trigger(source=self.name, reason=shown(reason)))

    def _lost(self, number: int, put: Callable[[Trigger], None]) -> None:
        if number != ENOBUFS:
            raise OSError(number, os.strerror(number))
        put(Trigger(source=self.name, reason="events were lost: too many at once"))


def _monitor(context: pyudev.Context, kind: str, subsystems: tuple[str, ...]) -> pyudev.Monitor:
    monitor = pyudev.Monitor.from_netlink(context, source=kind)
    for subsystem in subsystems:
        monitor.filter_by(subsystem)
    monitor.start()
    return monitor


def _event(device: pyudev.Device) -> DeviceEvent:
    addresses = _ADDRESS.findall(device.device_path)
    properties = (
        (shown(key), shown(value[:_LONGEST_PROPERTY]))
        for key, value in device.properties.items()
        if key not in _COMMON
    )
    return DeviceEvent(
        subsystem=shown(device.subsystem or ""),
        action=shown(device.action or ""),
        address=addresses[-1] if addresses else "",
        at_s=time.clock_gettime(time.CLOCK_BOOTTIME),
        properties=tuple(sorted(properties)),
    )


def _take_error(descriptor: int) -> int:
    """Return the pending error number of the socket DESCRIPTOR, and clear the error."""
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
