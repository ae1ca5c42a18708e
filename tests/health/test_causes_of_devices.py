"""The causes of devices that are lost, replaced, divided into partitions, marked or cleared."""

from __future__ import annotations

import pytest
from support.values.health_devices import FIRST, SECOND, at, cleared, gpu, inventory, partition, policy
from support.values.health_states import (
    EMPTY,
    ONE,
    SPLIT,
    TWO,
    after,
    causes,
    checked,
    log_records,
    shown,
    symptom,
)

from cdigen.health.annotate import annotated, lost_devices
from cdigen.health.marks import Mark
from cdigen.health.state import DevicesDiscovered, TimeElapsed
from cdigen.health.transitions import apply_event
from cdigen.value import replace


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
