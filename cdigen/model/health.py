"""Health: whether a device can be used (``Health``), why not (``Cause``), and what tells so (``Symptom``).

A symptom is what was seen; a cause is what follows, and lasts until what its ``CauseRule`` names has cleared
it. A device with a cause is unhealthy. Times (``at_s``) are those of CLOCK_BOOTTIME: seconds since the boot,
with those of suspensions, which nobody sets.
"""

from __future__ import annotations

from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Health = Literal["healthy", "unhealthy", "unknown"]
    # Where symptoms come from. Each look at ``files`` and each ``probe`` names all that holds then; the
    # ``log`` tells of what happened once.
    Source = Literal["files", "probe", "log"]
    # What clears a cause. gone: a look of its own source no longer sees it, or the log says that it is over;
    # reset: the device was reset; reload: its driver was loaded anew; recovered: the driver says that nothing
    # has to be done for it, and it has been quiet for a while; quiet: it has been quiet for a while. A
    # reboot, and another device in its place, clear every cause that no person made.
    Clearance = Literal["gone", "reset", "reload", "recovered", "quiet"]


@frozen
class Cause:
    """Why a device is not healthy: ``cause`` is the rule's name (``xid-79``).

    ``since`` is when it began, in ISO 8601; ``clears_when`` says what ends it.
    """

    cause: str
    since: str
    detail: str
    clears_when: str


@frozen
class CauseRule:
    """What is known of a cause: what clears it, as words of ``Clearance`` and as a text for people.

    ``meaning`` is one sentence, ``reference`` where the rule is from.
    """

    cause: str
    cleared_by: tuple[Clearance, ...]
    clears_when: str
    meaning: str
    reference: str


@frozen
class Symptom:
    """Something that is wrong with the device at ``address``: evidence for ``cause``.

    ``instance`` is the partition that it is about (``Partition.instance``; ``gi1`` for all of a GPU
    instance), empty for the whole device. ``at_s`` is when it happened, None for now.
    """

    cause: str
    address: str
    detail: str
    instance: str = ""
    at_s: float | None = None


@frozen
class Recovery:
    """Something that clears causes of the device at ``address``; if that is empty, of all of its maker's.

    ``detail`` says what was seen; ``at_s`` is when, None for now.
    """

    clearance: Clearance
    address: str
    detail: str
    at_s: float | None = None


@frozen
class Measurement:
    """A number of the device at ``address`` that is a symptom of ``cause`` only beside earlier ones.

    It is compared with those of the same address and ``what`` of this boot, of which the first is but the
    baseline. Where ``worse`` is ``higher`` it is a counter: each rise is evidence once, as a line of the log
    is, and a fall is a new baseline. Where it is ``lower``, the symptom holds in each look that finds less
    than the highest so far. ``what`` says in the plural what is counted (``fatal PCIe errors``).
    """

    cause: str
    address: str
    what: str
    value: int
    worse: Literal["higher", "lower"]


@frozen
class Look:
    """What one look at the devices of one vendor showed.

    ``covered`` are the addresses that the look reached: what it did not reach keeps its causes. ``only`` are
    the causes that it would have seen, where these are not all that its source tells. ``unread`` says why the
    look failed, or is empty.
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

    ``sequence`` counts records since the boot; ``at_s`` is when it was written; ``text`` is one line without
    control characters; ``device`` is the kernel's name of the device that it is about
    (``+pci:0000:65:00.0``), or empty.
    """

    sequence: int
    at_s: float
    text: str
    device: str = ""


@frozen
class DeviceEvent:
    """What the kernel said of a device in a uevent, at the time ``at_s``.

    ``address`` is its PCI address, or that of the PCI device which it belongs to; empty for others.
    ``properties`` are pairs of name and value, by name (``("WEDGED", "rebind,bus-reset")``).
    """

    subsystem: str
    action: str
    address: str
    at_s: float
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_synthetic(self) -> bool:
        """Whether root wrote it (``udevadm trigger``), and nothing has happened to the device."""
        # Documentation/ABI/testing/sysfs-uevent
        return any(name == "SYNTH_UUID" for name, _ in self.properties)
