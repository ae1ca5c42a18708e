"""``UeventSource``: receive the device events of the kernel, and then of udev, over netlink.

The kernel's event comes first and needs no udevd; udev's comes when the nodes exist and have their owners.
Both give the same reason, so that one line stands for both. What the kernel's said is kept until it is taken:
drivers tell of hangs and resets so.

pyudev's MonitorObserver is not used: its thread dies when the queue overflows.
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

# More are kept only of a host whose daemon is held up; the oldest go.
MOST = 256
# The kernel gives an event 2,048 bytes and 64 properties (include/linux/kobject.h).
_LONGEST_PROPERTY = 200
_ADDRESS = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)")
# In every event, or the same as what else it says.
_COMMON = frozenset({"ACTION", "DEVPATH", "SUBSYSTEM", "SEQNUM", "PCI_SLOT_NAME", "MODALIAS"})


class UeventSource:
    """Tells of each event of a device of SUBSYSTEMS; ``take`` gives what the kernel said in them.

    The reason is subsystem, action and device: ``pci add 0000:65:00.0``. Events reach every network
    namespace that belongs to the first user namespace (lib/kobject_uevent.c), and no other.
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
        """Listen; see ``Source``."""
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
        """Listen to SUBSYSTEMS from now on; earlier ones are still received until a restart.

        Makes a trigger as soon as new ones are received: the caller may have looked before that.
        """
        is_more = not set(subsystems) <= set(self._subsystems)
        self._subsystems = subsystems
        if is_more and self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Stop listening; see ``Source``."""
        self._worker.stopping.set()
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)
            self._worker.stop()
            os.close(self._wake)
            self._wake = -1

    def take(self) -> tuple[DeviceEvent, ...]:
        """Return the kernel's events since the last time, in their order, the last MOST of them."""
        with self._lock:
            events = tuple(self._events)
            self._events.clear()
        return events

    def problem(self) -> str:
        """Return why nothing is received any more; see ``Source``."""
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
                    self._hear(monitors[descriptor], state, put, is_kernel=descriptor == kernel)
                elif not stopping.is_set():
                    os.eventfd_read(wake)
                    self._widen(monitors, put)

    def _widen(self, monitors: dict[int, pyudev.Monitor], put: Callable[[Trigger], None]) -> None:
        # In the listening thread: libudev's monitors are not thread-safe.
        new = set(self._subsystems) - self._filtered
        for monitor in monitors.values():
            for subsystem in new:
                monitor.filter_by(subsystem)
        self._filtered |= new
        put(Trigger(source=self.name, reason="listening to more subsystems"))

    def _hear(
        self, monitor: pyudev.Monitor, state: int, put: Callable[[Trigger], None], *, is_kernel: bool
    ) -> None:
        if state & (select.POLLNVAL | select.POLLHUP):
            raise OSError(ENOTCONN, "the netlink socket was closed")
        if state & select.POLLERR:
            # Reading fails as long as the error is pending; getting it clears it.
            self._lost(_take_error(monitor.fileno()), put)
        while not self._worker.stopping.is_set():
            try:
                device = monitor.poll(timeout=0)
            except ValueError:
                # EINVAL, as pyudev reports it: a message that libudev cannot read.
                device = None
            except OSError as error:
                # Without a number: pyudev has seen POLLERR or POLLNVAL, which our next poll sees too.
                if error.errno is not None:
                    self._lost(error.errno, put)
                return
            if device is None:
                return
            if is_kernel:
                with self._lock:
                    self._events.append(_event(device))
            words = f"{device.subsystem} {device.action} {device.sys_name}"
            put(Trigger(source=self.name, reason=shown(words)))

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
    """Return the pending error number of the socket DESCRIPTOR, and clear it."""
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return copy.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
