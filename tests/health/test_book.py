"""A cause lasts until what its rule names has cleared it, in whatever order one hears of that."""

from __future__ import annotations

from itertools import permutations

import pytest
from support.values.health_devices import (
    FIRST,
    QUIET_S,
    SECOND,
    at,
    cleared,
    gpu,
    inventory,
    partition,
    policy,
)

from cdigen.health.advance import MAX_DETAIL, MAX_EVIDENCE, advance, awaited, due_s
from cdigen.health.annotate import annotated, lost_devices
from cdigen.health.book import Book, Heard, Loaded, Looked, Passed, Policy, Seen
from cdigen.health.marks import Mark
from cdigen.model.health import Look, Measurement, Recovery, Symptom
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.health.book import Event
    from cdigen.model.inventory import Accelerator, Inventory

ONE = inventory(gpu())
TWO = inventory(gpu(), gpu(SECOND, uuid="GPU-2"))
SPLIT = inventory(gpu(partitions=(partition("gi1/ci0"), partition("gi2/ci0"))))
EMPTY = Book(boot="boot")


def heard(*told: Symptom | Recovery, sequence: int = 0) -> Heard:
    return Heard(vendor="nvidia", sequence=sequence, told=told)


def ill(cause: str, at_s: float | None = None, *, instance: str = "", detail: str = "it is ill") -> Symptom:
    return Symptom(cause=cause, address=FIRST, detail=detail, instance=instance, at_s=at_s)


def well(clearance: str, at_s: float | None = None, *, address: str = FIRST) -> Recovery:
    return Recovery(clearance=clearance, address=address, detail="", at_s=at_s)  # type: ignore[arg-type]


def look(*symptoms: Symptom, source: str = "files", began_s: float = 0.0, **rest: object) -> Looked:
    made = Look(source=source, covered=rest.pop("covered", (FIRST,)), symptoms=symptoms, **rest)  # type: ignore[arg-type]
    return Looked(vendor="nvidia", look=made, began_s=began_s)


def after(*events: tuple[float, Event], book: Book = EMPTY, rules: Policy | None = None) -> Book:
    """Return the book after EVENTS, each told at its time."""
    for time_s, event in ((0.0, Seen(inventories=ONE)), *events) if book is EMPTY else events:
        book = advance(book, event, at(time_s), rules or policy())
    return book


def one_by_one(events: tuple[Symptom | Recovery, ...], order: tuple[int, ...]) -> Book:
    return after(*[(20.0, heard(events[place])) for place in order])


def shown(book: Book, found: dict[str, Inventory] = ONE) -> Accelerator:
    """Return the first device of FOUND, with its health."""
    return annotated(book, (), found, policy())["nvidia"].accelerators[0]


def causes(book: Book, found: dict[str, Inventory] = ONE) -> list[str]:
    return [one.cause for one in shown(book, found).causes]


@pytest.mark.parametrize(
    ("cause", "clearance"),
    [("needs-reset", "reset"), ("needs-reload", "reload"), ("needs-reload", "reset"), ("recovers", "reset")],
)
def test_what_its_rule_names_clears_a_cause(cause: str, clearance: str) -> None:
    book = after((10, heard(ill(cause, 7))))
    assert causes(book) == [cause]
    assert causes(after((20, heard(well(clearance, 15))), book=book)) == []


@pytest.mark.parametrize("clearance", ["reload", "recovered", "gone", "quiet"])
def test_what_its_rule_does_not_name_clears_nothing(clearance: str) -> None:
    book = after((10, heard(ill("needs-reset", 7), well(clearance, 9))), (10_000, Passed()))
    assert causes(book) == ["needs-reset"]


def test_a_reset_that_is_heard_of_late_does_not_clear_what_came_after_it() -> None:
    book = after((10, heard(ill("needs-reset", 7))), (11, heard(well("reset", 5))))
    assert causes(book) == ["needs-reset"]


