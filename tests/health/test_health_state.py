"""A cause lasts until a clearance that its rule contains; the order in which events arrive has no effect."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.values.health_devices import CLEAR_AFTER_S, FIRST, SECOND, at, policy
from support.values.health_states import ONE, after, causes, checked, log_records, recovery, shown, symptom

from cdigen.health.annotate import annotated
from cdigen.health.clearing import awaited, due_s
from cdigen.health.state import DriverLoaded, HealthChecked, HealthState, TimeElapsed
from cdigen.health.transitions import MAX_DETAIL, MAX_EVIDENCE, apply_event
from cdigen.model.health import Measurement, Recovery, Symptom
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.health.state import Event


def one_by_one(events: tuple[Symptom | Recovery, ...], order: tuple[int, ...]) -> HealthState:
    return after(*[(20.0, log_records(events[place])) for place in order])


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
