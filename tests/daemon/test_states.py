"""The rows of the daemon's table ACTIONS, and the states that vendors can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdigen.daemon.cycle.report import VENDOR_STATES
from cdigen.daemon.cycle.states import (
    _TRANSIENT_ERRORS,
    _TRANSIENT_FINDINGS,
    ACTIONS,
    VendorStatus,
    assess,
    decide,
)
from cdigen.model.errors import HostError
from cdigen.model.findings import Finding

if TYPE_CHECKING:
    from cdigen.daemon.cycle.report import VendorState
    from cdigen.daemon.cycle.states import Action, SpecCondition
    from cdigen.model.findings import Severity

DISKS: tuple[SpecCondition, ...] = ("none", "whole", "broken")
# state, whether it has devices, spec on the disk -> action for the spec
ROWS: list[tuple[VendorState, bool, SpecCondition, Action]] = [
    ("ready", True, "none", "write"),
    ("ready", True, "whole", "write"),
    ("ready", True, "broken", "write"),
    ("degraded", True, "none", "write"),
    ("degraded", True, "whole", "write"),
    ("degraded", True, "broken", "write"),
    ("degraded", False, "none", "nothing"),
    ("degraded", False, "whole", "withdraw"),
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(map(str, row)))
def test_each_row_of_the_table_actions_has_the_expected_action(
    row: tuple[VendorState, bool, SpecCondition, Action],
) -> None:
    state, has_devices, disk, action = row
    assert decide(VendorStatus(state=state, has_devices=has_devices), disk) == action


def test_the_table_actions_has_no_other_rows() -> None:
    assert {row[:3] for row in ROWS} == {(*state, disk) for state, row in ACTIONS.items() for disk in row}


def failed(kind: str) -> HostError:
    return HostError(f"trouble: {kind}", hint="fix it", kind=kind)


def finding(rule: str, severity: Severity = "error") -> Finding:
    return Finding(severity=severity, rule=rule, path="/dev/nvidia0", message=f"about {rule}", hint="fix it")


KINDS = st.one_of(
    st.sampled_from([*_TRANSIENT_ERRORS, "driver-not-loaded", "host-not-ready"]), st.text(max_size=8)
)
RULES = st.one_of(st.sampled_from([*_TRANSIENT_FINDINGS, "gpu-lost", "gpu-repeated"]), st.text(max_size=8))
FINDINGS = st.lists(st.builds(finding, RULES, st.sampled_from(["error", "warning", "info"])), max_size=4)
STATUSES = st.builds(
    lambda failure, findings, busy, may_wait: assess(
        failure, tuple(findings), may_wait=lambda _: may_wait, busy=busy
    ),
    st.none() | st.builds(failed, KINDS),
    FINDINGS,
    st.sampled_from(["", "dpkg", "rpm"]),
    st.booleans(),
)


@given(STATUSES)
def test_every_possible_status_has_a_row(status: VendorStatus) -> None:
    assert ACTIONS[status.state, status.has_devices].keys() == set(DISKS)
    assert status.state in VENDOR_STATES


@given(STATUSES)
def test_nothing_is_written_for_a_vendor_without_devices(status: VendorStatus) -> None:
    assert status.has_devices or all(decide(status, disk) != "write" for disk in DISKS)


@given(STATUSES)
def test_a_host_is_settling_exactly_while_another_cycle_is_due_soon(status: VendorStatus) -> None:
    assert status.awaits_change == (status.state == "settling")
    assert not status.awaits_change or (status.transient and status.reason)


@given(st.sampled_from(VENDOR_STATES), st.booleans())
def test_a_broken_spec_is_replaced_or_withdrawn_in_every_state(state: VendorState, has_devices: bool) -> None:  # noqa: FBT001
    if (state, has_devices) in ACTIONS:
        assert decide(VendorStatus(state=state, has_devices=has_devices), "broken") in {"write", "withdraw"}


@pytest.mark.parametrize("kind", sorted(_TRANSIENT_ERRORS))
def test_a_transient_error_is_settling_first_and_is_reported_after_the_wait(kind: str) -> None:
    waiting = assess(failed(kind), may_wait=lambda _: True)
    assert (waiting.state, waiting.awaits_change, waiting.transient) == ("settling", True, kind)
    over = assess(failed(kind), may_wait=lambda _: False)
    state = {"version-mismatch": "mismatch", "no-gpu": "absent"}.get(kind, "degraded")
    assert (over.state, over.awaits_change, over.transient) == (state, False, kind)


@pytest.mark.parametrize("kind", ["no-nodes", "no-usable-device", "node-claimed-twice"])
def test_a_vendor_without_usable_devices_is_degraded_and_its_spec_is_withdrawn(kind: str) -> None:
    status = assess(failed(kind), may_wait=lambda _: False)
    assert (status.state, status.has_devices, status.reason) == ("degraded", False, f"trouble: {kind}")
    assert decide(status, "whole") == "withdraw"


def test_without_a_loaded_module_the_vendor_is_absent_at_once() -> None:
    status = assess(failed("driver-not-loaded"), may_wait=lambda _: True)
    assert (status.state, status.awaits_change) == ("absent", False)


@pytest.mark.parametrize("rule", sorted(_TRANSIENT_FINDINGS))
def test_a_transient_finding_is_settling_first_and_degraded_after_the_wait(rule: str) -> None:
    assert assess(None, (finding(rule),), may_wait=lambda _: True).state == "settling"
    assert assess(None, (finding(rule),), may_wait=lambda _: False).state == "degraded"


def test_a_lost_gpu_makes_the_vendor_degraded_at_once() -> None:
    assert assess(None, (finding("gpu-lost"),), may_wait=lambda _: True).state == "degraded"


def test_a_warning_does_not_make_the_vendor_degraded() -> None:
    assert assess(None, (finding("library-missing", "warning"),), may_wait=lambda _: True).state == "ready"


def test_the_wait_for_a_package_manager_ends_at_the_time_limit() -> None:
    assert assess(None, may_wait=lambda _: True, busy="dpkg").reason == "dpkg is at work"
    assert assess(None, may_wait=lambda _: False, busy="dpkg").state == "ready"


def test_a_vendor_whose_code_fails_keeps_its_valid_specs() -> None:
    failure = HostError("the vendor acme failed: TypeError: no", kind="vendor-defect")
    status = assess(failure, may_wait=lambda _: True)
    assert (status.state, status.has_devices, status.awaits_change) == ("degraded", False, False)
    assert decide(status, "whole") == "keep"