def test_an_error_that_is_heard_of_late_is_cleared_by_the_reset_after_it() -> None:
    assert causes(after((10, heard(well("reset", 9))), (11, heard(ill("needs-reset", 7))))) == []


def test_the_order_in_which_events_come_does_not_matter() -> None:
    events = (
        ill("needs-reset", 2),
        well("reset", 4),
        ill("needs-reset", 6),
        well("reset", 8),
        ill("boots", 3),
    )
    for order in permutations(range(5)):
        book = one_by_one(events, order)
        assert causes(book) == ["boots"], order
    for order in permutations((0, 1, 2, 4)):
        book = one_by_one(events, order)
        since = {one.cause: one.since for one in shown(book).causes}
        assert since == {"needs-reset": "2023-11-14T22:13:26.000Z", "boots": "2023-11-14T22:13:23.000Z"}


def test_an_error_after_the_reset_is_one() -> None:
    book = after((10, heard(ill("needs-reset", 7), well("reset", 8), ill("needs-reset", 9))))
    assert causes(book) == ["needs-reset"]


def test_recovered_needs_the_word_of_the_driver_after_the_error_and_quiet() -> None:
    book = after((10, heard(ill("recovers", 10))))
    assert causes(after((10 + QUIET_S, Passed()), book=book)) == ["recovers"]
    before = after((11, look(source="probe", began_s=9, recoveries=(well("recovered"),))), book=book)
    assert causes(after((10 + QUIET_S, Passed()), book=before)) == ["recovers"]
    said = after((12, look(source="probe", began_s=11, recoveries=(well("recovered"),))), book=book)
    assert causes(after((9.9 + QUIET_S, Passed()), book=said)) == ["recovers"]
    assert causes(after((10 + QUIET_S, Passed()), book=said)) == []


def test_a_driver_that_says_recovered_while_errors_go_on_is_not_believed() -> None:
    book = after()
    for second in range(0, 3000, 100):
        book = after(
            (second, heard(ill("recovers", second))),
            (second + 50, look(source="probe", began_s=second + 49, recoveries=(well("recovered"),))),
            book=book,
        )
        assert causes(book) == ["recovers"]


def test_quiet_alone_clears_what_its_rule_says() -> None:
    book = after((10, heard(ill("quiets", 10))))
    assert due_s(book, policy(), 11) == 10 + QUIET_S
    assert causes(after((309.9, Passed()), book=book)) == ["quiets"]
    assert causes(after((310, Passed()), book=book)) == []
    assert due_s(after((310, Passed()), book=book), policy(), 310) is None


def test_a_probe_is_awaited_until_it_has_spoken_after_the_error() -> None:
    book = after((10, heard(ill("recovers", 10))))
    assert awaited(book, policy()) == {"nvidia": 10 + QUIET_S}
    book = after((12, look(source="probe", began_s=11, recoveries=(well("recovered"),))), book=book)
    assert awaited(book, policy()) == {}


def test_what_a_look_no_longer_sees_is_gone() -> None:
    book = after((10, look(ill("seen"), began_s=9)))
    assert causes(book) == ["seen"]
    assert causes(after((20, look(began_s=19)), book=book)) == []


def test_a_look_of_another_source_says_nothing_of_it() -> None:
    book = after((10, look(ill("seen"), began_s=9)), (20, look(source="probe", began_s=19)))
    assert causes(book) == ["seen"]


def test_a_look_that_does_not_reach_the_device_keeps_what_was() -> None:
    book = after((10, look(ill("seen"), began_s=9)))
    assert causes(after((20, look(began_s=19, covered=(SECOND,))), book=book)) == ["seen"]
    assert causes(after((20, look(began_s=19, covered=(), unread="NVML hangs")), book=book)) == ["seen"]


def test_a_failing_look_keeps_a_healthy_device_healthy() -> None:
    book = after((10, look(began_s=9)), (20, look(began_s=19, covered=(), unread="it hangs")))
    assert shown(book).health == "healthy"


