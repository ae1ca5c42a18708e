"""``Patience``: how long to wait for a host between two states; all that the daemon remembers of the host.

While a package manager is at work, a driver may be half of two versions: ``package_manager``.
"""

from __future__ import annotations

import fcntl
import os
import struct

from cdigen.daemon.states import assess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cdigen.daemon.observation import Observation
    from cdigen.daemon.states import VendorStatus
    from cdigen.host.root import Root
    from cdigen.model.inventory import Inventory

# A driver's kernel module is built while its package is installed, which takes minutes.
PACKAGE_INSTALLATION_S = 900.0

# (name, lock file): who changes packages holds a record lock for writing on it: dpkg(1) and apt (mode 0640),
# rpm (0644; queries hold one for reading: rpmlock_acquire in lib/rpmlock.c). pacman's is there while it works
# (libalpm, handle.c).
LOCK_FILES = (
    ("dpkg", "/var/lib/dpkg/lock"),
    ("apt", "/var/lib/dpkg/lock-frontend"),
    ("rpm", "/var/lib/rpm/.rpm.lock"),
    ("rpm", "/usr/lib/sysimage/rpm/.rpm.lock"),
)
PRESENCE_FILES = (("pacman", "/var/lib/pacman/db.lck"),)

PACKAGE_MANAGERS = frozenset(name for name, _ in (*LOCK_FILES, *PRESENCE_FILES))

# struct flock of 64-bit Linux: type, whence, start, length, pid; with padding.
_FLOCK = struct.Struct("hhqqi4x")


class Patience:
    """Remembers of each vendor what is expected to change, and since when, by CLOCK."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # vendor -> what is expected to change, and since when
        self._since: dict[str, tuple[object, float]] = {}
        # vendor -> what was found at first, or when it was last settled; None: nothing
        self._settled: dict[str, Inventory | None] = {}

    def assess(
        self, observed: Observation, host: Root, vendor: str, *, settle_timeout_s: float
    ) -> VendorStatus:
        """Return the status of VENDOR as OBSERVED, for which SETTLE_TIMEOUT_S may be waited."""
        inventory, failure = observed.inventories.get(vendor), observed.failures.get(vendor)
        manager = package_manager(host)
        if manager and failure is not None:
            # A half-done installation is not a mismatch, and no reason to withdraw a whole spec.
            settle_timeout_s = max(settle_timeout_s, PACKAGE_INSTALLATION_S)
        busy = ""
        if manager and inventory is not None:
            busy = manager if inventory != self._settled.get(vendor, inventory) else ""

        def is_patient(transient: str) -> bool:
            what, since = self._since.get(vendor, (None, 0.0))
            return what != _expected(transient, inventory) or self._clock() - since < settle_timeout_s

        findings = inventory.findings if inventory is not None else ()
        return assess(failure, findings, patient=is_patient, busy=busy)

    def remember(self, statuses: dict[str, VendorStatus], inventories: dict[str, Inventory]) -> None:
        """Note the STATUSES and INVENTORIES of a cycle by their vendors."""
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
    """Return what is waited for: the end of a package manager, or that the INVENTORY stops changing."""
    return (transient, inventory if transient in PACKAGE_MANAGERS else None)


def package_manager(host: Root) -> str:
    """Return the name of a package manager that is at work on HOST, or an empty text."""
    for name, path in LOCK_FILES:
        if _is_locked(host, path):
            return name
    return next((name for name, path in PRESENCE_FILES if host.exists(path)), "")


def _is_locked(host: Root, path: str) -> bool:
    """Ask the kernel whether somebody holds a record lock for writing on PATH; takes none.

    A lock for reading waits only for one for writing, which takes a file opened for writing: only root can.
    One for reading any user can hold on rpm's file, for as long as they please.
    """
    try:
        with host.open(path) as file:
            asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file.descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
