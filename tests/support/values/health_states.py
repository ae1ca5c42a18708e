"""States of health, and the events that change them."""

from __future__ import annotations

from support.values.health_devices import FIRST, SECOND, at, gpu, inventory, partition, policy

from cdigen.health.annotate import annotated
from cdigen.health.state import (
    ClearingPolicy,
    DevicesDiscovered,
    HealthChecked,
    HealthState,
    LogRecordsReceived,
)
from cdigen.health.transitions import apply_event
from cdigen.model.health import HealthSample, Recovery, Symptom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.health.state import Event
    from cdigen.model.inventory import Accelerator, Inventory


ONE = inventory(gpu())
TWO = inventory(gpu(), gpu(SECOND, uuid="GPU-2"))
SPLIT = inventory(gpu(partitions=(partition("gi1/ci0"), partition("gi2/ci0"))))
EMPTY = HealthState(boot="boot")


def log_records(*reports: Symptom | Recovery, sequence: int = 0) -> LogRecordsReceived:
    return LogRecordsReceived(vendor="nvidia", sequence=sequence, reports=reports)


def symptom(
    cause: str, at_s: float | None = None, *, instance: str = "", detail: str = "an error"
) -> Symptom:
    return Symptom(cause=cause, address=FIRST, detail=detail, instance=instance, at_s=at_s)


def recovery(clearance: str, at_s: float | None = None, *, address: str = FIRST) -> Recovery:
    return Recovery(clearance=clearance, address=address, detail="", at_s=at_s)  # type: ignore[arg-type]


def checked(*symptoms: Symptom, source: str = "files", began_s: float = 0.0, **rest: object) -> HealthChecked:
    made = HealthSample(source=source, covered=rest.pop("covered", (FIRST,)), symptoms=symptoms, **rest)  # type: ignore[arg-type]
    return HealthChecked(vendor="nvidia", sample=made, began_s=began_s)


def after(
    *events: tuple[float, Event], state: HealthState = EMPTY, rules: ClearingPolicy | None = None
) -> HealthState:
    """Return the state after EVENTS, each with its time of arrival."""
    for time_s, event in ((0.0, DevicesDiscovered(inventories=ONE)), *events) if state is EMPTY else events:
        state = apply_event(state, event, at(time_s), rules or policy())
    return state


def shown(state: HealthState, found: dict[str, Inventory] = ONE) -> Accelerator:
    """Return the first device of FOUND, with its health."""
    return annotated(state, (), found, policy())["nvidia"].accelerators[0]


def causes(state: HealthState, found: dict[str, Inventory] = ONE) -> list[str]:
    return [one.cause for one in shown(state, found).causes]