def test_a_device_that_no_look_has_reached_is_unknown() -> None:
    assert shown(after()).health == "unknown"


def test_a_word_of_the_log_that_it_is_gone_clears_nothing_that_looks_see() -> None:
    book = after((10, look(ill("seen"), began_s=9)), (20, heard(well("gone", 15))))
    assert causes(book) == ["seen"]
    assert causes(after((10, heard(ill("seen", 9))), (20, heard(well("gone", 15))))) == []


def test_a_driver_that_is_loaded_anew_clears_what_was_before() -> None:
    book = after((1, Loaded(vendor="nvidia", load="a")), (5, heard(ill("needs-reload", 5))))
    book = after((6, Loaded(vendor="nvidia", load="a")), book=book)
    assert causes(book) == ["needs-reload"]
    gone = after((7, Loaded(vendor="nvidia", load="")), book=book)
    assert causes(gone) == ["needs-reload"]
    assert causes(after((9, Loaded(vendor="nvidia", load="b")), book=gone)) == []
    assert causes(after((9, Loaded(vendor="nvidia", load="b")), book=book)) == []


def test_the_first_sight_of_a_driver_clears_nothing() -> None:
    book = after((5, heard(ill("needs-reload", 5))), (6, Loaded(vendor="nvidia", load="a")))
    assert causes(book) == ["needs-reload"]


def test_an_error_of_the_new_driver_before_it_was_seen_stays() -> None:
    book = after((1, Loaded(vendor="nvidia", load="a")), (9, heard(ill("needs-reload", 5))))
    assert causes(after((9, Loaded(vendor="nvidia", load="b")), book=book)) == ["needs-reload"]


@pytest.mark.parametrize("other", [gpu(uuid="GPU-2"), gpu(uuid=None, device_id="0x2330")])
def test_another_device_in_the_slot_has_none_of_its_causes(other: object) -> None:
    found = inventory(other)  # type: ignore[arg-type]
    book = after((10, heard(ill("boots", 7))), (20, Seen(inventories=found)))
    assert causes(book, found) == []
    late = after((30, heard(ill("boots", -1))), book=book)
    assert causes(late, found) == [], "it happened to the one that was there before"
    assert causes(after((30, heard(ill("boots", 25))), book=book), found) == ["boots"]


def test_a_device_whose_uuid_is_not_known_yet_is_no_other() -> None:
    unknown = inventory(gpu(uuid=None))
    book = after((10, heard(ill("boots", 7))), (20, Seen(inventories=unknown)), (30, Seen(inventories=ONE)))
    assert causes(book) == ["boots"]


def test_what_is_heard_of_a_device_before_it_is_seen_counts() -> None:
    book = advance(EMPTY, heard(ill("boots", 1)), at(2), policy())
    assert causes(after((3, Seen(inventories=ONE)), book=book)) == ["boots"]


def test_a_partition_has_its_own_and_its_devices_causes() -> None:
    book = after((1, Seen(inventories=SPLIT)), (2, look(began_s=1)))
    of_part = after((10, heard(ill("boots", 7, instance="gi1"))), book=book)
    found = shown(of_part, SPLIT)
    assert (found.health, found.causes) == ("healthy", ())
    assert [(one.health, len(one.causes)) for one in found.partitions] == [("unhealthy", 1), ("healthy", 0)]
    of_all = after((10, heard(ill("needs-reset", 8))), book=of_part)
    found = shown(of_all, SPLIT)
    assert [one.cause for one in found.causes] == ["needs-reset"]
    assert [[c.cause for c in one.causes] for one in found.partitions] == [
        ["boots", "needs-reset"],
        ["needs-reset"],
    ]


def test_a_partition_that_is_removed_takes_its_causes_with_it() -> None:
    book = after((1, Seen(inventories=SPLIT)), (10, heard(ill("boots", 7, instance="gi1"))))
    rest = inventory(gpu(partitions=(partition("gi2/ci0"),)))
    book = after((20, Seen(inventories=rest)), (30, Seen(inventories=SPLIT)), book=book)
    found = shown(book, SPLIT)
    assert [one.causes for one in found.partitions] == [(), ()]


