"""``HealthTracker``: the health state of a running daemon, with its file, the marks and the vendors' checks.

The daemon's loop calls ``observe`` in each cycle. Another thread passes log records, uevents and probe
results at the same time. The lock is not held while vendor code reads the host.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from cdigen.health import marks
from cdigen.health.annotate import annotated, changed_devices, lost_devices
from cdigen.health.clearing import awaited, due_s
from cdigen.health.state import (
    ClearingPolicy,
    ClockReading,
    DevicesDiscovered,
    DriverLoaded,
    HealthChecked,
    LogRecordsReceived,
    TimeElapsed,
)
from cdigen.health.state_file import HealthStateWriter
from cdigen.health.transitions import apply_event
from cdigen.health.vendor_code import VendorCode
from cdigen.host.clocks import boottime
from cdigen.host.sysfs import has_guest
from cdigen.model.errors import CdigenError, StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.model.health import HealthSample
from cdigen.value import frozen, replace
from cdigen.vendors import registry
from cdigen.vendors.kernel.modules import load_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    from cdigen.health.state import Event, HealthState
    from cdigen.model.health import DeviceEvent, LogRecord
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext
    from cdigen.vendors.health import VendorHealth

    T = TypeVar("T")

# Maximum number of log records that wait for the discovery of their vendor's devices. The vendor's driver may
# be busy or hang.
BACKLOG = 512


@frozen
class TrackerOptions:
    """The configuration of the tracker. ``state_dir`` contains the files.

    ``boot`` is the kernel's id of this boot. ``ClearingPolicy`` describes ``clear_after_s`` and ``ignored``.
    ``vendors`` are the selected vendors. The files can name vendors of other packages that are not selected.
    """

    state_dir: str
    boot: str = ""
    clear_after_s: float = 300.0
    ignored: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()


class _KnownMarks:
    """The marks of the last reading without error, and a finding if the present reading has an error."""

    def __init__(self) -> None:
        self.present: tuple[marks.Mark, ...] = ()
        self.findings: tuple[Finding, ...] = ()

    def read(self, state_dir: str, inventories: Mapping[str, Inventory]) -> marks.Marks | None:
        """Return the marks and clears in STATE_DIR, or None if they cannot be read.

        The marks of devices that another device in INVENTORIES has replaced are removed from the file.
        """
        try:
            found, finding = marks.read(state_dir)
            if gone := marks.outlived(found.marks, inventories):
                marks.clear(state_dir, lambda one: one in gone)
        except StoreError as error:
            finding = finding_of(error, f"{state_dir}/{marks.FILE}")
        self.findings = (finding,) if finding is not None else ()
        if finding is not None:
            return None
        self.present = found.marks
        return found


class HealthTracker:
    """Tracks the health of all devices.

    HEALTH_OF returns the ``VendorHealth`` of a vendor. The clocks are the clocks of ``ClockReading``.
    """

    def __init__(
        self,
        *,
        health_of: Callable[[str], VendorHealth | None] = registry.health,
        boottime_s: Callable[[], float] = boottime,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._code = VendorCode(health_of)
        self._boottime_s = boottime_s
        self._wall_s = wall_s
        self._lock = threading.RLock()
        self._options = TrackerOptions(state_dir="")
        self._policy = ClearingPolicy(rules={})
        self._state: HealthState | None = None
        self._writer = HealthStateWriter(boottime_s)
        self._context: Callable[[], DiscoveryContext] | None = None
        self._inventories: dict[str, Inventory] = {}
        # The inventories of the last ``observe`` or ``take_changed``, and the inventories of the last
        # ``show``.
        self._reported: dict[str, Inventory] = {}
        self._shown: dict[str, Inventory] | None = None
        self._marks = _KnownMarks()
        self._backlog: deque[LogRecord] = deque(maxlen=BACKLOG)
        self._suspicious: set[str] = set()

    # Called by the daemon's loop.

    def observe(
        self,
        inventories: Mapping[str, Inventory],
        context: Callable[[], DiscoveryContext],
        options: TrackerOptions,
    ) -> dict[str, Inventory]:
        """Apply a discovery and check the devices; return the inventories with their health.

        CONTEXT returns a new context at each call, or raises ConfigError if the driver root does not exist.
        """
        here = _made(context)
        with self._lock:
            self._begin(options, inventories)
            self._context = context
            self._advance(
                DevicesDiscovered(inventories=inventories, passed_through=self._passed_through(here))
            )
            self._inventories = dict(inventories)
            self._read_marks()
        if here is not None:
            self._apply_unloads(here)
            for vendor, health in self._known():
                self._check(vendor, health, here)
        with self._lock:
            # The backlog may have records from before the discovery of their vendor.
            self._apply_records(tuple(self._backlog))
            reported = self._reported = self._annotated()
        self.save()
        return reported

    def with_links(self, inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """Set the last inventories to INVENTORIES, which have links; return INVENTORIES with their health.

        The specs have the health of ``observe``. ``take_changed`` returns the later changes.
        """
        with self._lock:
            self._inventories = dict(inventories)
            return self._annotated()

    def findings(self) -> tuple[Finding, ...]:
        """Return the errors of the health tracking, and the lost devices."""
        with self._lock:
            lost = lost_devices(self._state, self._inventories) if self._state is not None else ()
            return (*self._writer.findings(), *self._marks.findings, *self._code.findings(), *lost)

    def show(self, save: Callable[[dict[str, Inventory]], object]) -> None:
        """Call SAVE with the last inventories and their present health, while this thread holds the lock."""
        with self._lock:
            shown = self._annotated()
            save(shown)
            self._shown = shown

    def present(self) -> dict[str, Inventory]:
        """Return the last inventories with their present health."""
        with self._lock:
            return self._annotated()

    @property
    def is_shown(self) -> bool:
        """Whether the last ``show`` saved the present health."""
        with self._lock:
            return self._shown == self._annotated()

    def take_changed(self) -> tuple[str, ...]:
        """Return the devices whose health changed since the last call, or since the last ``observe``."""
        with self._lock:
            before, self._reported = self._reported, self._annotated()
            return changed_devices(before, self._reported)

    def close(self) -> None:
        """Save the state for the next daemon."""
        self.save(at_once=True)

    # Called by the health thread.

    @property
    def is_ready(self) -> bool:
        """Whether a discovery was applied. Before that, no device is known."""
        return self._context is not None

    def take_in(self, records: Iterable[LogRecord], events: Iterable[DeviceEvent], *, lost: int = 0) -> None:
        """Apply RECORDS of the kernel log and EVENTS; LOST is the number of records that were overwritten."""
        records = tuple(records)
        with self._lock:
            self._backlog.extend(records)
        if records and (here := self._here()) is not None:
            for vendor, health in self._known():
                self._load(vendor, health, here)
        with self._lock:
            self._apply_records(records)
            for event in events:
                for vendor, health in self._known():
                    if reports := self._code.parsed(
                        vendor, health.parse_uevents, event, self._inventories[vendor]
                    ):
                        self._advance(LogRecordsReceived(vendor=vendor, sequence=-1, reports=reports))
            self._advance(TimeElapsed())
            if lost:
                self._suspicious.update(vendor for vendor, _ in self._known())

    def save(self, *, at_once: bool = False) -> None:
        """Save the state (``HealthStateWriter.save``), and wait for the disk."""
        self._writer.save(self._options.state_dir, lambda: self._state, at_once=at_once)

    def probed(self, vendor: str, sample: HealthSample, began_s: float) -> None:
        """Apply the SAMPLE of a probe of VENDOR that began at BEGAN_S."""
        with self._lock:
            self._code.note(vendor, "probe", sample.unread and f"probe failed: {sample.unread}")
            self._advance(HealthChecked(vendor=vendor, sample=sample, began_s=began_s))

    def probe(self, vendor: str) -> HealthSample:
        """Return the sample of a probe of VENDOR's devices; a failed sample if vendor code raises."""
        health, inventory = self._code.health_of(vendor), self._inventories.get(vendor)
        here = self._here()
        if health is None or inventory is None or here is None:
            return HealthSample(source="probe")
        return self._code.sample("probe", health.probe, here, inventory)

    def set_hanging(self, vendors: Iterable[str]) -> None:
        """Set the findings for the hanging probes of VENDORS; remove the findings for other vendors."""
        vendors = set(vendors)
        for vendor in {*vendors, *self._inventories}:
            text = "probe hangs, the vendor's library does not respond"
            self._code.note(vendor, "hang", text if vendor in vendors else "")

    def vendors(self) -> tuple[str, ...]:
        """Return the vendors whose devices can be probed."""
        return tuple(vendor for vendor, _ in self._known())

    def awaited(self) -> dict[str, float]:
        """Return the vendors with causes that a probe may clear, and the times (``clearing.awaited``)."""
        with self._lock:
            return awaited(self._state, self._policy) if self._state is not None else {}

    def take_suspicious(self) -> set[str]:
        """Return the vendors with new causes or lost log records since the last call."""
        with self._lock:
            found, self._suspicious = self._suspicious, set()
        return found

    def due_s(self) -> float | None:
        """Return the next CLOCK_BOOTTIME at which elapsed time may clear a cause, or None for never."""
        with self._lock:
            if self._state is None:
                return None
            return due_s(self._state, self._policy, self._boottime_s())

    # Called while the thread holds the lock.

    def _begin(self, options: TrackerOptions, inventories: Mapping[str, Inventory]) -> None:
        """Set OPTIONS; the first call reads the state of this boot."""
        if self._state is None:
            self._state = self._writer.read(options.state_dir, options.boot)
        self._options = options
        self._code.selected = frozenset((*registry.VENDORS, *options.vendors))
        rules = {}
        # Vendors that are not on this host are left out, because their causes would need a megabyte.
        for vendor in {*inventories, *(one.vendor for one in self._state.vendors)}:
            health = self._code.health_of(vendor)
            if health is not None:
                rules.update({(vendor, rule.cause): rule for rule in health.causes})
        self._policy = ClearingPolicy(
            rules=rules,
            clear_after_s=options.clear_after_s,
            ignored=options.ignored,
            clears=self._policy.clears,
        )

    def _advance(self, event: Event) -> None:
        if self._state is None:
            return
        before = self._state
        now = ClockReading(boot_s=self._boottime_s(), wall_s=self._wall_s())
        self._state = apply_event(before, event, now, self._policy)
        self._suspicious |= _vendors_with_new_causes(before, self._state)

    def _apply_records(self, records: tuple[LogRecord, ...]) -> None:
        if self._state is None or not records:
            return
        for vendor, health in self._known():
            last_sequence = self._state.vendor(vendor).log_sequence
            new = [record for record in records if record.sequence > last_sequence]
            if not new:
                continue
            inventory, parse = self._inventories[vendor], health.parse_log
            reports = [one for record in new for one in self._code.parsed(vendor, parse, record, inventory)]
            self._advance(
                LogRecordsReceived(vendor=vendor, sequence=new[-1].sequence, reports=tuple(reports))
            )

    def _read_marks(self) -> None:
        """Read the marks and clears. If the file cannot be read, the last marks and clears stay."""
        found = self._marks.read(self._options.state_dir, self._inventories)
        if found is None:
            return
        boot, now_s = self._options.boot, self._boottime_s()
        # A time after NOW_S is from a different clock (time_namespaces(7)), and would clear future events.
        clears = tuple(one for one in found.clears if boot and one.boot == boot and one.at_s <= now_s)
        if clears != self._policy.clears:
            self._policy = replace(self._policy, clears=clears)
            self._advance(TimeElapsed())

    def _annotated(self) -> dict[str, Inventory]:
        if self._state is None:
            return dict(self._inventories)
        return annotated(self._state, self._marks.present, self._inventories, self._policy)

    # Called without the lock. These methods read the host or constant values.

    def _known(self) -> tuple[tuple[str, VendorHealth], ...]:
        """Return pairs of a vendor in the inventories and its ``VendorHealth``, if it has one."""
        return self._code.known(self._inventories)

    def _check(self, vendor: str, health: VendorHealth, here: DiscoveryContext) -> None:
        # The first read of the load detects a reload since the last check. The second read stores a time
        # after the check, so the next reload also clears the symptoms of this check.
        self._load(vendor, health, here)
        began_s = self._boottime_s()
        sample = self._code.sample("files", health.check, here, self._inventories[vendor])
        self._code.note(vendor, "check", sample.unread and f"check failed: {sample.unread}")
        with self._lock:
            self._advance(HealthChecked(vendor=vendor, sample=sample, began_s=began_s))
        self._load(vendor, health, here)

    def _here(self) -> DiscoveryContext | None:
        return _made(self._context) if self._context is not None else None

    def _passed_through(self, here: DiscoveryContext | None) -> tuple[str, ...]:
        if here is None or self._state is None:
            return ()
        return tuple(one.address for one in self._state.devices if has_guest(here.host, one.address))

    def _apply_unloads(self, here: DiscoveryContext) -> None:
        """Read the driver loads of vendors that had devices earlier in this boot, but have no devices now."""
        for known in self._state.vendors if self._state is not None else ():
            health = self._code.health_of(known.vendor)
            if known.vendor not in self._inventories and health is not None:
                self._load(known.vendor, health, here)

    def _load(self, vendor: str, health: VendorHealth, here: DiscoveryContext) -> None:
        load = load_of(here.host, *health.modules)
        with self._lock:
            self._advance(DriverLoaded(vendor=vendor, load=load))


def _made(context: Callable[[], DiscoveryContext]) -> DiscoveryContext | None:
    try:
        return context()
    except CdigenError:
        return None


def _vendors_with_new_causes(before: HealthState, after: HealthState) -> set[str]:
    """Return the vendors of devices with a cause in the state AFTER that is not in the state BEFORE."""
    if before.devices is after.devices:
        return set()
    known = {
        (device.vendor, device.address, one.cause, one.source, one.instance)
        for device in before.devices
        for one in device.evidence
    }
    return {
        device.vendor
        for device in after.devices
        for one in device.evidence
        if (device.vendor, device.address, one.cause, one.source, one.instance) not in known
    }
