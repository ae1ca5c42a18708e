"""A cause lasts until a clearance that its rule contains; the order in which events arrive has no effect."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.values.health_devices import (
    CLEAR_AFTER_S,
    FIRST,
    SECOND,
    at,
    cleared,
    gpu,
    inventory,
    partition,
    policy,
)

from cdigen.health.annotate import annotated, lost_devices
from cdigen.health.marks import Mark
from cdigen.health.state import (
    ClearingPolicy,
    DevicesDiscovered,
    DriverLoaded,
    HealthChecked,
    HealthState,
    LogRecordsReceived,
    TimeElapsed,
)
from cdigen.health.transitions import MAX_DETAIL, MAX_EVIDENCE, apply_event, awaited, due_s
from cdigen.model.health import HealthSample, Measurement, Recovery, Symptom
from cdigen.value import replace

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


def one_by_one(events: tuple[Symptom | Recovery, ...], order: tuple[int, ...]) -> HealthState:
    return after(*[(20.0, log_records(events[place])) for place in order])


def shown(state: HealthState, found: dict[str, Inventory] = ONE) -> Accelerator:
    """Return the first device of FOUND, with its health."""
    return annotated(state, (), found, policy())["nvidia"].accelerators[0]


def causes(state: HealthState, found: dict[str, Inventory] = ONE) -> list[str]:
    return [one.cause for one in shown(state, found).causes]


@pytest.mark.parametrize(
    ("cause", "clearance"),
    [("needs-reset", "reset"), ("needs-reload", "reload"), ("needs-reload", "reset"), ("recovers", "reset")],
)
def test_a_clearance_in_the_rule_of_a_cause_clears_the_cause(cause: str, clearance: str) -> None:
    state = after((10, log_records(symptom(cause, 7))))
    assert causes(state) == [cause]
    assert causes(after((20, log_records(recovery(clearance, 15))), state=state)) == []


@pytest.mark.parametrize("clearance", ["reload", "recovered", "gone", "clear_after"])
def test_a_clearance_that_is_not_in_the_rule_of_a_cause_does_not_clear_the_cause(clearance: str) -> None:
    state = after(
        (10, log_records(symptom("needs-reset", 7), recovery(clearance, 9))), (10_000, TimeElapsed())
    )
    assert causes(state) == ["needs-reset"]


def test_a_late_record_of_a_reset_does_not_clear_a_later_error() -> None:
    state = after((10, log_records(symptom("needs-reset", 7))), (11, log_records(recovery("reset", 5))))
    assert causes(state) == ["needs-reset"]


def test_a_reset_clears_an_earlier_error_whose_record_is_late() -> None:
    assert (
        causes(after((10, log_records(recovery("reset", 9))), (11, log_records(symptom("needs-reset", 7)))))
        == []
    )


def test_the_order_of_arrival_has_no_effect() -> None:
    events = (
        symptom("needs-reset", 2),
        recovery("reset", 4),
        symptom("needs-reset", 6),
        recovery("reset", 8),
        symptom("needs-reboot", 3),
    )
    for order in permutations(range(5)):
        state = one_by_one(events, order)
        assert causes(state) == ["needs-reboot"], order
    for order in permutations((0, 1, 2, 4)):
        state = one_by_one(events, order)
        since = {one.cause: one.since for one in shown(state).causes}
        assert since == {
            "needs-reset": "2023-11-14T22:13:26.000Z",
            "needs-reboot": "2023-11-14T22:13:23.000Z",
        }


def test_an_error_after_a_reset_is_a_new_cause() -> None:
    state = after(
        (10, log_records(symptom("needs-reset", 7), recovery("reset", 8), symptom("needs-reset", 9)))
    )
    assert causes(state) == ["needs-reset"]


def test_the_clearance_recovered_needs_a_later_recovery_and_the_time_clear_after() -> None:
    state = after((10, log_records(symptom("recovers", 10))))
    assert causes(after((10 + CLEAR_AFTER_S, TimeElapsed()), state=state)) == ["recovers"]
    before = after((11, checked(source="probe", began_s=9, recoveries=(recovery("recovered"),))), state=state)
    assert causes(after((10 + CLEAR_AFTER_S, TimeElapsed()), state=before)) == ["recovers"]
    after_error = after(
        (12, checked(source="probe", began_s=11, recoveries=(recovery("recovered"),))), state=state
    )
    assert causes(after((9.9 + CLEAR_AFTER_S, TimeElapsed()), state=after_error)) == ["recovers"]
    assert causes(after((10 + CLEAR_AFTER_S, TimeElapsed()), state=after_error)) == []


def test_recoveries_between_repeated_errors_do_not_clear_the_cause() -> None:
    state = after()
    for second in range(0, 3000, 100):
        state = after(
            (second, log_records(symptom("recovers", second))),
            (second + 50, checked(source="probe", began_s=second + 49, recoveries=(recovery("recovered"),))),
            state=state,
        )
        assert causes(state) == ["recovers"]


def test_elapsed_time_clears_a_cause_with_clear_after_in_its_rule() -> None:
    state = after((10, log_records(symptom("expires", 10))))
    assert due_s(state, policy(), 11) == 10 + CLEAR_AFTER_S
    assert causes(after((309.9, TimeElapsed()), state=state)) == ["expires"]
    assert causes(after((310, TimeElapsed()), state=state)) == []
    assert due_s(after((310, TimeElapsed()), state=state), policy(), 310) is None


def test_a_probe_is_awaited_until_it_reports_a_recovery_after_the_error() -> None:
    state = after((10, log_records(symptom("recovers", 10))))
    assert awaited(state, policy()) == {"nvidia": 10 + CLEAR_AFTER_S}
    state = after((12, checked(source="probe", began_s=11, recoveries=(recovery("recovered"),))), state=state)
    assert awaited(state, policy()) == {}


def test_a_cause_that_a_check_no_longer_finds_is_cleared() -> None:
    state = after((10, checked(symptom("found"), began_s=9)))
    assert causes(state) == ["found"]
    assert causes(after((20, checked(began_s=19)), state=state)) == []


def test_a_check_of_another_source_does_not_clear_the_cause() -> None:
    state = after((10, checked(symptom("found"), began_s=9)), (20, checked(source="probe", began_s=19)))
    assert causes(state) == ["found"]


def test_a_check_that_does_not_cover_the_device_clears_nothing() -> None:
    state = after((10, checked(symptom("found"), began_s=9)))
    assert causes(after((20, checked(began_s=19, covered=(SECOND,))), state=state)) == ["found"]
    assert causes(after((20, checked(began_s=19, covered=(), unread="NVML hangs")), state=state)) == ["found"]


def test_a_device_stays_healthy_after_a_failed_check() -> None:
    state = after((10, checked(began_s=9)), (20, checked(began_s=19, covered=(), unread="NVML hangs")))
    assert shown(state).health == "healthy"


def test_the_health_of_a_device_without_a_check_is_unknown() -> None:
    assert shown(after()).health == "unknown"


def test_a_log_record_does_not_clear_a_cause_that_checks_find() -> None:
    state = after((10, checked(symptom("found"), began_s=9)), (20, log_records(recovery("gone", 15))))
    assert causes(state) == ["found"]
    assert (
        causes(after((10, log_records(symptom("found", 9))), (20, log_records(recovery("gone", 15))))) == []
    )


def test_a_reload_of_the_driver_clears_earlier_causes() -> None:
    state = after((1, DriverLoaded(vendor="nvidia", load="a")), (5, log_records(symptom("needs-reload", 5))))
    state = after((6, DriverLoaded(vendor="nvidia", load="a")), state=state)
    assert causes(state) == ["needs-reload"]
    gone = after((7, DriverLoaded(vendor="nvidia", load="")), state=state)
    assert causes(gone) == ["needs-reload"]
    assert causes(after((9, DriverLoaded(vendor="nvidia", load="b")), state=gone)) == []
    assert causes(after((9, DriverLoaded(vendor="nvidia", load="b")), state=state)) == []


def test_the_first_known_load_of_the_driver_is_no_reload() -> None:
    state = after((5, log_records(symptom("needs-reload", 5))), (6, DriverLoaded(vendor="nvidia", load="a")))
    assert causes(state) == ["needs-reload"]


def test_an_error_between_the_readings_of_two_loads_of_the_driver_is_not_cleared() -> None:
    state = after((1, DriverLoaded(vendor="nvidia", load="a")), (9, log_records(symptom("needs-reload", 5))))
    assert causes(after((9, DriverLoaded(vendor="nvidia", load="b")), state=state)) == ["needs-reload"]


@pytest.mark.parametrize("other", [gpu(uuid="GPU-2"), gpu(uuid=None, device_id="0x2330")])
def test_a_replaced_device_has_no_causes_of_the_old_device(other: object) -> None:
    found = inventory(other)  # type: ignore[arg-type]
    state = after((10, log_records(symptom("needs-reboot", 7))), (20, DevicesDiscovered(inventories=found)))
    assert causes(state, found) == []
    late = after((30, log_records(symptom("needs-reboot", -1))), state=state)
    assert causes(late, found) == [], "an event of the earlier device"
    assert causes(after((30, log_records(symptom("needs-reboot", 25))), state=state), found) == [
        "needs-reboot"
    ]


def test_a_device_whose_uuid_is_unknown_for_some_time_keeps_its_causes() -> None:
    unknown = inventory(gpu(uuid=None))
    state = after(
        (10, log_records(symptom("needs-reboot", 7))),
        (20, DevicesDiscovered(inventories=unknown)),
        (30, DevicesDiscovered(inventories=ONE)),
    )
    assert causes(state) == ["needs-reboot"]


def test_an_error_before_the_discovery_of_its_device_is_kept() -> None:
    state = apply_event(EMPTY, log_records(symptom("needs-reboot", 1)), at(2), policy())
    assert causes(after((3, DevicesDiscovered(inventories=ONE)), state=state)) == ["needs-reboot"]


def test_a_partition_has_its_own_causes_and_the_causes_of_its_device() -> None:
    state = after((1, DevicesDiscovered(inventories=SPLIT)), (2, checked(began_s=1)))
    of_part = after((10, log_records(symptom("needs-reboot", 7, instance="gi1"))), state=state)
    found = shown(of_part, SPLIT)
    assert (found.health, found.causes) == ("healthy", ())
    assert [(one.health, len(one.causes)) for one in found.partitions] == [("unhealthy", 1), ("healthy", 0)]
    of_all = after((10, log_records(symptom("needs-reset", 8))), state=of_part)
    found = shown(of_all, SPLIT)
    assert [one.cause for one in found.causes] == ["needs-reset"]
    assert [[c.cause for c in one.causes] for one in found.partitions] == [
        ["needs-reboot", "needs-reset"],
        ["needs-reset"],
    ]


def test_the_causes_of_a_removed_partition_are_removed() -> None:
    state = after(
        (1, DevicesDiscovered(inventories=SPLIT)),
        (10, log_records(symptom("needs-reboot", 7, instance="gi1"))),
    )
    rest = inventory(gpu(partitions=(partition("gi2/ci0"),)))
    state = after(
        (20, DevicesDiscovered(inventories=rest)), (30, DevicesDiscovered(inventories=SPLIT)), state=state
    )
    found = shown(state, SPLIT)
    assert [one.causes for one in found.partitions] == [(), ()]


def test_a_symptom_at_the_address_of_a_partition_belongs_to_the_partition() -> None:
    split = inventory(gpu(partitions=(partition("xcp0", address="amdgpu_xcp_0"), partition("xcp1"))))
    state = after((1, DevicesDiscovered(inventories=split)))
    state = after((2, log_records(replace(symptom("needs-reboot", 2), address="amdgpu_xcp_0"))), state=state)
    found = shown(state, split)
    assert [len(one.causes) for one in found.partitions] == [1, 0]


def test_a_value_is_a_symptom_while_it_is_below_the_highest_value_of_this_boot() -> None:
    def lanes(value: int) -> tuple[Measurement, ...]:
        return (Measurement(cause="found", address=FIRST, what="lanes", value=value, worse="lower"),)

    state = after((1, checked(began_s=1, measurements=lanes(8))))
    assert causes(state) == []
    state = after(
        (2, checked(began_s=2, measurements=lanes(16))),
        (3, checked(began_s=3, measurements=lanes(4))),
        state=state,
    )
    found = shown(state).causes
    assert [(one.cause, one.detail) for one in found] == [("found", "4 lanes, 16 earlier in this boot")]
    assert causes(after((4, checked(began_s=4, measurements=lanes(16))), state=state)) == []


def test_a_rise_of_a_counter_is_evidence_once_and_a_fall_is_a_new_baseline() -> None:
    def errors(value: int) -> tuple[Measurement, ...]:
        return (Measurement(cause="expires", address=FIRST, what="errors", value=value, worse="higher"),)

    state = after((1, checked(began_s=1, measurements=errors(5))))
    assert causes(state) == []
    state = after(
        (2, checked(began_s=2, measurements=errors(7))),
        (3, checked(began_s=3, measurements=errors(7))),
        state=state,
    )
    assert causes(state) == ["expires"]
    elapsed = after((2 + CLEAR_AFTER_S, checked(began_s=3, measurements=errors(0))), state=state)
    assert causes(elapsed) == []
    again = after(
        (3 + CLEAR_AFTER_S, checked(began_s=2 + CLEAR_AFTER_S, measurements=errors(1))), state=elapsed
    )
    assert causes(again) == ["expires"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_counter_adds_no_cause_for_an_error_that_the_log_has_reported(is_late: bool) -> None:  # noqa: FBT001
    def errors(value: int) -> HealthChecked:
        counted = Measurement(cause="needs-reset", address=FIRST, what="errors", value=value, worse="higher")
        return checked(began_s=1, measurements=(counted,))

    arrivals: list[tuple[float, Event]] = [
        (7.0, log_records(symptom("needs-reset", 5), recovery("reset", 5.1))),
        (6.0, errors(1)),
    ]
    events = arrivals[::-1] if is_late else arrivals
    assert causes(after((1, errors(0)), *events)) == []
    assert causes(after((1, errors(0)), *events, (8, errors(2)))) == ["needs-reset"]


def test_a_lost_device_has_a_finding_until_it_is_found_again() -> None:
    broken = log_records(replace(symptom("needs-reboot"), address=SECOND))
    state = after(
        (1, DevicesDiscovered(inventories=TWO)), (1.5, broken), (2, DevicesDiscovered(inventories=ONE))
    )
    (finding,) = lost_devices(state, ONE)
    assert (finding.rule, finding.path) == ("device-lost", SECOND)
    assert finding.message.endswith("missing now (other causes: needs-reboot)")
    assert lost_devices(state, {}) == (), "the status reports the missing vendor"
    state = after((3, DevicesDiscovered(inventories=TWO)), state=state)
    assert lost_devices(state, TWO) == ()


def test_a_device_of_a_virtual_machine_is_not_lost_and_keeps_its_causes() -> None:
    broken = log_records(replace(symptom("needs-reboot"), address=SECOND))
    # A device has no driver for a moment while it changes drivers.
    state = after(
        (1, DevicesDiscovered(inventories=TWO)), (1.5, broken), (2, DevicesDiscovered(inventories=ONE))
    )
    assert lost_devices(state, ONE) != ()
    state = after((3, DevicesDiscovered(inventories=ONE, passed_through=(SECOND,))), state=state)
    assert lost_devices(state, ONE) == ()
    state = after((4, DevicesDiscovered(inventories=TWO)), state=state)
    assert annotated(state, (), TWO, policy())["nvidia"].accelerators[1].causes[0].cause == "needs-reboot"
    assert lost_devices(after((5, DevicesDiscovered(inventories=ONE)), state=state), ONE) != ()


def test_a_device_that_becomes_unusable_has_the_cause_lost() -> None:
    broken = inventory(gpu(usable=False))
    state = after((2, DevicesDiscovered(inventories=broken)))
    found = shown(state, broken)
    assert [(one.cause, one.detail) for one in found.causes] == [("lost", "its node cannot be opened")]
    assert causes(after((3, DevicesDiscovered(inventories=ONE)), state=state)) == []
    never = apply_event(EMPTY, DevicesDiscovered(inventories=broken), at(1), policy())
    assert causes(never, broken) == []


def test_an_ignored_cause_is_kept_and_not_shown() -> None:
    state = after((1, checked(symptom("found"), began_s=1)))
    found = annotated(state, (), ONE, policy(ignored=("found",)))["nvidia"].accelerators[0]
    assert (found.health, found.causes) == ("healthy", ())
    assert causes(state) == ["found"]


def test_the_wall_clock_has_no_effect_on_causes() -> None:
    state = after((10, log_records(symptom("expires", 10), symptom("recovers", 10))))
    for wall_s in (0.0, 4e9):
        jumped = apply_event(state, TimeElapsed(), at(11, wall_s=wall_s), policy())
        assert causes(jumped) == ["expires", "recovers"]
        assert causes(apply_event(jumped, TimeElapsed(), at(310, wall_s=wall_s), policy())) == ["recovers"]


def test_a_symptom_with_a_future_time_gets_the_present_time() -> None:
    state = after((10, log_records(symptom("expires", 1e9))))
    assert causes(after((10 + CLEAR_AFTER_S, TimeElapsed()), state=state)) == []


def test_repeated_log_lines_for_a_known_cause_do_not_change_the_inventory() -> None:
    state = after((1, log_records(symptom("needs-reboot", 1, detail="pid=1"))))
    more = after(
        *((n, log_records(symptom("needs-reboot", n, detail=f"pid={n}"))) for n in range(2, 200)), state=state
    )
    assert annotated(more, (), ONE, policy()) == annotated(state, (), ONE, policy())


def test_the_evidence_of_a_device_is_limited() -> None:
    state = after(
        (
            1,
            log_records(
                symptom("needs-reboot", 1), *(symptom(f"odd-{n}", 1, detail="x" * 9999) for n in range(2000))
            ),
        )
    )
    (device,) = state.devices
    assert len(device.evidence) == MAX_EVIDENCE
    assert device.evidence[0].cause == "needs-reboot", "the most severe cause is kept"
    assert all(len(one.detail) <= MAX_DETAIL for one in device.evidence)


def test_the_number_of_unknown_addresses_is_limited() -> None:
    unknown = tuple(replace(symptom("needs-reboot", 1), address=f"unknown-{n}") for n in range(3000))
    assert len(after((1, log_records(*unknown))).devices) <= 1024


def test_a_mark_is_a_cause_until_the_device_is_replaced() -> None:
    mark = Mark(
        vendor="nvidia", address=FIRST, uuid="GPU-1", device_id="", instance="", reason="smells", since="now"
    )
    found = annotated(after(), (mark,), ONE, policy())["nvidia"].accelerators[0]
    assert [(one.cause, one.detail) for one in found.causes] == [("marked", "smells")]
    other = inventory(gpu(uuid="GPU-2"))
    assert annotated(after(), (mark,), other, policy())["nvidia"].accelerators[0].causes == ()
    moved = inventory(gpu(SECOND))
    assert annotated(after(), (mark,), moved, policy())["nvidia"].accelerators[0].health == "unhealthy"


@pytest.mark.parametrize(
    ("instance", "left"),
    [
        ("", []),
        ("gi1/ci0", ["needs-reboot", "gi2"]),
        ("gi2", ["needs-reboot", "gi1"]),
        ("gi1/ci0/x", ["needs-reboot", "gi2"]),
    ],
)
def test_a_manual_clear_applies_to_a_device_with_its_partitions_or_to_one_partition(
    instance: str, left: list[str]
) -> None:
    clear = cleared(10, instance=instance)
    reports = (
        symptom("needs-reboot", 10),
        symptom("needs-reboot", 9, instance="gi1"),
        symptom("needs-reboot", 9, instance="gi2"),
    )
    state = after((10, log_records(*reports)), (11, TimeElapsed()), rules=replace(policy(), clears=(clear,)))
    assert [one.instance or one.cause for one in state.devices[0].evidence] == left


def test_a_manual_clear_does_not_clear_a_cause_that_checks_find() -> None:
    clear = cleared(10)
    state = after(
        (9, checked(symptom("found"))), (11, TimeElapsed()), rules=replace(policy(), clears=(clear,))
    )
    assert causes(state) == ["found"]
