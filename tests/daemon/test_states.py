"""The daemon's two tables, row by row, and what may come in between."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.daemon.report import VENDOR_STATES
from cdigen.daemon.states import (
    _TRANSIENT_ERRORS,
    _TRANSIENT_FINDINGS,
    ACTIONS,
    WITHDRAWALS,
    VendorStatus,
    assess,
    decide,
)
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding

if TYPE_CHECKING:
    from cdigen.daemon.report import VendorState
    from cdigen.daemon.states import Action, SpecCondition
    from cdigen.model.findings import Severity

DISKS: tuple[SpecCondition, ...] = ("none", "whole", "broken")
# state, whether it has devices to give, spec on the disk -> what becomes of the spec
ROWS: list[tuple[VendorState, bool, SpecCondition, Action]] = [
    ("ready", True, "none", "write"),
    ("ready", True, "whole", "write"),
    ("ready", True, "broken", "write"),
    ("degraded", True, "none", "write"),
    ("degraded", True, "whole", "write"),
    ("degraded", True, "broken", "write"),
    ("degraded", False, "none", "nothing"),
    ("degraded", False, "whole", "keep"),
    ("degraded", False, "broken", "withdraw"),
    ("settling", True, "none", "write"),
    ("settling", True, "whole", "keep"),
    ("settling", True, "broken", "write"),
    ("settling", False, "none", "nothing"),
    ("settling", False, "whole", "keep"),
    ("settling", False, "broken", "withdraw"),
    ("mismatch", False, "none", "nothing"),
    ("mismatch", False, "whole", "keep"),
    ("mismatch", False, "broken", "withdraw"),
    ("absent", False, "none", "nothing"),
    ("absent", False, "whole", "withdraw"),
    ("absent", False, "broken", "withdraw"),
]
# the configuration says keep, another's spec would come to light -> what becomes of ours
GOING: list[tuple[bool, bool, Action]] = [
    (False, False, "withdraw"),
    (False, True, "keep"),
    (True, False, "keep"),
    (True, True, "keep"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row)))
def test_a_row_of_the_table_says_what_becomes_of_the_spec(
    row: tuple[VendorState, bool, SpecCondition, Action],
) -> None:
    state, offers, disk, action = row
    assert decide(VendorStatus(state=state, offers=offers), disk) == action


def test_the_table_has_no_other_rows() -> None:
    assert {row[:3] for row in ROWS} == ACTIONS.keys()


@pytest.mark.parametrize("row", GOING, ids=lambda row: "-".join(map(str, row)))
def test_a_row_of_the_other_table_says_what_a_withdrawal_comes_to(row: tuple[bool, bool, Action]) -> None:
    keeps, unmasks, action = row
    assert WITHDRAWALS[keeps, unmasks] == action


def test_the_other_table_has_every_combination_and_no_other() -> None:
    assert {row[:2] for row in GOING} == WITHDRAWALS.keys() == set(itertools.product((False, True), repeat=2))


def failed(kind: str) -> HostError:
    return HostError(f"trouble: {kind}", hint="fix it", kind=kind)


def finding(rule: str, severity: Severity = "error") -> Finding:
    return Finding(severity=severity, rule=rule, path="/dev/nvidia0", message=f"about {rule}", hint="fix it")


KINDS = st.one_of(
    st.sampled_from([*_TRANSIENT_ERRORS, "driver-not-loaded", "host-not-ready"]), st.text(max_size=8)
)
RULES = st.one_of(st.sampled_from([*_TRANSIENT_FINDINGS, "gpu-lost", "gpu-repeated"]), st.text(max_size=8))
FINDINGS = st.lists(st.builds(finding, RULES, st.sampled_from(["error", "warning", "info"])), max_size=4)
STANDINGS = st.builds(
    lambda failure, findings, busy, patience: assess(
        failure, tuple(findings), patient=lambda _: patience, busy=busy
    ),
    st.none() | st.builds(failed, KINDS),
    FINDINGS,
    st.sampled_from(["", "dpkg", "rpm"]),
    st.booleans(),
)


@given(STANDINGS)
def test_no_host_ever_stands_where_the_table_has_no_row(standing: VendorStatus) -> None:
    assert all((standing.state, standing.offers, disk) in ACTIONS for disk in DISKS)
    assert standing.state in VENDOR_STATES


@given(STANDINGS)
def test_nothing_is_written_for_a_vendor_that_has_nothing_to_give(standing: VendorStatus) -> None:
    assert standing.offers or all(decide(standing, disk) != "write" for disk in DISKS)


@given(STANDINGS)
def test_a_host_is_settling_exactly_while_another_look_is_due_soon(standing: VendorStatus) -> None:
    assert standing.awaits_change == (standing.state == "settling")
    assert not standing.awaits_change or (standing.transient and standing.reason)


@given(st.sampled_from(VENDOR_STATES), st.booleans())
def test_a_spec_that_is_broken_stays_in_no_state(state: VendorState, offers: bool) -> None:  # noqa: FBT001
    if (state, offers, "broken") in ACTIONS:
        assert decide(VendorStatus(state=state, offers=offers), "broken") in {"write", "withdraw"}


@pytest.mark.parametrize("kind", sorted(_TRANSIENT_ERRORS))
def test_a_passing_trouble_is_waited_for_and_then_taken_as_it_is(kind: str) -> None:
    waiting = assess(failed(kind), patient=lambda _: True)
    assert (waiting.state, waiting.awaits_change, waiting.transient) == ("settling", True, kind)
    over = assess(failed(kind), patient=lambda _: False)
    assert (over.state, over.awaits_change, over.transient) == (_TRANSIENT_ERRORS[kind], False, kind)


def test_a_module_that_is_not_loaded_is_absent_at_once() -> None:
    standing = assess(failed("driver-not-loaded"), patient=lambda _: True)
    assert (standing.state, standing.awaits_change) == ("absent", False)


@pytest.mark.parametrize("rule", sorted(_TRANSIENT_FINDINGS))
def test_a_gpu_that_may_come_yet_is_waited_for_and_then_left_out(rule: str) -> None:
    assert assess(None, (finding(rule),), patient=lambda _: True).state == "settling"
    assert assess(None, (finding(rule),), patient=lambda _: False).state == "degraded"


def test_a_gpu_that_is_lost_is_left_out_at_once() -> None:
    assert assess(None, (finding("gpu-lost"),), patient=lambda _: True).state == "degraded"


def test_warnings_degrade_nothing() -> None:
    assert assess(None, (finding("library-missing", "warning"),), patient=lambda _: True).state == "ready"


def test_a_package_manager_that_works_too_long_is_not_waited_for_any_more() -> None:
    assert assess(None, patient=lambda _: True, busy="dpkg").reason == "dpkg is at work"
    assert assess(None, patient=lambda _: False, busy="dpkg").state == "ready"


def test_a_vendor_whose_code_fails_loses_nothing_that_still_holds() -> None:
    failure = HostError("the vendor acme failed: TypeError: no", kind="vendor-defect")
    standing = assess(failure, patient=lambda _: True)
    assert (standing.state, standing.offers, standing.awaits_change) == ("degraded", False, False)
    assert decide(standing, "whole") == "keep"
