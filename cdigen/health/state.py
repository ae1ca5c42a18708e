"""The health of all devices since the boot (``HealthState``), and the events that change the health.

A device has a vendor and an address. A device with a different UUID or PCI device id at the same address is a
different device. All values are immutable. ``transitions`` has the rules by which events change the health.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from cdigen.health.marks import Mark
    from cdigen.model.health import CauseRule, Clearance, HealthSample, Recovery, Symptom
    from cdigen.model.inventory import Accelerator, Inventory

    Rules = Mapping[tuple[str, str], CauseRule]

# The cause of a device that was usable earlier in this boot and is now missing or unusable.
LOST = "lost"


@frozen
class ClockReading:
    """The time of two clocks: ``boot_s`` is CLOCK_BOOTTIME, ``wall_s`` the time of day (only for output)."""

    boot_s: float
    wall_s: float


@frozen
class ManualClear:
    """An administrator's command to clear the events of a device up to ``at_s`` in the boot ``boot``.

    The command applies to the device and all its partitions. If ``instance`` is not empty, the command
    applies only to this partition.
    """

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    instance: str
    boot: str
    at_s: float


@frozen
class ClearingPolicy:
    """The conditions that clear causes.

    ``rules`` has the rules by vendor and cause. The clearances ``clear_after`` and ``recovered`` require
    ``clear_after_s`` seconds without a further event. Causes in ``ignored`` make no device unhealthy.
    ``clears`` are the ``--clear`` commands of this boot.
    """

    rules: Rules
    clear_after_s: float = 300.0
    ignored: tuple[str, ...] = ()
    clears: tuple[ManualClear, ...] = ()


@frozen
class Evidence:
    """A present cause, and the ``source`` that reported it.

    ``instance`` is the partition, or "" for the device. ``first_s`` is the time of the first report.
    ``since`` is the same time as a time of day in ISO 8601. ``last_s`` is the time of the last report. For a
    counter that has risen, ``first_s`` is the time of the reading before the rise, and ``last_s`` is the time
    of the reading that showed the rise.
    """

    cause: str
    source: str
    instance: str
    since: str
    first_s: float
    last_s: float
    detail: str


@frozen
class LastRecovery:
    """The time of the last event of the type ``clearance``, which clears causes."""

    clearance: Clearance
    at_s: float


@frozen
class Baseline:
    """The value with which a measurement is compared, read at ``at_s``.

    For a counter, this is the last value. For other measurements, this is the highest value in this boot.
    """

    what: str
    value: int
    at_s: float


@frozen
class LastLogReport:
    """The last report of a cause in the log, even if the cause was cleared.

    A counter's rise adds no evidence if the log reported the same cause after the last read of the counter.
    """

    cause: str
    at_s: float


@frozen
class KnownPartition:
    """A partition of a device. ``address`` is "" if the partition has no address."""

    instance: str
    address: str


@frozen
class DeviceRecord:
    """The state of one device.

    Events at this address before ``valid_from_s`` belong to a different device. ``was_checked`` is true if a
    sample has covered the device in this boot. ``was_usable`` is true if the device was usable in this boot.
    """

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    model: str
    valid_from_s: float = 0.0
    was_checked: bool = False
    was_usable: bool = False
    partitions: tuple[KnownPartition, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    recoveries: tuple[LastRecovery, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    log_reports: tuple[LastLogReport, ...] = ()


@frozen
class VendorRecord:
    """The state of a vendor.

    ``load`` identifies the load of the driver (``VendorHealth.modules``). ``load_read_s`` is the time of the
    last read of ``load``. ``discovered_s`` is the time of the last discovery of the vendor's devices.
    ``log_sequence`` is the number of the last processed record of the kernel log, -1 before the first record.
    ``recoveries`` are the recoveries that apply to all devices of the vendor.
    """

    vendor: str
    load: str | None = None
    load_read_s: float = 0.0
    discovered_s: float = 0.0
    log_sequence: int = -1
    recoveries: tuple[LastRecovery, ...] = ()


@frozen
class HealthState:
    """The state of all vendors and devices in the boot ``boot``."""

    boot: str
    vendors: tuple[VendorRecord, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()

    def vendor(self, name: str) -> VendorRecord:
        """Return the record of the vendor NAME, or an empty record."""
        return next((one for one in self.vendors if one.vendor == name), VendorRecord(vendor=name))


@frozen
class DevicesDiscovered:
    """A discovery found INVENTORIES. Devices of vendors that are not in INVENTORIES do not change.

    ``passed_through`` are the addresses of devices that belong to a virtual machine. Such devices are not
    lost.
    """

    inventories: Mapping[str, Inventory]
    passed_through: tuple[str, ...] = ()


@frozen
class HealthChecked:
    """The result of a check of the devices of ``vendor``. The check began at ``began_s``."""

    vendor: str
    sample: HealthSample
    began_s: float


@frozen
class LogRecordsReceived:
    """The ``reports`` on devices of ``vendor`` in the records of the kernel log up to ``sequence``."""

    vendor: str
    sequence: int
    reports: tuple[Symptom | Recovery, ...]


@frozen
class DriverLoaded:
    """A read of the driver load of ``vendor``. ``load`` is "" if the driver is not loaded."""

    vendor: str
    load: str


@frozen
class TimeElapsed:
    """Time has passed without an event."""


def address_of(accelerator: Accelerator) -> str:
    """Return the key of ACCELERATOR in symptoms and marks: address, else UUID, else class and index."""
    return accelerator.address or accelerator.uuid or f"{accelerator.device_class}-{accelerator.index}"


def is_another(known: Identified, found: Identified) -> bool:
    """Return whether the device FOUND at the address of the device KNOWN is a different device.

    An unknown UUID or id (None or "") does not prove a difference.
    """
    if known.uuid is not None and found.uuid is not None:
        return known.uuid != found.uuid
    ids = {known.device_id, found.device_id} - {""}
    return len(ids) > 1


if TYPE_CHECKING:
    Event = DevicesDiscovered | HealthChecked | LogRecordsReceived | DriverLoaded | TimeElapsed
    Identified: TypeAlias = Accelerator | DeviceRecord | ManualClear | Mark
