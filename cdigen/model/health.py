"""Health: whether a device is usable (``Health``), the reason (``Cause``), and the evidence (``Symptom``).

A symptom is one observation of a fault. A symptom starts a cause. The ``CauseRule`` of the cause lists the
events that clear the cause. A device with a cause is unhealthy.

Times (``at_s``) are seconds since the boot, including suspensions (CLOCK_BOOTTIME). No user can set this
clock.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Health = Literal["healthy", "unhealthy", "unknown"]
    # The source of a symptom. Each check of ``files`` and each ``probe`` reports all present symptoms. The
    # ``log`` reports single events.
    Source = Literal["files", "probe", "log"]
    # The events that clear a cause:
    # - gone: a later check by the source of the cause does not report the cause, or the log reports that the
    #   cause has ended.
    # - reset: the device was reset.
    # - reload: the driver of the device was loaded again.
    # - recovered: the driver reports that no action is required, and a time without errors has passed.
    # - clear_after: a time without errors has passed.
    # The replacement of the device clears every cause. A reboot clears every cause except marks
    # (``cdigen health --mark``).
    Clearance = Literal["gone", "reset", "reload", "recovered", "clear_after"]


@frozen
class Cause:
    """A reason why a device is unhealthy; ``cause`` is the name of the rule (``xid-79``).

    ``since`` is the start of the cause, in ISO 8601. ``clears_when`` describes the event that clears the
    cause. ``next_step`` is the necessary action, or empty if the action is unknown.
    """

    cause: str
    since: str
    detail: str
    clears_when: str
    next_step: str = ""


@frozen
class CauseRule:
    """The description of a cause and of the events that clear the cause.

    ``cleared_by`` lists these events, and ``clears_when`` describes them as text. ``meaning`` is one sentence
    about the cause. ``reference`` is the source of the rule. ``next_step`` is the administrator's action that
    ends the cause. ``next_step`` is empty if the action follows from ``cleared_by``.
    """

    cause: str
    cleared_by: tuple[Clearance, ...]
    clears_when: str
    meaning: str
    reference: str
    next_step: str = ""


@frozen
class Symptom:
    """A fault of the device at ``address``, which is evidence for ``cause``.

    ``instance`` is the affected partition, as in ``Partition.instance``. ``gi1`` means all partitions of a
    GPU instance, and an empty ``instance`` means the whole device. ``at_s`` is the time of the fault. If
    ``at_s`` is None, the fault is present at the time of the report.
    """

    cause: str
    address: str
    detail: str
    instance: str = ""
    at_s: float | None = None


@frozen
class Recovery:
    """An event that clears causes of the device at ``address``.

    An empty ``address`` means all devices of the vendor. ``detail`` describes the event. ``at_s`` is the time
    of the event; None means the time of the report.
    """

    clearance: Clearance
    address: str
    detail: str
    at_s: float | None = None


@frozen
class Measurement:
    """A measured number of the device at ``address``, which can become a symptom of ``cause``.

    cdigen compares ``value`` with earlier values of the same address and the same ``what`` in this boot. The
    first value is only the baseline.

    If ``worse`` is ``higher``, the number is a counter. Each rise of the counter is a single event, like a
    line of the log. A fall of the counter sets a new baseline. If ``worse`` is ``lower``, every check reports
    the symptom while the value is below the highest earlier value.

    ``what`` names the counted objects in the plural (``fatal PCIe errors``).
    """

    cause: str
    address: str
    what: str
    value: int
    worse: Literal["higher", "lower"]


@frozen
class HealthSample:
    """The result of one health check of the devices of one vendor.

    ``covered`` lists the addresses of the checked devices. All other devices keep their causes. ``only``
    lists the causes that the check can detect. If ``only`` is empty, the check can detect all causes of its
    source. ``unread`` is the reason why the check failed, or empty.
    """

    source: Source
    covered: tuple[str, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    only: tuple[str, ...] = ()
    unread: str = ""


@frozen
class LogRecord:
    """A record of the kernel's log, written by the kernel itself.

    ``sequence`` is the number of the record since the boot. ``at_s`` is the time of the record. ``text`` is
    one line without control characters. ``device`` is the kernel's name of the affected device
    (``+pci:0000:65:00.0``), or empty.
    """

    sequence: int
    at_s: float
    text: str
    device: str = ""


@frozen
class DeviceEvent:
    """A uevent of the kernel about a device, at the time ``at_s``.

    ``address`` is the PCI address of the device or of its parent PCI device. For any other device,
    ``address`` is empty. ``properties`` are pairs of name and value, sorted by name (``("WEDGED",
    "rebind,bus-reset")``).
    """

    subsystem: str
    action: str
    address: str
    at_s: float
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_synthetic(self) -> bool:
        """Whether root triggered the uevent (``udevadm trigger``) without an event of the device."""
        # Documentation/ABI/testing/sysfs-uevent
        return any(name == "SYNTH_UUID" for name, _ in self.properties)
