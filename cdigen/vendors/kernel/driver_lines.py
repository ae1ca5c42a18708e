"""Parse a driver's lines in the kernel's log, with a vendor's table of ``Line`` objects (``parse_log``)."""

from __future__ import annotations

import re

from cdigen.model.health import Recovery, Symptom
from cdigen.value import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from cdigen.model.health import Clearance, DeviceEvent, LogRecord
    from cdigen.model.inventory import Inventory

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# Examples are "xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: text" and "amdgpu 0000:03:00.0: amdgpu: {12}text".
# The prefix of the text differs between releases. The number in braces is the number of an event of RAS,
# amdgpu's error detection.
_ABOUT_DEVICE = re.compile(
    rf"(?P<driver>\S+) (?P<address>{ADDRESS}): "
    r"(?:amdgpu: |\[drm\] |\*ERROR\* |(?:Tile|GT)\d+: |\w+\(\): |\{\d+\} ?)*(?P<text>.*)"
)


@frozen
class Line:
    """A line that ``drivers`` write into the kernel's log.

    ``begins`` is a regular expression for the beginning of the text. ``cause`` is set if the line reports a
    symptom. ``clears`` is set if the line reports a recovery.
    """

    drivers: tuple[str, ...]
    begins: str
    cause: str = ""
    clears: Clearance | Literal[""] = ""


def parse_log(record: LogRecord, lines: Iterable[Line]) -> tuple[Symptom | Recovery, ...]:
    """Return the symptom or recovery of the first of LINES that matches RECORD; do not read the host.

    The device may not be in an inventory yet, because drivers log most lines while they bind to a device.
    """
    found = _ABOUT_DEVICE.match(record.text)
    if found is None:
        return ()
    for line in lines:
        if found["driver"] in line.drivers and re.match(line.begins, found["text"]):
            return (meaning(line.cause or line.clears, found["address"], record.text, record.at_s),)
    return ()


def concerns(event: DeviceEvent, inventory: Inventory) -> bool:
    """Return whether EVENT is from the kernel itself, and its device is an accelerator of INVENTORY."""
    return not event.is_synthetic and has_device(inventory, event.address)


def has_device(inventory: Inventory, address: str) -> bool:
    """Return whether INVENTORY has an accelerator at ADDRESS."""
    return any(device.address == address for device in inventory.accelerators)


_CLEARANCES: dict[str, Clearance] = {"gone": "gone", "reset": "reset", "reload": "reload"}


def meaning(what: str, address: str, detail: str, at_s: float) -> Symptom | Recovery:
    """Return a recovery or a symptom of the device at ADDRESS.

    If WHAT is ``gone``, ``reset`` or ``reload``, the result is a recovery. Else the result is a symptom with
    the cause WHAT.
    """
    if what in _CLEARANCES:
        return Recovery(clearance=_CLEARANCES[what], address=address, detail=detail, at_s=at_s)
    return Symptom(cause=what, address=address, detail=detail, at_s=at_s)
