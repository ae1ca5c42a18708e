"""The status that follows from the reports of one or more cycles."""

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
from cdigen.daemon.cycle.report import (
    MAX_JOURNAL,
    MAX_NAMES,
    SpecReport,
    VendorReport,
    next_status,
    overall,
    reason_unready,
    verdict,
)
from cdigen.host.mounts import MISSING
from cdigen.model.findings import Finding
from cdigen.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cdigen.daemon.cycle.report import VendorState

HEALTHY = {"files": "", "uevents": ""}
FULL = "cannot open /lock: full"


def vendor(state: VendorState, name: str = "nvidia") -> VendorReport:
    return VendorReport(vendor=name, state=state)


def test_a_state_keeps_the_time_at_which_it_began() -> None:
    first = next_status(STARTING, CHANGED, HEALTHY)
    second = next_status(first, QUIET, HEALTHY)
    assert (second.state, second.since_s) == ("ready", STARTED_S + 0.0145)
    assert second.vendors[0].since_s == STARTED_S + 0.0145


def test_a_new_state_begins_at_the_end_of_its_cycle() -> None:
    status = next_status(
        next_status(STARTING, CHANGED, HEALTHY), replace(QUIET, vendors=(MISMATCH,)), HEALTHY
    )
    assert (status.state, status.since_s) == ("mismatch", STARTED_S + 300.01)


def test_after_a_failed_cycle_the_status_keeps_the_last_vendors_and_specs() -> None:
    status = next_status(next_status(STARTING, CHANGED, HEALTHY), FAILED, HEALTHY)
    assert [each.state for each in status.vendors] == ["ready"]
    assert status.specs == (WRITTEN,)
    assert status.last_success_s == STARTED_S + 0.0145
    assert status.cycle == FAILED


def test_only_writes_and_removals_are_in_the_journal() -> None:
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
def test_the_host_has_the_worst_state_of_its_present_vendors(
    states: tuple[VendorState, ...], expected: str
) -> None:
    assert overall(tuple(vendor(state, str(index)) for index, state in enumerate(states))) == expected


NO_KFD = "none of the 2 GPUs of amdgpu can be used: /dev/kfd does not exist"
FOREIGN = "/run/cdi/nvidia.yaml defines the same devices"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("ready", "containers can use 8 devices")),
        ({"devices": 1}, ("ready", "containers can use 1 device")),
        ({"unhealthy": 8}, ("degraded", "8 of 8 devices unhealthy")),
        ({"unhealthy": 1, "devices": 1}, ("degraded", "1 of 1 device unhealthy")),
        ({"devices": 0, "specs": ()}, ("degraded", "no device is in a spec")),
        # WSL2 and Tegra boards.
        ({"devices": 0}, ("ready", "containers can use nvidia.com/gpu")),
        ({"vendors": (vendor("absent"), vendor("ready", "amd"))}, ("ready", "containers can use 8 devices")),
        (
            {"vendors": (vendor("ready"), replace(vendor("degraded", "amd"), reason=NO_KFD))},
            ("degraded", NO_KFD),
        ),
        (
            {"specs": (SpecReport(kind="nvidia.com/gpu", file="f", result="refused", reason=FOREIGN),)},
            ("degraded", f"nvidia.com/gpu is not written: {FOREIGN}"),
        ),
        ({"result": "failed", "error": FULL}, ("degraded", FULL)),
        ({"vendors": (vendor("absent"),)}, ("absent", "there is no GPU, or its driver is not loaded")),
        (
            {"vendors": (vendor("ready"), replace(vendor("settling", "amd"), reason="dpkg is at work"))},
            ("settling", "dpkg is at work"),
        ),
        (
            {"vendors": (vendor("absent"),), "result": "failed", "error": FULL},
            ("absent", f"there is no GPU, or its driver is not loaded; {FULL}"),
        ),
    ],
)
def test_the_verdict_is_ready_only_if_containers_can_use_every_device(
    changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    report = replace(QUIET, vendors=(vendor("ready"),), devices=8)
    assert verdict(replace(report, **changes)) == expected


def test_the_verdict_names_three_of_many_reasons() -> None:
    specs = tuple(SpecReport(kind=f"k{n}", file="f", result="refused", reason="r") for n in range(5))
    state, text = verdict(replace(QUIET, vendors=(vendor("ready"),), devices=8, specs=specs))
    assert (state, text.count(" is not written: r"), text.endswith("; and 2 more")) == ("degraded", 3, True)


def test_after_a_cycle_that_fails_before_the_observation_the_state_is_degraded() -> None:
    status = next_status(next_status(STARTING, CHANGED, HEALTHY), FAILED, HEALTHY)
    assert (status.state, status.verdict) == ("degraded", FAILED.error)


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
def test_a_host_is_ready_if_one_vendor_serves_containers(
    states: dict[str, VendorState], expected: str
) -> None:
    vendors = tuple(vendor(state, name) for name, state in states.items())
    assert reason_unready(next_status(STARTING, replace(QUIET, vendors=vendors), {})) == expected


def test_a_degraded_vendor_serves_containers_if_its_spec_is_on_the_disk() -> None:
    cycle = replace(QUIET, vendors=(vendor("degraded", "nvidia"),))
    assert reason_unready(next_status(STARTING, cycle, {})) == ""
    without = replace(cycle, specs=())
    assert reason_unready(next_status(STARTING, without, {})) == "nvidia: degraded"


def test_a_node_without_gpus_is_ready_and_a_node_without_a_driver_is_not() -> None:
    cycle = replace(QUIET, vendors=(vendor("absent", "nvidia"),))
    assert reason_unready(next_status(STARTING, cycle, {})) == "nvidia: absent"
    # Otherwise the pod of a DaemonSet never becomes ready on a node without GPUs.
    bare = replace(cycle, is_bare=True)
    assert reason_unready(next_status(STARTING, bare, {})) == ""
    # The content of a missing mount is unknown.
    unmounted = Finding(severity="error", rule=MISSING, path="/sys", message="/sys is not mounted")
    status = next_status(STARTING, replace(bare, findings=(unmounted,)), {})
    assert reason_unready(status) == "/sys is not mounted"


@pytest.mark.parametrize(("written_s", "expected"), [(None, FULL), (5.0, "")])
def test_a_vendor_whose_spec_cannot_be_written_does_not_serve_containers(
    written_s: float | None, expected: str
) -> None:
    specs = (SpecReport(kind="k", file="f", result="refused", written_s=written_s),)
    cycle = replace(
        QUIET,
        result="failed",
        vendors=(vendor("ready", "nvidia"),),
        specs=specs,
        error=FULL,
    )
    assert reason_unready(next_status(STARTING, cycle, {})) == expected


def test_the_daemon_is_not_ready_before_the_first_cycle_has_ended() -> None:
    assert reason_unready(STARTING) == "the first cycle has not ended yet"


def test_the_reason_of_an_unready_host_contains_the_reason_of_the_vendor() -> None:
    status = next_status(STARTING, replace(QUIET, vendors=(MISMATCH,)), {})
    assert reason_unready(status) == f"nvidia: mismatch, {MISMATCH.reason}"
