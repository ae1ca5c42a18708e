"""The tracker processes errors while a check hangs, and keeps known causes if its file is unusable."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.daemon.threads import beside
from support.daemon.watching import OWN_MOUNTS, run_apart
from support.values.health_devices import (
    CLEAR_AFTER_S,
    FIRST,
    SECOND,
    cleared,
    device_event,
    gpu,
    inventory,
    observe,
    vendor_health,
)
from support.waiting import PATIENCE_S

from cdigen.health import marks, state_file
from cdigen.health.tracker import HealthTracker
from cdigen.model.health import HealthSample, LogRecord, Symptom

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.health import DeviceEvent, Recovery
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext


class Driver:
    """A vendor with a check that may hang, and with code that may fail."""

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.resume.set()
        self.is_broken = False
        self.health = vendor_health(
            check=self.check,
            parse_log=self.parse_log,
            parse_uevents=self.parse_uevents,
            probe=self.probe,
        )

    def check(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:  # noqa: ARG002
        self.resume.wait(PATIENCE_S)
        self._fail()
        return HealthSample(source="files", covered=(FIRST,))

    def parse_log(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        self._fail()
        return (Symptom(cause=record.text, address=FIRST, detail="an error", at_s=record.at_s),)

    def parse_uevents(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        if event.action != "lost":
            return ()
        return (Symptom(cause="needs-reboot", address=event.address, detail="a uevent", at_s=event.at_s),)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:  # noqa: ARG002
        self._fail()
        return HealthSample(source="probe")

    def _fail(self) -> None:
        if self.is_broken:
            raise ZeroDivisionError("on purpose")


class TrackerHost:
    """A tracker, its driver and its state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.driver = Driver()
        self.now_s = 1000.0
        self.tracker = HealthTracker(health_of=lambda _: self.driver.health, boottime_s=lambda: self.now_s)

    def observe(self, found: dict[str, Inventory] | None = None, *, boot: str = "boot") -> None:
        observe(self.tracker, inventory(gpu()) if found is None else found, self.state, boot)

    def log(self, *causes: str, first: int = 1) -> None:
        self.now_s += 1
        records = (
            LogRecord(sequence=first + place, at_s=self.now_s, text=cause)
            for place, cause in enumerate(causes)
        )
        self.tracker.take_in(tuple(records), ())

    def causes(self) -> list[str]:
        found: list[str] = []

        def save(inventories: dict[str, Inventory]) -> None:
            for one in inventories.get("nvidia", inventory()["nvidia"]).accelerators:
                found.extend(cause.cause for cause in one.causes)

        self.tracker.show(save)
        return found

    def rules(self) -> list[str]:
        return [one.rule for one in self.tracker.findings()]


@pytest.fixture
def host(tmp_path: Path) -> TrackerHost:
    return TrackerHost(tmp_path / "state")


def test_a_check_that_hangs_delays_no_error(host: TrackerHost) -> None:
    host.observe()
    host.driver.resume.clear()
    with beside(host.observe) as (cycle,):
        host.log("needs-reboot")
        assert host.causes() == ["needs-reboot"]
        assert cycle.is_alive()
        host.driver.resume.set()
    assert host.causes() == ["needs-reboot"]


def test_a_uevent_that_the_vendor_recognizes_is_a_cause_of_its_device(host: TrackerHost) -> None:
    host.observe()
    host.tracker.take_in((), (device_event("pci", "change", FIRST), device_event("pci", "lost", SECOND)))
    assert host.causes() == []
    host.tracker.take_in((), (device_event("pci", "lost", FIRST),))
    assert host.causes() == ["needs-reboot"]


