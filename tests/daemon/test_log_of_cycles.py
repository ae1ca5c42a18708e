"""The line that the daemon logs of a cycle, as it arrives at the other end of a real pipe."""

import json

from daemon.reports import CHANGED, FAILED, KIND, MISMATCH, QUIET, WRITTEN, document
from logpipe import Read

from cdigen.cdi.compare import compare
from cdigen.daemon.log import cycle
from cdigen.daemon.report import MAX_NAMES
from cdigen.frontend.log import make_logger
from cdigen.value import replace


def test_a_cycle_that_changed_something_is_one_line(pipe: tuple[int, Read]) -> None:
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


def test_a_cycle_that_found_everything_as_it_was_is_quiet(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0]), QUIET, CHANGED)
    assert pipe[1]() == []


def test_with_verbose_every_cycle_is_said(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0], verbose=True), QUIET, CHANGED)
    (line,) = pipe[1]()
    assert (line["level"], line["result"]) == ("debug", "unchanged")


def test_another_state_of_a_vendor_is_said_once(pipe: tuple[int, Read]) -> None:
    logger, other = make_logger(fd=pipe[0]), replace(QUIET, vendors=(MISMATCH,))
    cycle(logger, other, QUIET)
    cycle(logger, other, other)
    (line,) = pipe[1]()
    assert line["vendors"] == {"nvidia": f"mismatch: {MISMATCH.reason}"}


def test_a_failure_is_an_error_with_its_reason(pipe: tuple[int, Read]) -> None:
    cycle(make_logger(fd=pipe[0]), FAILED, QUIET)
    (line,) = pipe[1]()
    assert (line["level"], line["error"]) == ("error", FAILED.error)


def test_a_line_stays_short_however_much_changed(pipe: tuple[int, Read]) -> None:
    changes = compare(None, document(*map(str, range(5000))))
    cycle(make_logger(fd=pipe[0]), replace(CHANGED, specs=(replace(WRITTEN, changes=changes),)))
    (line,) = pipe[1]()
    assert len(line["specs"][0]["added"]) == MAX_NAMES
    assert len(json.dumps(line)) < 4096
