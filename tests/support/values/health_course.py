"""A vendor's two GPUs, and the causes that follow from records, uevents and looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.values.health_devices import FIRST, SECOND, at, gpu, inventory, partition

from cdigen.health.advance import advance
from cdigen.health.annotate import annotated
from cdigen.health.book import Book, Heard, Looked, Policy, Seen
from cdigen.model.health import DeviceEvent, LogRecord, Look, Recovery
from cdigen.vendors import registry

if TYPE_CHECKING:
    from cdigen.health.book import Event
    from cdigen.model.health import Measurement
    from cdigen.model.inventory import Accelerator, Partition


class Course:
    """The book of a VENDOR's GPUs, which a look finds healthy; the first has PARTS."""

    def __init__(self, vendor: str, *parts: str) -> None:
        health = registry.health(vendor)
        assert health is not None
        first = gpu(FIRST, partitions=tuple(map(partition, parts)))
        self.host = inventory(first, gpu(SECOND, uuid="GPU-2"), vendor=vendor)
        self._whole = self.host
        self._health, self._vendor = health, vendor
        self._policy = Policy(rules={(vendor, rule.cause): rule for rule in health.CAUSES})
        self._book = Book(boot="b")
        self._sequence = 0
        self.tell(0.0, Seen(inventories=self.host))
        self.look(1.0, Look(source="files", covered=(FIRST, SECOND)))

    def tell(self, time_s: float, event: Event) -> None:
        self._book = advance(self._book, event, at(time_s), self._policy)

    def hear(self, time_s: float, *texts: str, read_s: float = 0.0) -> None:
        """Tell of records of TIME_S, 1 ms apart; the daemon reads them at once, or at READ_S."""
        for place, text in enumerate(texts):
            self._sequence += 1
            record = LogRecord(sequence=self._sequence, at_s=time_s + place / 1000, text=text)
            told = self._health.heard(record, self.host[self._vendor])
            self.tell(read_s or record.at_s, Heard(vendor=self._vendor, sequence=self._sequence, told=told))

    def notice(self, time_s: float, subsystem: str, action: str, **properties: str) -> None:
        """Tell of a uevent of the first GPU."""
        event = DeviceEvent(
            subsystem=subsystem,
            action=action,
            address=FIRST,
            at_s=time_s,
            properties=tuple(properties.items()),
        )
        told = self._health.noticed(event, self.host[self._vendor])
        self.tell(time_s, Heard(vendor=self._vendor, sequence=self._sequence, told=told))

    def look(self, time_s: float, look: Look) -> None:
        self.tell(time_s, Looked(vendor=self._vendor, look=look, began_s=time_s))

    def measure(self, time_s: float, *measurements: Measurement) -> None:
        """Let a probe read counters of both GPUs."""
        self.look(time_s, Look(source="probe", covered=(FIRST, SECOND), measurements=measurements))

    def recover(self, time_s: float, *addresses: str) -> None:
        """Let a probe find that nothing has to be done for the GPUs at ADDRESSES."""
        recoveries = tuple(
            Recovery(clearance="recovered", address=address, detail="") for address in addresses
        )
        self.look(time_s, Look(source="probe", covered=addresses, recoveries=recoveries))

    def unbind(self, time_s: float) -> None:
        """Take the first GPU's driver away, so that discovery does not find it, until ``rebind``."""
        second = self.host[self._vendor].accelerators[1]
        self.host = inventory(second, vendor=self._vendor)
        self.tell(time_s, Seen(inventories=self.host))

    def rebind(self, time_s: float) -> None:
        """Let discovery find the first GPU again."""
        self.host = self._whole
        self.tell(time_s, Seen(inventories=self.host))

    def causes(self, time_s: float) -> list[set[str]]:
        """Return the causes of both GPUs and of the first one's partitions at TIME_S, after a look."""
        self.look(time_s, Look(source="files", covered=(FIRST, SECOND)))
        first, second = annotated(self._book, (), self.host, self._policy)[self._vendor].accelerators
        shown: tuple[Accelerator | Partition, ...] = (first, second, *first.partitions)
        assert all((one.health == "unhealthy") == bool(one.causes) for one in shown)
        return [{cause.cause for cause in one.causes} for one in shown]