def test_known_causes_are_kept_and_a_finding_reports_failing_vendor_code(host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot")
    host.driver.is_broken = True
    host.now_s += 1
    host.observe()
    host.log("expires", first=2)
    assert host.tracker.probe("nvidia").unread == "ZeroDivisionError: on purpose"
    assert host.causes() == ["needs-reboot"]
    assert "health-defect" in host.rules()


def test_records_wait_for_a_vendor_whose_devices_are_found_later(host: TrackerHost) -> None:
    host.observe({})
    host.log("needs-reboot")
    assert host.causes() == []
    host.observe()
    assert host.causes() == ["needs-reboot"]


def test_a_record_that_is_read_a_second_time_adds_no_cause(host: TrackerHost) -> None:
    host.observe()
    host.log("expires")
    host.now_s += CLEAR_AFTER_S
    host.log("expires")
    assert host.causes() == []


def test_a_failed_save_has_a_finding_and_is_retried(host: TrackerHost) -> None:
    file = host.state / "health.json"
    file.mkdir(parents=True)
    host.observe()
    host.log("needs-reboot")
    assert host.causes() == ["needs-reboot"]
    assert host.tracker.findings()
    file.rmdir()
    host.now_s += 10
    host.observe()
    assert host.tracker.findings() == ()
    assert b"needs-reboot" in file.read_bytes()


# This program runs in its own mount namespace. The tracker's state directory is a full file system of 16 KiB.
ON_A_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from health.test_tracker import TrackerHost
state = Path(sys.argv[1]) / "state"
state.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "full", state], check=True)
host = TrackerHost(state)
host.observe()
host.log("needs-reboot")
host.observe()
with (state / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
host.log("expires", first=2)
host.observe()
file = state / "health.json"
print(sorted(host.causes()), [one.message for one in host.tracker.findings()], "expires" in file.read_text())
again = TrackerHost(state)
again.observe()
print(again.causes(), sorted(path.name for path in state.iterdir()))
(state / "filler").unlink()
host.now_s += 10
host.observe()
print(host.tracker.findings(), "expires" in file.read_text())
"""


@pytest.mark.usefixtures("own_mounts")
def test_on_a_full_disk_no_known_cause_is_lost(tmp_path: Path) -> None:
    full, restarted, later = run_apart(ON_A_FULL_DISK, str(tmp_path), start=OWN_MOUNTS)
    assert full.startswith("['expires', 'needs-reboot'] [")
    assert "No space left on device" in full
    assert full.endswith("] False")
    # The previous file is complete, and no temporary file is left.
    assert restarted.startswith("['needs-reboot'] ")
    assert ".tmp" not in restarted
    assert later == "() True"


def test_the_state_file_is_not_written_for_further_records_of_a_known_cause(host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot")
    host.observe()
    before = (host.state / "health.json").stat()
    for sequence in range(2, 50):
        host.log("needs-reboot", first=sequence)
        host.observe()
    assert (host.state / "health.json").stat().st_ino == before.st_ino


def test_marks_that_cannot_be_read_any_more_still_apply(host: TrackerHost) -> None:
    marks.mark(str(host.state), "nvidia", gpu(), "smells")
    host.observe()
    assert host.causes() == ["marked"]
    (host.state / marks.FILE).write_text("{")
    host.observe()
    assert host.causes() == ["marked"]
    assert host.rules() == ["health-marks-damaged"]


def test_a_mark_is_removed_if_its_device_was_replaced(host: TrackerHost) -> None:
    marks.mark(str(host.state), "nvidia", gpu(), "smells")
    host.observe(inventory(gpu(uuid="GPU-2")))
    assert host.causes() == []
    assert marks.read_marks(str(host.state)) == ((), None)


@pytest.mark.parametrize("boot", ["other", ""])
def test_another_boot_begins_with_an_empty_state(boot: str, host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot")
    later = TrackerHost(host.state)
    later.observe(boot=boot)
    assert later.causes() == []


def test_a_device_that_is_bound_to_vfio_is_not_lost(host: TrackerHost) -> None:
    host.observe(inventory(gpu(), gpu(SECOND, uuid="GPU-2")))
    host.observe(inventory(gpu()))
    assert "device-lost" in host.rules()
    bus = host.state.parent / "sys/bus/pci"
    (bus / "devices" / SECOND).mkdir(parents=True)
    for name in ("nouveau", "vfio-pci"):
        (bus / "drivers" / name).mkdir(parents=True)
        link = bus / "devices" / SECOND / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/sys/bus/pci/drivers/{name}")
        host.observe(inventory(gpu()))
        assert ("device-lost" in host.rules()) == (name == "nouveau")


def clear(host: TrackerHost, later_s: float = 0.0, **changes: str) -> None:
    marks.clear_events(str(host.state), cleared(host.now_s + later_s, **changes))
    host.observe()


def test_a_manual_clear_applies_to_past_events_and_not_to_later_events(host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot", "needs-reset")
    clear(host)
    assert host.causes() == []
    host.log("needs-reboot", first=3)
    assert host.causes() == ["needs-reboot"]


def test_a_cleared_cause_stays_cleared_if_the_log_is_read_again(host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot")
    clear(host)
    for damage in (None, "{"):
        if damage is not None:
            (host.state / "health.json").write_text(damage)
        later = TrackerHost(host.state)
        later.now_s = host.now_s + 10
        record = LogRecord(sequence=1, at_s=host.now_s, text="needs-reboot")
        # The record arrives before the first cycle and after it.
        later.tracker.take_in((record,), ())
        later.observe()
        assert later.causes() == []
        later.tracker.take_in((record,), ())
        assert later.causes() == []


@pytest.mark.parametrize(
    ("changes", "later_s"),
    [
        pytest.param({"boot": "other"}, 0.0, id="another boot"),
        pytest.param({"boot": ""}, 0.0, id="no boot"),
        pytest.param({}, 1e6, id="a later time"),
        pytest.param({"uuid": "GPU-2"}, 0.0, id="a replaced device"),
        pytest.param({"instance": "gi1/ci0"}, 0.0, id="an instance"),
    ],
)
def test_a_manual_clear_for_another_boot_time_device_or_instance_clears_no_cause(
    changes: dict[str, str], later_s: float, host: TrackerHost
) -> None:
    host.observe()
    host.log("needs-reboot")
    clear(host, later_s, **changes)
    assert host.causes() == ["needs-reboot"]


def test_a_cause_is_shown_before_it_is_saved(host: TrackerHost) -> None:
    host.observe()
    file = host.state / "health.json"
    host.log("needs-reboot")
    assert host.causes() == ["needs-reboot"]
    assert b"needs-reboot" not in file.read_bytes()
    host.tracker.save()
    assert b"needs-reboot" in file.read_bytes()


def test_take_changed_returns_a_device_with_an_error_that_the_specs_do_not_have(host: TrackerHost) -> None:
    host.observe()
    host.log("needs-reboot")
    host.tracker.with_links(inventory(gpu()))
    assert host.tracker.take_changed() == (FIRST,)
    assert host.tracker.take_changed() == ()


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "true", '"1"'])
def test_a_state_file_with_an_invalid_time_is_damaged(number: str, host: TrackerHost) -> None:
    host.observe()
    host.tracker.close()
    file = host.state / "health.json"
    text = file.read_text()
    assert '"discovered_s": 1000.0' in text
    file.write_text(text.replace('"discovered_s": 1000.0', f'"discovered_s": {number}'))
    state, finding = state_file.read(str(host.state), "boot", 2000.0)
    assert state.devices == ()
    assert finding is not None
    assert finding.rule == "health-damaged"
