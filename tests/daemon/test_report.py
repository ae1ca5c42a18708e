"""How reports of cycles add up to a status."""

from __future__ import annotations

import pytest
from support.values.cycle_reports import (
    CHANGED,
    FAILED,
    KIND,
    MISMATCH,
    QUIET,
    STARTED_S,
    STARTING,
    WRITTEN,
    document,
)

from cdigen.cdi.compare import compare
from cdigen.daemon.report import (
    MAX_JOURNAL,
    MAX_NAMES,
    SpecReport,
    VendorReport,
    next_status,
    overall,
    reason_unready,
)
from cdigen.host.mounts import MISSING
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cdigen.daemon.report import VendorState

HEALTHY = {"files": "", "uevents": ""}
FULL = "cannot open /lock: full"


def vendor(state: VendorState, name: str = "nvidia") -> VendorReport:
    return VendorReport(vendor=name, state=state)


def test_a_state_keeps_the_time_at_which_it_began() -> None:
    first = next_status(STARTING, CHANGED, HEALTHY)
    second = next_status(first, QUIET, HEALTHY)
    assert (second.state, second.since_s) == ("ready", STARTED_S + 0.0145)
    assert second.vendors[0].since_s == STARTED_S + 0.0145


def test_another_state_begins_when_its_cycle_ended() -> None:
    status = next_status(
        next_status(STARTING, CHANGED, HEALTHY), replace(QUIET, vendors=(MISMATCH,)), HEALTHY
    )
    assert (status.state, status.since_s) == ("mismatch", STARTED_S + 300.01)


def test_a_failure_keeps_what_was_known_and_is_no_success() -> None:
    status = next_status(next_status(STARTING, CHANGED, HEALTHY), FAILED, HEALTHY)
    assert [each.state for each in status.vendors] == ["ready"]
    assert status.specs == (WRITTEN,)
    assert status.last_success_s == STARTED_S + 0.0145
    assert status.cycle == FAILED


def test_only_writes_and_removals_reach_the_journal() -> None:
    status = next_status(next_status(STARTING, CHANGED, HEALTHY), QUIET, HEALTHY)
    (entry,) = status.journal
    assert (entry.cycle, entry.kind, entry.result, entry.added) == (1, KIND, "written", ("1",))
    assert entry.summary == "+1 device"
    assert entry.reasons == ("uevents: pci add 0000:65:00.0", "poll: mig")


def test_the_journal_is_bounded_in_length_and_each_entry_in_size() -> None:
    many = compare(None, document(*map(str, range(1000))))
    report = replace(CHANGED, specs=(replace(WRITTEN, changes=many),))
    status = STARTING
    for number in range(MAX_JOURNAL + 7):
        status = next_status(status, replace(report, number=number), HEALTHY)
    assert [entry.cycle for entry in status.journal] == list(range(7, MAX_JOURNAL + 7))
    assert len(status.journal[0].added) == MAX_NAMES
    assert "+1000 devices" in status.journal[0].summary


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((), "absent"),
        (("absent", "absent"), "absent"),
        (("absent", "ready"), "ready"),
        (("ready", "degraded"), "degraded"),
        (("degraded", "settling"), "settling"),
        (("settling", "mismatch"), "mismatch"),
    ],
)
def test_the_gravest_state_of_a_vendor_that_is_there_counts(
    states: tuple[VendorState, ...], expected: str
) -> None:
    assert overall(tuple(vendor(state, str(index)) for index, state in enumerate(states))) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"nvidia": "ready"}, ""),
        ({"nvidia": "degraded"}, ""),
        ({"nvidia": "ready", "amd": "absent"}, ""),
        ({"nvidia": "mismatch", "amd": "absent"}, "nvidia: mismatch; amd: absent"),
        ({"nvidia": "settling"}, "nvidia: settling"),
        ({}, "no vendor is known"),
    ],
)
def test_a_host_is_ready_when_one_vendor_serves(states: dict[str, VendorState], expected: str) -> None:
    vendors = tuple(vendor(state, name) for name, state in states.items())
    assert reason_unready(next_status(STARTING, replace(QUIET, vendors=vendors), {})) == expected


def test_a_node_without_gpus_is_ready_and_one_without_a_driver_is_not() -> None:
    cycle = replace(QUIET, vendors=(vendor("absent", "nvidia"),))
    assert reason_unready(next_status(STARTING, cycle, {})) == "nvidia: absent"
    # Else the pod of a DaemonSet never becomes ready there.
    bare = replace(cycle, is_bare=True)
    assert reason_unready(next_status(STARTING, bare, {})) == ""
    # Of what is not mounted nobody knows what is there.
    unseen = Finding(severity="error", rule=MISSING, path="/sys", message="/sys is not mounted")
    status = next_status(STARTING, replace(bare, findings=(unseen,)), {})
    assert reason_unready(status) == "/sys is not mounted"


@pytest.mark.parametrize(("written_s", "expected"), [(None, FULL), (5.0, "")])
def test_a_vendor_whose_spec_cannot_be_written_does_not_serve(written_s: float | None, expected: str) -> None:
    specs = (SpecReport(kind="k", file="f", result="refused", written_s=written_s),)
    cycle = replace(
        QUIET,
        result="failed",
        vendors=(vendor("ready", "nvidia"),),
        specs=specs,
        error=FULL,
    )
    assert reason_unready(next_status(STARTING, cycle, {})) == expected


def test_before_the_first_cycle_nothing_is_ready() -> None:
    assert reason_unready(STARTING) == "the first cycle has not ended yet"


def test_why_a_host_is_not_ready_is_said_with_the_vendors_reason() -> None:
    status = next_status(STARTING, replace(QUIET, vendors=(MISMATCH,)), {})
    assert reason_unready(status) == f"nvidia: mismatch, {MISMATCH.reason}"
