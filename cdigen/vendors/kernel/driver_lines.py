"""What a driver's lines in the kernel's log mean: ``heard``, by a vendor's table of ``Line``s."""

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
# "xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: text", "amdgpu 0000:03:00.0: amdgpu: {12}text": what stands
# before the text is different from release to release. The number in braces is that of an event of RAS.
_ABOUT_DEVICE = re.compile(
    rf"(?P<driver>\S+) (?P<address>{ADDRESS}): "
    r"(?:amdgpu: |\[drm\] |\*ERROR\* |(?:Tile|GT)\d+: |\w+\(\): |\{\d+\} ?)*(?P<text>.*)"
)


@frozen
class Line:
    """A line of DRIVERS: how its text begins (a regular expression), and the ``cause`` or what it clears."""

    drivers: tuple[str, ...]
    begins: str
    cause: str = ""
    clears: Clearance | Literal[""] = ""


def heard(record: LogRecord, lines: Iterable[Line]) -> tuple[Symptom | Recovery, ...]:
    """Return what RECORD means for the device that it is about, by the first of LINES; pure.

    Discovery may not have found the device yet: a driver says most while it takes one.
    """
    found = _ABOUT_DEVICE.match(record.text)
    if found is None:
        return ()
    for line in lines:
        if found["driver"] in line.drivers and re.match(line.begins, found["text"]):
            return (meaning(line.cause or line.clears, found["address"], record.text, record.at_s),)
    return ()


def concerns(event: DeviceEvent, inventory: Inventory) -> bool:
    """Return whether EVENT is the kernel's own, and of an accelerator of INVENTORY."""
    return not event.is_synthetic and has_device(inventory, event.address)


def has_device(inventory: Inventory, address: str) -> bool:
    """Return whether INVENTORY has an accelerator at ADDRESS."""
    return any(device.address == address for device in inventory.accelerators)


_CLEARANCES: dict[str, Clearance] = {"gone": "gone", "reset": "reset", "reload": "reload"}


def meaning(what: str, address: str, detail: str, at_s: float) -> Symptom | Recovery:
    """Return a recovery where WHAT is ``gone``, ``reset`` or ``reload``, else a symptom of the cause WHAT."""
    if what in _CLEARANCES:
        return Recovery(clearance=_CLEARANCES[what], address=address, detail=detail, at_s=at_s)
    return Symptom(cause=what, address=address, detail=detail, at_s=at_s)
