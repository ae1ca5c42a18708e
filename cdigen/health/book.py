"""The book: what is known of the health of all devices in this boot (``Book``), and what changes it.

A device is known by its vendor and address; another UUID, or another PCI device id, there is another device.
All values are pure; ``advance`` has the rules.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdigen.model.health import CauseRule, Clearance, Look, Recovery, Symptom
    from cdigen.model.inventory import Inventory

    Rules = Mapping[tuple[str, str], CauseRule]

# Of the book's own cause: a device that was there in this boot is gone, or cannot be used any more.
LOST = "lost"


@frozen
class Moment:
    """A moment by two clocks: ``boot_s`` is CLOCK_BOOTTIME's, ``wall_s`` the time of day, for people only."""

    boot_s: float
    wall_s: float


@frozen
class Clear:
    """A person's word that what happened to a device up to ``at_s``, in the boot ``boot``, is over.

    It is about the device with all its partitions, or where ``instance`` is given, about that one.
    """

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    instance: str
    boot: str
    at_s: float


@frozen
class Policy:
    """What decides how long a cause lasts: ``rules`` by vendor and cause, and the time of ``quiet``.

    ``clears`` are people's words of this boot.
    """

    rules: Rules
    quiet_s: float = 300.0
    ignored: tuple[str, ...] = ()
    clears: tuple[Clear, ...] = ()


@frozen
class Evidence:
    """A cause that lasts: who tells it, of which ``instance`` (a partition; empty: the device).

    ``since`` is the time of day of ``first_s`` in ISO 8601; ``last_s`` is when it was last seen. Of a counter
    that has risen, these are when it was read before, and when it was found so.
    """

    cause: str
    source: str
    instance: str
    since: str
    first_s: float
    last_s: float
    detail: str


@frozen
class Recovered:
    """When something that clears causes was last seen."""

    clearance: Clearance
    at_s: float


@frozen
class Baseline:
    """What a measurement is compared with: the highest, or of a counter the last, value in this boot.

    It was last read at ``at_s``.
    """

    what: str
    value: int
    at_s: float


@frozen
class Said:
    """When the log last told of a cause, cleared or not: a counter of the same then tells nothing new."""

    cause: str
    at_s: float


@frozen
class KnownPartition:
    """A partition of a device, and its own address if it has one."""

    instance: str
    address: str


@frozen
class DeviceRecord:
    """What is known of one device.

    ``begins_s``: what happened earlier at this address happened to another device. ``is_reached``: a look has
    reached it in this boot. ``was_usable``: and so was this device.
    """

    vendor: str
    address: str
    uuid: str | None
    device_id: str
    model: str
    begins_s: float = 0.0
    is_reached: bool = False
    was_usable: bool = False
    partitions: tuple[KnownPartition, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    recovered: tuple[Recovered, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    said: tuple[Said, ...] = ()


@frozen
class VendorRecord:
    """What is known of a vendor: ``load`` is its driver's (``VendorHealth.load``), last seen at ``loaded_s``.

    ``seen_s`` is when its devices were last seen, ``sequence`` the last record of the kernel's log that was
    taken in for it, -1 before the first; ``recovered`` is what was said of all its devices at once.
    """

    vendor: str
    load: str | None = None
    loaded_s: float = 0.0
    seen_s: float = 0.0
    sequence: int = -1
    recovered: tuple[Recovered, ...] = ()


@frozen
class Book:
    """Everything known in the boot ``boot``."""

    boot: str
    vendors: tuple[VendorRecord, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()

    def vendor(self, name: str) -> VendorRecord:
        """Return what is known of the vendor NAME."""
        return next((one for one in self.vendors if one.vendor == name), VendorRecord(vendor=name))


@frozen
class Seen:
    """A discovery found INVENTORIES; of vendors that are not there, nothing is said.

    ``given_away`` are addresses of devices that a virtual machine has: they are not lost.
    """

    inventories: Mapping[str, Inventory]
    given_away: tuple[str, ...] = ()


@frozen
class Looked:
    """A look at the devices of ``vendor`` began at ``began_s``, and has shown ``look``."""

    vendor: str
    look: Look
    began_s: float


@frozen
class Heard:
    """Records of the kernel's log up to ``sequence`` mean ``told`` for the devices of ``vendor``."""

    vendor: str
    sequence: int
    told: tuple[Symptom | Recovery, ...]


@frozen
class Loaded:
    """The driver of ``vendor`` is loaded as ``load``; empty: it is not."""

    vendor: str
    load: str


@frozen
class Passed:
    """Nothing happened, but time has passed."""


if TYPE_CHECKING:
    Event = Seen | Looked | Heard | Loaded | Passed