def test_a_symptom_at_a_partitions_own_address_is_the_partitions() -> None:
    split = inventory(gpu(partitions=(partition("xcp0", address="amdgpu_xcp_0"), partition("xcp1"))))
    book = after((1, Seen(inventories=split)))
    book = after((2, heard(replace(ill("boots", 2), address="amdgpu_xcp_0"))), book=book)
    found = shown(book, split)
    assert [len(one.causes) for one in found.partitions] == [1, 0]


def test_a_lower_number_than_earlier_in_this_boot_is_a_symptom_as_long_as_it_lasts() -> None:
    def lanes(value: int) -> tuple[Measurement, ...]:
        return (Measurement(cause="seen", address=FIRST, what="lanes", value=value, worse="lower"),)

    book = after((1, look(began_s=1, measurements=lanes(8))))
    assert causes(book) == []
    book = after(
        (2, look(began_s=2, measurements=lanes(16))), (3, look(began_s=3, measurements=lanes(4))), book=book
    )
    found = shown(book).causes
    assert [(one.cause, one.detail) for one in found] == [("seen", "4 lanes, 16 earlier in this boot")]
    assert causes(after((4, look(began_s=4, measurements=lanes(16))), book=book)) == []


def test_a_rising_counter_is_evidence_once_and_a_falling_one_a_new_beginning() -> None:
    def errors(value: int) -> tuple[Measurement, ...]:
        return (Measurement(cause="quiets", address=FIRST, what="errors", value=value, worse="higher"),)

    book = after((1, look(began_s=1, measurements=errors(5))))
    assert causes(book) == []
    book = after(
        (2, look(began_s=2, measurements=errors(7))), (3, look(began_s=3, measurements=errors(7))), book=book
    )
    assert causes(book) == ["quiets"]
    quiet = after((2 + QUIET_S, look(began_s=3, measurements=errors(0))), book=book)
    assert causes(quiet) == []
    again = after((3 + QUIET_S, look(began_s=2 + QUIET_S, measurements=errors(1))), book=quiet)
    assert causes(again) == ["quiets"]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_counter_tells_nothing_new_of_what_the_log_has_told(is_late: bool) -> None:  # noqa: FBT001
    def errors(value: int) -> Looked:
        counted = Measurement(cause="needs-reset", address=FIRST, what="errors", value=value, worse="higher")
        return look(began_s=1, measurements=(counted,))

    told: list[tuple[float, Event]] = [
        (7.0, heard(ill("needs-reset", 5), well("reset", 5.1))),
        (6.0, errors(1)),
    ]
    events = told[::-1] if is_late else told
    assert causes(after((1, errors(0)), *events)) == []
    assert causes(after((1, errors(0)), *events, (8, errors(2)))) == ["needs-reset"]


def test_a_lost_device_is_told_until_it_is_back() -> None:
    broken = heard(replace(ill("boots"), address=SECOND))
    book = after((1, Seen(inventories=TWO)), (1.5, broken), (2, Seen(inventories=ONE)))
    (finding,) = lost_devices(book, ONE)
    assert (finding.rule, finding.path) == ("device-lost", SECOND)
    assert finding.message.endswith("is not found any more (it also had boots)")
    assert lost_devices(book, {}) == (), "of a vendor that is not there its status tells"
    book = after((3, Seen(inventories=TWO)), book=book)
    assert lost_devices(book, TWO) == ()


