"""The line that the daemon logs for a cycle. The tests read the line from a real pipe."""

import json
from itertools import pairwise

from support.log_pipe import Read
from support.values.cycle_reports import CHANGED, FAILED, KIND, MISMATCH, QUIET, WRITTEN, document
from support.values.unhealthy_gpus import ECC, FELL, example, with_causes

from cdigen.cdi.compare import compare
from cdigen.daemon.cycle.report import MAX_NAMES
from cdigen.daemon.log import cycle, health
from cdigen.host.mounts import MISSING
from cdigen.model.findings import Finding
from cdigen.model.health import Cause
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.device_names import KnownDevice, known_devices
from cdigen.service.process.log import make_logger
from cdigen.value import replace


def test_a_cycle_with_changes_is_logged_in_one_line(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0]), CHANGED)
    (line,) = pipe[1]()
    assert (line["event"], line["level"], line["result"]) == ("cycle", "info", "changed")
    assert (line["number"], line["duration_ms"], line["events"]) == (1, 14.5, 7)
    assert line["reasons"] == ["uevents: pci add 0000:65:00.0", "poll: mig"]
    (spec,) = line["specs"]
    assert (spec["kind"], spec["result"], spec["added"], spec["changes"]) == (
        KIND,
        "written",
        ["1"],
        "+1 device",
    )


def test_a_cycle_without_changes_logs_nothing(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0]), QUIET, CHANGED)
    assert pipe[1]() == []


def test_verbose_logs_every_cycle(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0], verbose=True), QUIET, CHANGED)
    (line,) = pipe[1]()
    assert (line["level"], line["result"]) == ("debug", "unchanged")


def test_a_changed_state_of_a_vendor_is_logged_once(pipe: tuple[int, Read]) -> None:
    logger, other = make_logger(fd=pipe[0]), replace(QUIET, vendors=(MISMATCH,))
    cycle(logger, other, QUIET)
    cycle(logger, other, other)
    (line,) = pipe[1]()
    assert line["vendors"] == {"nvidia": f"mismatch: {MISMATCH.reason}"}


def test_a_failed_cycle_is_logged_as_an_error_with_the_reason(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0]), FAILED, QUIET)
    (line,) = pipe[1]()
    assert (line["level"], line["error"]) == ("error", FAILED.error)


def test_a_missing_mount_is_logged_once(pipe: tuple[int, Read]) -> None:
    missing = Finding(severity="error", rule=MISSING, path="/sys", message="no /sys", hint="mount it")
    other = replace(missing, rule="device-unhealthy")
    logger, report = make_logger(fd=pipe[0]), replace(QUIET, findings=(other, missing))
    cycle(logger, report, QUIET)
    cycle(logger, report, report)
    (line,) = pipe[1]()
    logged = (line["event"], line["level"], line["rule"], line["message"], line["hint"])
    assert logged == ("finding", "error", MISSING, "no /sys", "mount it")


def test_a_line_stays_short_after_many_changes(pipe: tuple[int, Read]) -> None:
    changes = compare(None, document(*map(str, range(5000))))
    cycle(make_logger(fd=pipe[0]), replace(CHANGED, specs=(replace(WRITTEN, changes=changes),)))
    (line,) = pipe[1]()
    assert len(line["specs"][0]["added"]) == MAX_NAMES
    assert len(json.dumps(line)) < 4096


def unhealthy(*causes: Cause) -> tuple[KnownDevice, ...]:
    """Return eight GPUs; the GPU with the index 3 has CAUSES."""
    inventories = with_causes(example(), 3, *causes) if causes else example()
    return known_devices(inventories, (DEFAULT,))


def test_a_device_that_became_unhealthy_is_logged_in_one_line_with_its_causes(pipe: tuple[int, Read]) -> None:
    health(make_logger(fd=pipe[0]), unhealthy(FELL), unhealthy())
    (line,) = pipe[1]()
    assert (line["event"], line["level"], line["device"], line["health"]) == (
        "health",
        "warning",
        f"{KIND}=3",
        "unhealthy",
    )
    assert line["causes"] == [{"cause": "xid-79", "since": FELL.since, "detail": FELL.detail}]


def test_another_cause_and_the_recovery_are_logged_and_unchanged_health_is_not_logged(
    pipe: tuple[int, Read],
) -> None:
    logger = make_logger(fd=pipe[0])
    steps = [unhealthy(FELL), unhealthy(FELL), unhealthy(FELL, ECC), unhealthy(ECC), unhealthy(), unhealthy()]
    for before, after in pairwise(steps):
        health(logger, after, before)
    lines = pipe[1]()
    assert [line["level"] for line in lines] == ["warning", "warning", "info"]
    assert [line.get("ended") for line in lines] == [None, None, ["xid-48"]]


def test_at_the_start_only_unhealthy_devices_are_logged(pipe: tuple[int, Read]) -> None:
    health(make_logger(fd=pipe[0]), unhealthy(FELL))
    assert [line["device"] for line in pipe[1]()] == [f"{KIND}=3"]


def test_a_change_from_unknown_to_healthy_is_not_logged(
    pipe: tuple[int, Read],
) -> None:
    whole = example()["nvidia"]
    blank = tuple(replace(gpu, health="unknown") for gpu in whole.accelerators)
    before = known_devices({"nvidia": replace(whole, accelerators=blank)}, (DEFAULT,))
    health(make_logger(fd=pipe[0]), unhealthy(), before)
    assert pipe[1]() == []
