"""Two GPUs of a vendor, and their causes after log records, uevents, checks and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.values.health_devices import FIRST, SECOND, at, gpu, inventory, partition

from cdigen.health.annotate import annotated
from cdigen.health.state import (
    ClearingPolicy,
    DevicesDiscovered,
    HealthChecked,
    HealthState,
    LogRecordsReceived,
)
from cdigen.health.transitions import apply_event
from cdigen.model.health import DeviceEvent, HealthSample, LogRecord, Recovery
from cdigen.vendors import registry

if TYPE_CHECKING:
    from cdigen.health.state import Event
    from cdigen.model.health import Measurement
    from cdigen.model.inventory import Accelerator, Partition


class HealthScenario:
    """The health state of two healthy GPUs of VENDOR after a check; PARTS are partitions of the first GPU."""

    def __init__(self, vendor: str, *parts: str) -> None:
        health = registry.health(vendor)
        assert health is not None
        first = gpu(FIRST, partitions=tuple(map(partition, parts)))
        self.host = inventory(first, gpu(SECOND, uuid="GPU-2"), vendor=vendor)
        self._whole = self.host
        self._health, self._vendor = health, vendor
        self._policy = ClearingPolicy(rules={(vendor, rule.cause): rule for rule in health.causes})
        self._state = HealthState(boot="b")
        self._sequence = 0
        self.apply(0.0, DevicesDiscovered(inventories=self.host))
        self.check(1.0, HealthSample(source="files", covered=(FIRST, SECOND)))

    def apply(self, time_s: float, event: Event) -> None:
        self._state = apply_event(self._state, event, at(time_s), self._policy)

    def log(self, time_s: float, *texts: str, read_s: float = 0.0) -> None:
        """Apply log records from TIME_S on, 1 ms apart; the daemon reads each at once, or all at READ_S."""
        for place, text in enumerate(texts):
            self._sequence += 1
            record = LogRecord(sequence=self._sequence, at_s=time_s + place / 1000, text=text)
            reports = self._health.parse_log(record, self.host[self._vendor])
            self.apply(
                read_s or record.at_s,
                LogRecordsReceived(vendor=self._vendor, sequence=self._sequence, reports=reports),
            )

    def uevent(self, time_s: float, subsystem: str, action: str, **properties: str) -> None:
        """Receive a uevent of the first GPU."""
        event = DeviceEvent(
            subsystem=subsystem,
            action=action,
            address=FIRST,
            at_s=time_s,
            properties=tuple(properties.items()),
        )
        reports = self._health.parse_uevents(event, self.host[self._vendor])
        self.apply(time_s, LogRecordsReceived(vendor=self._vendor, sequence=self._sequence, reports=reports))

    def check(self, time_s: float, sample: HealthSample) -> None:
        self.apply(time_s, HealthChecked(vendor=self._vendor, sample=sample, began_s=time_s))

    def measure(self, time_s: float, *measurements: Measurement) -> None:
        """Apply a probe of both GPUs with MEASUREMENTS of counters."""
        self.check(time_s, HealthSample(source="probe", covered=(FIRST, SECOND), measurements=measurements))

    def recover(self, time_s: float, *addresses: str) -> None:
        """Apply a probe in which the driver requires no action for the GPUs at ADDRESSES."""
        recoveries = tuple(
            Recovery(clearance="recovered", address=address, detail="") for address in addresses
        )
        self.check(time_s, HealthSample(source="probe", covered=addresses, recoveries=recoveries))

    def unbind(self, time_s: float) -> None:
        """Unbind the first GPU's driver: discovery does not find the GPU until ``rebind``."""
        second = self.host[self._vendor].accelerators[1]
        self.host = inventory(second, vendor=self._vendor)
        self.apply(time_s, DevicesDiscovered(inventories=self.host))

    def rebind(self, time_s: float) -> None:
        """Rebind the driver: discovery finds the first GPU again."""
        self.host = self._whole
        self.apply(time_s, DevicesDiscovered(inventories=self.host))

    def causes(self, time_s: float) -> list[set[str]]:
        """Return the causes of both GPUs and of the first GPU's partitions after a check at TIME_S."""
        self.check(time_s, HealthSample(source="files", covered=(FIRST, SECOND)))
        first, second = annotated(self._state, (), self.host, self._policy)[self._vendor].accelerators
        shown: tuple[Accelerator | Partition, ...] = (first, second, *first.partitions)
        assert all((one.health == "unhealthy") == bool(one.causes) for one in shown)
        return [{cause.cause for cause in one.causes} for one in shown]
