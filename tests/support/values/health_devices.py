"""Devices, inventories and rules for the tests of health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.values import devices

from cdigen.health.state import ClearingPolicy, ClockReading, ManualClear
from cdigen.health.tracker import TrackerOptions
from cdigen.host.root import Root
from cdigen.model.health import CauseRule, DeviceEvent, HealthSample, Recovery, Symptom
from cdigen.vendors import registry
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.health import VendorHealth

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cdigen.health.tracker import HealthTracker
    from cdigen.model.inventory import Accelerator, Inventory, Partition

CLEAR_AFTER_S = 300.0
FIRST, SECOND = "0000:65:00.0", "0000:66:00.0"


def rule(cause: str, *cleared_by: str) -> CauseRule:
    return CauseRule(
        cause=cause,
        cleared_by=cleared_by,  # type: ignore[arg-type]
        clears_when=f"{cause} ends",
        meaning="It is broken.",
        reference="a test",
    )


RULES = (
    rule("needs-reset", "reset"),
    rule("needs-reload", "reload", "reset"),
    rule("recovers", "recovered", "reset"),
    rule("expires", "clear_after"),
    rule("found", "gone"),
    rule("found-or-reset", "gone", "reset"),
    rule("needs-reboot"),
)


def vendor_health(**parts: Any) -> VendorHealth:
    """Return the health of a vendor whose driver and library report nothing, with the changes of PARTS."""
    empty = {
        "causes": RULES,
        "modules": (),
        "check": lambda *_: HealthSample(source="files"),
        "parse_log": lambda *_: (),
        "parse_uevents": lambda *_: (),
    }
    return VendorHealth(**{**empty, **parts})


def observe(tracker: HealthTracker, found: dict[str, Inventory], state_dir: Path, boot: str) -> None:
    """Let TRACKER observe the devices FOUND by a cycle; the host's root is the parent of STATE_DIR."""
    root = Root(str(state_dir.parent))
    tracker.observe(
        found,
        lambda: DiscoveryContext(host=root, driver=root, dev=root),
        TrackerOptions(state_dir=str(state_dir), boot=boot, clear_after_s=CLEAR_AFTER_S),
    )


def policy(
    vendor: str = "nvidia", *, clear_after_s: float = CLEAR_AFTER_S, ignored: tuple[str, ...] = ()
) -> ClearingPolicy:
    return ClearingPolicy(
        rules={(vendor, one.cause): one for one in RULES}, clear_after_s=clear_after_s, ignored=ignored
    )


def at(boot_s: float, *, wall_s: float | None = None) -> ClockReading:
    return ClockReading(boot_s=boot_s, wall_s=1_700_000_000.0 + boot_s if wall_s is None else wall_s)


def partition(instance: str, *, address: str = "") -> Partition:
    return devices.partition(instance, uuid=f"MIG-{instance}", address=address)


def gpu(
    address: str = FIRST,
    *,
    uuid: str | None = "GPU-1",
    device_id: str = "0x20b0",
    usable: bool = True,
    partitions: tuple[Partition, ...] = (),
) -> Accelerator:
    problem = "" if usable else "its node cannot be opened"
    return devices.accelerator(
        0, address, model="A100", uuid=uuid, minor=0, usable=usable, problem=problem,
        partitioned=bool(partitions), partitions=partitions, device_id=device_id,
    )  # fmt: skip


def health_of(vendor: str) -> VendorHealth:
    health = registry.health(vendor)
    assert health is not None
    return health


def device_event(subsystem: str, action: str, address: str, *properties: tuple[str, str]) -> DeviceEvent:
    return DeviceEvent(subsystem=subsystem, action=action, address=address, at_s=2.0, properties=properties)


def named(found: Sequence[Symptom | Recovery]) -> list[tuple[str, str]]:
    """Return the address of each of FOUND, with the cause of a symptom or the clearance of a recovery."""
    return [(each.address, each.cause if isinstance(each, Symptom) else each.clearance) for each in found]


def cleared(
    at_s: float, address: str = FIRST, *, uuid: str | None = None, instance: str = "", boot: str = "boot"
) -> ManualClear:
    return ManualClear(
        vendor="nvidia", address=address, uuid=uuid, device_id="", instance=instance, boot=boot, at_s=at_s
    )


def inventory(*accelerators: Accelerator, vendor: str = "nvidia") -> dict[str, Inventory]:
    return {vendor: devices.inventory(vendor, *accelerators)}
