"""``SettleTimer``: decides how long the daemon waits for a changing host.

``SettleTimer`` keeps the expected changes and the settled inventories between cycles. ``package_manager``
returns the name of a package manager that is at work. While a package manager is at work, the files of a
driver may be of two versions.
"""

from __future__ import annotations

import fcntl
import os
import struct

from cdigen.daemon.cycle.states import assess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.cycle.observation import Observation
    from cdigen.daemon.cycle.states import VendorStatus
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory

# Seconds. The installation of a driver's package takes minutes, because it builds the kernel module.
PACKAGE_INSTALLATION_S = 900.0

# Transient finding -> seconds of the wait, if these are fewer than ``settle_timeout_s``. KFD registers the
# partitions of a GPU within a second after the GPU has its new mode (amdgpu_xcp.c). If a partition is still
# missing later, for example because another device has its minor number, it stays missing.
_WAITS_S = {"partition-missing": 5.0}

# (package manager, lock file). A program that changes packages holds a write lock (record lock) on the file.
# - dpkg(1) and apt: file mode 0640.
# - rpm: file mode 0644. Queries hold a read lock (rpmlock_acquire in lib/rpmlock.c).
# pacman's file exists while pacman works (libalpm, handle.c).
LOCK_FILES = (
    ("dpkg", "/var/lib/dpkg/lock"),
    ("apt", "/var/lib/dpkg/lock-frontend"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
)
PRESENCE_FILES = (("pacman", "/var/lib/pacman/db.lck"),)

PACKAGE_MANAGERS = frozenset(name for name, _ in (*LOCK_FILES, *PRESENCE_FILES))

# struct flock of 64-bit Linux: type, whence, start, length, pid, padding.
_FLOCK = struct.Struct("hhqqi4x")


class SettleTimer:
    """Records the expected change of each vendor, and the time by CLOCK at which the wait began."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # vendor -> (the expected change, the time at which the wait began)
        self._since: dict[str, tuple[object, float]] = {}
        # vendor -> the inventory of the last cycle that awaited no change of the vendor. Until there is such
        # a cycle, the value is the inventory of the first cycle. None means that there was no inventory.
        self._settled: dict[str, Inventory | None] = {}

    def assess(
        self, observed: Observation, host: Root, vendor: str, *, settle_timeout_s: float
    ) -> VendorStatus:
        """Return the status of VENDOR in OBSERVED.

        The daemon may wait SETTLE_TIMEOUT_S for an expected change, or less for some changes. If the
        discovery fails while a package manager is at work, this limit is at least PACKAGE_INSTALLATION_S.
        """
        inventory, failure = observed.inventories.get(vendor), observed.failures.get(vendor)
        manager = package_manager(host)
        if manager and failure is not None:
            # An unfinished installation is not a mismatch, and is no reason to withdraw a usable spec.
            settle_timeout_s = max(settle_timeout_s, PACKAGE_INSTALLATION_S)
        busy = ""
        if manager and inventory is not None:
            busy = manager if inventory != self._settled.get(vendor, inventory) else ""

        def may_wait(transient: str) -> bool:
            expected, since = self._since.get(vendor, (None, 0.0))
            limit_s = min(settle_timeout_s, _WAITS_S.get(transient, settle_timeout_s))
            return expected != _expected(transient, inventory) or self._clock() - since < limit_s

        findings = inventory.findings if inventory is not None else ()
        return assess(failure, findings, may_wait=may_wait, busy=busy)

    def remember(self, statuses: dict[str, VendorStatus], inventories: dict[str, Inventory]) -> None:
        """Record the STATUSES and INVENTORIES of a cycle. The keys are vendors."""
        for vendor, status in statuses.items():
            inventory = inventories.get(vendor)
            if not status.awaits_change or vendor not in self._settled:
                self._settled[vendor] = inventory
            expected = _expected(status.transient, inventory)
            if not status.transient:
                self._since.pop(vendor, None)
            elif self._since.get(vendor, (None, 0.0))[0] != expected:
                self._since[vendor] = (expected, self._clock())


def _expected(transient: str, inventory: Inventory | None) -> object:
    """Return the expected change as a key for comparisons.

    While a package manager is at work, each change of INVENTORY makes a new key, which restarts the wait.
    """
    return (transient, inventory if transient in PACKAGE_MANAGERS else None)


def package_manager(host: Root) -> str:
    """Return the name of a package manager that is at work on HOST, or ""."""
    for name, path in LOCK_FILES:
        if _is_locked(host, path):
            return name
    return next((name for name, path in PRESENCE_FILES if host.exists(path)), "")


def _is_locked(host: Root, path: str) -> bool:
    """Return whether a process holds a write lock (record lock) on PATH; take no lock.

    The kernel is queried for a read lock, which conflicts only with a write lock. A write lock requires a
    file opened for writing, so only root can hold a write lock. Any user can hold a read lock on rpm's file
    without a time limit.
    """
    try:
        with host.open(path) as file:
            request = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            response = fcntl.fcntl(file.descriptor, fcntl.F_GETLK, request)
    except OSError:
        return False
    return bool(_FLOCK.unpack(response)[0] != fcntl.F_UNLCK)