def test_a_device_that_a_virtual_machine_has_is_not_lost_and_keeps_what_was_wrong_with_it() -> None:
    broken = heard(replace(ill("boots"), address=SECOND))
    # Between two drivers it has none.
    book = after((1, Seen(inventories=TWO)), (1.5, broken), (2, Seen(inventories=ONE)))
    assert lost_devices(book, ONE) != ()
    book = after((3, Seen(inventories=ONE, given_away=(SECOND,))), book=book)
    assert lost_devices(book, ONE) == ()
    book = after((4, Seen(inventories=TWO)), book=book)
    assert annotated(book, (), TWO, policy())["nvidia"].accelerators[1].causes[0].cause == "boots"
    assert lost_devices(after((5, Seen(inventories=ONE)), book=book), ONE) != ()


def test_a_device_that_cannot_be_used_any_more_is_lost() -> None:
    broken = inventory(gpu(usable=False))
    book = after((2, Seen(inventories=broken)))
    found = shown(book, broken)
    assert [(one.cause, one.detail) for one in found.causes] == [("lost", "its node cannot be opened")]
    assert causes(after((3, Seen(inventories=ONE)), book=book)) == []
    never = advance(EMPTY, Seen(inventories=broken), at(1), policy())
    assert causes(never, broken) == []


def test_an_ignored_cause_is_kept_and_not_shown() -> None:
    book = after((1, look(ill("seen"), began_s=1)))
    found = annotated(book, (), ONE, policy(ignored=("seen",)))["nvidia"].accelerators[0]
    assert (found.health, found.causes) == ("healthy", ())
    assert causes(book) == ["seen"]


def test_the_wall_clock_neither_clears_nor_keeps() -> None:
    book = after((10, heard(ill("quiets", 10), ill("recovers", 10))))
    for wall_s in (0.0, 4e9):
        jumped = advance(book, Passed(), at(11, wall_s=wall_s), policy())
        assert causes(jumped) == ["quiets", "recovers"]
        assert causes(advance(jumped, Passed(), at(310, wall_s=wall_s), policy())) == ["recovers"]


def test_a_time_in_the_future_is_now() -> None:
    book = after((10, heard(ill("quiets", 1e9))))
    assert causes(after((10 + QUIET_S, Passed()), book=book)) == []


def test_a_flood_of_lines_changes_nothing_that_is_shown() -> None:
    book = after((1, heard(ill("boots", 1, detail="pid=1"))))
    more = after(*((n, heard(ill("boots", n, detail=f"pid={n}"))) for n in range(2, 200)), book=book)
    assert annotated(more, (), ONE, policy()) == annotated(book, (), ONE, policy())


def test_what_a_device_keeps_is_bounded() -> None:
    book = after((1, heard(ill("boots", 1), *(ill(f"odd-{n}", 1, detail="x" * 9999) for n in range(2000)))))
    (device,) = book.devices
    assert len(device.evidence) == MAX_EVIDENCE
    assert device.evidence[0].cause == "boots", "what is cleared the hardest stays"
    assert all(len(one.detail) <= MAX_DETAIL for one in device.evidence)


def test_an_unknown_address_takes_no_more_room_than_there_is() -> None:
    strange = tuple(replace(ill("boots", 1), address=f"strange-{n}") for n in range(3000))
    assert len(after((1, heard(*strange))).devices) <= 1024


def test_a_mark_is_a_cause_until_another_device_is_there() -> None:
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
    [("", []), ("gi1/ci0", ["boots", "gi2"]), ("gi2", ["boots", "gi1"]), ("gi1/ci0/x", ["boots", "gi2"])],
)
def test_a_person_clears_a_device_with_its_partitions_or_one_of_them(instance: str, left: list[str]) -> None:
    word = cleared(10, instance=instance)
    told = (ill("boots", 10), ill("boots", 9, instance="gi1"), ill("boots", 9, instance="gi2"))
    book = after((10, heard(*told)), (11, Passed()), rules=replace(policy(), clears=(word,)))
    assert [one.instance or one.cause for one in book.devices[0].evidence] == left


def test_a_person_clears_nothing_that_a_look_sees() -> None:
    word = cleared(10)
    book = after((9, look(ill("seen"))), (11, Passed()), rules=replace(policy(), clears=(word,)))
    assert causes(book) == ["seen"]
