"""``Keeper``: the book as a running daemon keeps it, with its file, the marks, and what vendors say.

The daemon's loop calls ``observe`` in each cycle; another thread brings what the log, uevents and probes tell
meanwhile. The lock is held for no call of a vendor's that reads the host.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from cdigen.health import marks
from cdigen.health.advance import advance, awaited, due_s
from cdigen.health.annotate import annotated, changed_devices, lost_devices
from cdigen.health.book import Heard, Loaded, Looked, Moment, Passed, Policy, Seen
from cdigen.health.shelf import Shelf
from cdigen.host.clocks import boottime
from cdigen.host.sysfs import has_guest
from cdigen.model.errors import CdigenError, StoreError
from cdigen.model.findings import Finding, finding_of
from cdigen.model.health import Look
from cdigen.value import frozen, replace
from cdigen.vendors import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    from cdigen.health.book import Book, Event
    from cdigen.model.health import DeviceEvent, LogRecord, Recovery, Symptom
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext
    from cdigen.vendors.health import VendorHealth

    T = TypeVar("T")

# Records that wait for a vendor whose devices have not been found yet: its driver may be busy or hang.
BACKLOG = 512
DEFECT = "health-defect"


@frozen
class KeeperOptions:
    """What the configuration says: where the files are, and for how long it has to be quiet, in seconds.

    ``boot`` is the kernel's id of this boot.
    """

    state_dir: str
    boot: str = ""
    quiet_s: float = 300.0
    ignored: tuple[str, ...] = ()


class Keeper:
    """Keeps the book. HEALTH_OF returns a vendor's ``VendorHealth``; the clocks are those of ``Moment``."""

    def __init__(
        self,
        *,
        health_of: Callable[[str], VendorHealth | None] = registry.health,
        boottime_s: Callable[[], float] = boottime,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._health_of = health_of
        self._boottime_s = boottime_s
        self._wall_s = wall_s
        self._lock = threading.RLock()
        self._options = KeeperOptions(state_dir="")
        self._policy = Policy(rules={})
        self._book: Book | None = None
        self._shelf = Shelf(boottime_s)
        self._context: Callable[[], DiscoveryContext] | None = None
        self._inventories: dict[str, Inventory] = {}
        # What ``observe`` or ``take_changed`` has told, and what ``show`` has saved.
        self._told_of: dict[str, Inventory] = {}
        self._shown: dict[str, Inventory] | None = None
        self._words = marks.Words()
        self._backlog: deque[LogRecord] = deque(maxlen=BACKLOG)
        self._problems: dict[str, Finding] = {}
        self._suspicious: set[str] = set()

    # What the daemon's loop calls.

    def observe(
        self,
        inventories: Mapping[str, Inventory],
        context: Callable[[], DiscoveryContext],
        options: KeeperOptions,
    ) -> dict[str, Inventory]:
        """Take in a discovery, and look at the devices; returns the inventories with their health.

        CONTEXT makes a fresh one at each call; ConfigError: the driver's tree is not there.
        """
        here = _made(context)
        with self._lock:
            self._begin(options, inventories)
            self._context = context
            self._advance(Seen(inventories=inventories, given_away=self._given_away(here)))
            self._inventories = dict(inventories)
            self._read_words()
        if here is not None:
            self._notice_unloading(here)
            for vendor, health in self._known():
                self._look(vendor, health, here)
        with self._lock:
            # A vendor may have been absent when they came.
            self._hear(tuple(self._backlog))
            told = self._told_of = self._annotated()
        self.save()
        return told

    def with_links(self, inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
        """Take INVENTORIES, the last ones with their links; returns them with their present health.

        The specs were written by the health of ``observe``: ``take_changed`` returns what has changed since.
        """
        with self._lock:
            self._inventories = dict(inventories)
            return self._annotated()

    def findings(self) -> tuple[Finding, ...]:
        """Return what is wrong with health itself, and the devices that are lost."""
        with self._lock:
            lost = lost_devices(self._book, self._inventories) if self._book is not None else ()
            return (*self._shelf.findings(), *self._problems.values(), *lost)

    def show(self, save: Callable[[dict[str, Inventory]], object]) -> None:
        """Let SAVE have the last inventories with the health of now, while nobody else saves others."""
        with self._lock:
            shown = self._annotated()
            save(shown)
            self._shown = shown

    def present(self) -> dict[str, Inventory]:
        """Return the last inventories with the health of now."""
        with self._lock:
            return self._annotated()

    @property
    def is_shown(self) -> bool:
        """Whether what was last shown is as it is now."""
        with self._lock:
            return self._shown == self._annotated()

    def take_changed(self) -> tuple[str, ...]:
        """Return whose health is another than at the last call, and than the last ``observe`` returned."""
        with self._lock:
            before, self._told_of = self._told_of, self._annotated()
            return changed_devices(before, self._told_of)

    def close(self) -> None:
        """Save the book, for the next daemon."""
        self.save(at_once=True)

    # What the other thread calls.

    @property
    def is_ready(self) -> bool:
        """Whether a discovery has been taken in: before, nothing can be told of any device."""
        return self._context is not None

    def take_in(self, records: Iterable[LogRecord], events: Iterable[DeviceEvent], *, lost: int = 0) -> None:
        """Take in RECORDS of the kernel's log, of which LOST others were overwritten, and uevents."""
        records = tuple(records)
        with self._lock:
            self._backlog.extend(records)
        if records and (here := self._here()) is not None:
            for vendor, health in self._known():
                self._load(vendor, health, here)
        with self._lock:
            self._hear(records)
            for event in events:
                for vendor, health in self._known():
                    if told := self._told(vendor, health.noticed, event):
                        self._advance(Heard(vendor=vendor, sequence=-1, told=told))
            self._advance(Passed())
            if lost:
                self._suspicious.update(vendor for vendor, _ in self._known())

    def save(self, *, at_once: bool = False) -> None:
        """Save the book if what counts in it has changed, or AT ONCE; the disk may take its time."""
        self._shelf.save(self._options.state_dir, lambda: self._book, at_once=at_once)

    def probed(self, vendor: str, look: Look, began_s: float) -> None:
        """Take in what a probe of VENDOR has shown, which began at BEGAN_S."""
        with self._lock:
            self._note(f"probe-{vendor}", look.unread and f"the probe of {vendor}: {look.unread}", vendor)
            self._advance(Looked(vendor=vendor, look=look, began_s=began_s))

    def ask(self, vendor: str) -> Look:
        """Probe the devices of VENDOR; whatever its code raises is a look that failed."""
        health, inventory = self._health_of(vendor), self._inventories.get(vendor)
        here = self._here()
        if health is None or inventory is None or here is None:
            return Look(source="probe")
        try:
            return health.probe(here, inventory)
        except Exception as error:  # noqa: BLE001 - a defect of one vendor's code costs no other's devices
            return Look(source="probe", unread=_said(error))

    def hangs(self, vendors: Iterable[str]) -> None:
        """Note that the probes of VENDORS hang, and of no others."""
        vendors = set(vendors)
        with self._lock:
            for vendor in {*vendors, *self._inventories}:
                text = f"the probe of {vendor} hangs: its library does not answer"
                self._note(f"hang-{vendor}", text if vendor in vendors else "", vendor)

    def vendors(self) -> tuple[str, ...]:
        """Return the vendors whose devices can be probed."""
        return tuple(vendor for vendor, _ in self._known())

    def awaited(self) -> dict[str, float]:
        """Return from when on the word of which vendor would clear a cause (``advance.awaited``)."""
        with self._lock:
            return awaited(self._book, self._policy) if self._book is not None else {}

    def take_suspicious(self) -> set[str]:
        """Return the vendors of whose devices something new was heard since the last time."""
        with self._lock:
            found, self._suspicious = self._suspicious, set()
        return found

    def due_s(self) -> float | None:
        """Return when time alone changes something, by CLOCK_BOOTTIME."""
        with self._lock:
            if self._book is None:
                return None
            return due_s(self._book, self._policy, self._boottime_s())

    # With the lock.

    def _begin(self, options: KeeperOptions, inventories: Mapping[str, Inventory]) -> None:
        """Take OPTIONS over, and the first time the book of this boot."""
        if self._book is None:
            self._book = self._shelf.read(options.state_dir, options.boot)
        self._options = options
        rules = {}
        # Not of vendors that this host has not: their tables are a megabyte.
        for vendor in {*inventories, *(one.vendor for one in self._book.vendors)}:
            health = self._health_of(vendor)
            if health is not None:
                rules.update({(vendor, rule.cause): rule for rule in health.CAUSES})
        self._policy = Policy(
            rules=rules, quiet_s=options.quiet_s, ignored=options.ignored, clears=self._policy.clears
        )

    def _advance(self, event: Event) -> None:
        if self._book is None:
            return
        before = self._book
        now = Moment(boot_s=self._boottime_s(), wall_s=self._wall_s())
        self._book = advance(before, event, now, self._policy)
        self._suspicious |= _worse(before, self._book)

    def _hear(self, records: tuple[LogRecord, ...]) -> None:
        if self._book is None or not records:
            return
        for vendor, health in self._known():
            heard = self._book.vendor(vendor).sequence
            new = [record for record in records if record.sequence > heard]
            if not new:
                continue
            told = tuple(one for record in new for one in self._told(vendor, health.heard, record))
            self._advance(Heard(vendor=vendor, sequence=new[-1].sequence, told=told))

    def _told(
        self, vendor: str, read: Callable[[T, Inventory], tuple[Symptom | Recovery, ...]], said: T
    ) -> tuple[Symptom | Recovery, ...]:
        try:
            return read(said, self._inventories[vendor])
        except Exception as error:  # noqa: BLE001 - as in ask
            self._note(f"heard-{vendor}", f"the code for {vendor} failed: {_said(error)}", vendor)
            return ()

    def _read_words(self) -> None:
        """Read what people have said; what a file said that cannot be read any more stays."""
        state_dir = self._options.state_dir
        path = f"{state_dir}/{marks.FILE}"
        self._problems.pop(marks.FILE, None)
        try:
            found, finding = marks.read(state_dir)
            gone = marks.outlived(found.marks, self._inventories)
            if gone:
                marks.clear(state_dir, lambda one: one in gone)
        except StoreError as error:
            finding, found = finding_of(error, path), self._words
        if finding is not None:
            self._problems[marks.FILE] = finding
            return
        self._words = found
        boot, now_s = self._options.boot, self._boottime_s()
        # One of a later time is of another clock (time_namespaces(7)), and would clear what is to come.
        clears = tuple(one for one in found.clears if boot and one.boot == boot and one.at_s <= now_s)
        if clears != self._policy.clears:
            self._policy = replace(self._policy, clears=clears)
            self._advance(Passed())

    def _annotated(self) -> dict[str, Inventory]:
        if self._book is None:
            return dict(self._inventories)
        return annotated(self._book, self._words.marks, self._inventories, self._policy)

    def _note(self, key: str, text: str, vendor: str) -> None:
        self._problems.pop(key, None)
        if text:
            self._problems[key] = Finding(
                severity="warning",
                rule=DEFECT,
                path=vendor,
                message=" ".join(text.split())[:300],
                hint="what was known of its devices stays; 'cdigen health' shows it",
            )

    # Without the lock: they read the host, or nothing that changes.

    def _known(self) -> tuple[tuple[str, VendorHealth], ...]:
        """Return the vendors that were found and have health, with it."""
        pairs = ((vendor, self._health_of(vendor)) for vendor in tuple(self._inventories))
        return tuple((vendor, health) for vendor, health in pairs if health is not None)

    def _look(self, vendor: str, health: VendorHealth, here: DiscoveryContext) -> None:
        # Before, for the time in which the devices were seen last; after, for what the look has seen.
        self._load(vendor, health, here)
        began_s = self._boottime_s()
        try:
            look = health.look(here, self._inventories[vendor])
        except Exception as error:  # noqa: BLE001 - as in ask
            look = Look(source="files", unread=_said(error))
        with self._lock:
            self._note(f"look-{vendor}", look.unread and f"the look at {vendor}: {look.unread}", vendor)
            self._advance(Looked(vendor=vendor, look=look, began_s=began_s))
        self._load(vendor, health, here)

    def _here(self) -> DiscoveryContext | None:
        return _made(self._context) if self._context is not None else None

    def _given_away(self, here: DiscoveryContext | None) -> tuple[str, ...]:
        if here is None or self._book is None:
            return ()
        return tuple(one.address for one in self._book.devices if has_guest(here.host, one.address))

    def _notice_unloading(self, here: DiscoveryContext) -> None:
        """Ask for the drivers of vendors that were there in this boot, and have no devices now."""
        for known in self._book.vendors if self._book is not None else ():
            health = self._health_of(known.vendor)
            if known.vendor not in self._inventories and health is not None:
                self._load(known.vendor, health, here)

    def _load(self, vendor: str, health: VendorHealth, here: DiscoveryContext) -> None:
        try:
            load = health.load(here)
        except Exception as error:  # noqa: BLE001 - as in ask
            with self._lock:
                self._note(f"load-{vendor}", f"the code for {vendor} failed: {_said(error)}", vendor)
            return
        with self._lock:
            self._advance(Loaded(vendor=vendor, load=load))


def _made(context: Callable[[], DiscoveryContext]) -> DiscoveryContext | None:
    try:
        return context()
    except CdigenError:
        return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _worse(before: Book, after: Book) -> set[str]:
    """Return the vendors of devices that have a cause in AFTER that they had not BEFORE."""
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
