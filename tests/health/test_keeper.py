"""The keeper: looks that hang keep nothing back, files that cannot be used cost nothing that is known."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.daemon.threads import beside
from support.daemon.watching import OWN_MOUNTS, run_apart
from support.values.health_devices import (
    FIRST,
    QUIET_S,
    SECOND,
    SilentHealth,
    cleared,
    device_event,
    gpu,
    inventory,
    observe,
)
from support.waiting import PATIENCE_S

from cdigen.health import book_file, marks
from cdigen.health.keeper import Keeper
from cdigen.model.health import LogRecord, Look, Symptom

if TYPE_CHECKING:
    from pathlib import Path

    from cdigen.model.health import DeviceEvent, Recovery
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext


class Driver(SilentHealth):
    """A vendor whose look may hang, and whose code may be broken."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.is_broken = False

    def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:  # noqa: ARG002
        self.goes_on.wait(PATIENCE_S)
        self._fail()
        return Look(source="files", covered=(FIRST,))

    def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        self._fail()
        return (Symptom(cause=record.text, address=FIRST, detail="it is ill", at_s=record.at_s),)

    def noticed(self, event: DeviceEvent, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        if event.action != "lost":
            return ()
        return (Symptom(cause="boots", address=event.address, detail="a uevent", at_s=event.at_s),)

    def probe(self, context: DiscoveryContext, inventory: Inventory) -> Look:
        self._fail()
        return super().probe(context, inventory)

    def load(self, context: DiscoveryContext) -> str:
        self._fail()
        return super().load(context)

    def _fail(self) -> None:
        if self.is_broken:
            raise ZeroDivisionError("on purpose")


class Kept:
    """A keeper, its driver and its folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.driver = Driver()
        self.now_s = 1000.0
        self.keeper = Keeper(health_of=lambda _: self.driver, boottime_s=lambda: self.now_s)

    def observe(self, found: dict[str, Inventory] | None = None, *, boot: str = "boot") -> None:
        observe(self.keeper, inventory(gpu()) if found is None else found, self.state, boot)

    def hear(self, *causes: str, first: int = 1) -> None:
        self.now_s += 1
        records = (
            LogRecord(sequence=first + place, at_s=self.now_s, text=cause)
            for place, cause in enumerate(causes)
        )
        self.keeper.take_in(tuple(records), ())

    def causes(self) -> list[str]:
        found: list[str] = []

        def save(inventories: dict[str, Inventory]) -> None:
            for one in inventories.get("nvidia", inventory()["nvidia"]).accelerators:
                found.extend(cause.cause for cause in one.causes)

        self.keeper.show(save)
        return found

    def rules(self) -> list[str]:
        return [one.rule for one in self.keeper.findings()]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "state")


def test_a_look_that_hangs_keeps_no_error_back(kept: Kept) -> None:
    kept.observe()
    kept.driver.goes_on.clear()
    with beside(kept.observe) as (cycle,):
        kept.hear("boots")
        assert kept.causes() == ["boots"]
        assert cycle.is_alive()
        kept.driver.goes_on.set()
    assert kept.causes() == ["boots"]


def test_a_uevent_that_the_vendor_recognizes_is_a_cause_of_its_device(kept: Kept) -> None:
    kept.observe()
    kept.keeper.take_in((), (device_event("pci", "change", FIRST), device_event("pci", "lost", SECOND)))
    assert kept.causes() == []
    kept.keeper.take_in((), (device_event("pci", "lost", FIRST),))
    assert kept.causes() == ["boots"]


def test_what_a_vendors_broken_code_does_not_say_is_kept_and_told(kept: Kept) -> None:
    kept.observe()
    kept.hear("boots")
    kept.driver.is_broken = True
    kept.now_s += 1
    kept.observe()
    kept.hear("quiets", first=2)
    assert kept.keeper.ask("nvidia").unread == "ZeroDivisionError: on purpose"
    assert kept.causes() == ["boots"]
    assert "health-defect" in kept.rules()


def test_records_wait_for_a_vendor_whose_devices_are_found_later(kept: Kept) -> None:
    kept.observe({})
    kept.hear("boots")
    assert kept.causes() == []
    kept.observe()
    assert kept.causes() == ["boots"]


def test_records_that_come_again_say_nothing_new(kept: Kept) -> None:
    kept.observe()
    kept.hear("quiets")
    kept.now_s += QUIET_S
    kept.hear("quiets")
    assert kept.causes() == []


def test_a_book_that_cannot_be_saved_is_told_and_saved_later(kept: Kept) -> None:
    file = kept.state / "health.json"
    file.mkdir(parents=True)
    kept.observe()
    kept.hear("boots")
    assert kept.causes() == ["boots"]
    assert kept.keeper.findings()
    file.rmdir()
    kept.now_s += 10
    kept.observe()
    assert kept.keeper.findings() == ()
    assert b"boots" in file.read_bytes()


# In a mount namespace of its own: a keeper whose state lies on a disk of 16 KiB, which others fill.
ON_A_FULL_DISK = """
import subprocess, sys
from pathlib import Path
from health.test_keeper import Kept
state = Path(sys.argv[1]) / "state"
state.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "full", state], check=True)
kept = Kept(state)
kept.observe()
kept.hear("boots")
kept.observe()
with (state / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
kept.hear("quiets", first=2)
kept.observe()
file = state / "health.json"
print(kept.causes(), [one.message for one in kept.keeper.findings()], "quiets" in file.read_text())
again = Kept(state)
again.observe()
print(again.causes(), sorted(path.name for path in state.iterdir()))
(state / "filler").unlink()
kept.now_s += 10
kept.observe()
print(kept.keeper.findings(), "quiets" in file.read_text())
"""


@pytest.mark.usefixtures("own_mounts")
def test_a_full_disk_costs_nothing_that_is_known(tmp_path: Path) -> None:
    full, restarted, later = run_apart(ON_A_FULL_DISK, str(tmp_path), start=OWN_MOUNTS)
    assert full.startswith("['boots', 'quiets'] [")
    assert "No space left on device" in full
    assert full.endswith("] False")
    # The book of before is whole, and no temporary file is left.
    assert restarted.startswith("['boots'] ")
    assert ".tmp" not in restarted
    assert later == "() True"


def test_the_file_is_not_written_where_nothing_has_changed(kept: Kept) -> None:
    kept.observe()
    kept.hear("boots")
    kept.observe()
    before = (kept.state / "health.json").stat()
    for sequence in range(2, 50):
        kept.hear("boots", first=sequence)
        kept.observe()
    assert (kept.state / "health.json").stat().st_ino == before.st_ino


def test_marks_that_cannot_be_read_any_more_still_count(kept: Kept) -> None:
    marks.mark(str(kept.state), "nvidia", gpu(), "smells")
    kept.observe()
    assert kept.causes() == ["marked"]
    (kept.state / marks.FILE).write_text("{")
    kept.observe()
    assert kept.causes() == ["marked"]
    assert kept.rules() == ["health-marks-damaged"]


def test_a_mark_goes_with_its_device(kept: Kept) -> None:
    marks.mark(str(kept.state), "nvidia", gpu(), "smells")
    kept.observe(inventory(gpu(uuid="GPU-2")))
    assert kept.causes() == []
    assert marks.read_marks(str(kept.state)) == ((), None)


@pytest.mark.parametrize("boot", ["other", ""])
def test_another_boot_begins_anew(boot: str, kept: Kept) -> None:
    kept.observe()
    kept.hear("boots")
    later = Kept(kept.state)
    later.observe(boot=boot)
    assert later.causes() == []


def test_a_device_that_a_driver_of_vfio_has_is_not_lost(kept: Kept) -> None:
    kept.observe(inventory(gpu(), gpu(SECOND, uuid="GPU-2")))
    kept.observe(inventory(gpu()))
    assert "device-lost" in kept.rules()
    bus = kept.state.parent / "sys/bus/pci"
    (bus / "devices" / SECOND).mkdir(parents=True)
    for name in ("nouveau", "vfio-pci"):
        (bus / "drivers" / name).mkdir(parents=True)
        link = bus / "devices" / SECOND / "driver"
        link.unlink(missing_ok=True)
        link.symlink_to(f"/sys/bus/pci/drivers/{name}")
        kept.observe(inventory(gpu()))
        assert ("device-lost" in kept.rules()) == (name == "nouveau")


def clear(kept: Kept, later_s: float = 0.0, **changes: str) -> None:
    marks.clear_events(str(kept.state), cleared(kept.now_s + later_s, **changes))
    kept.observe()


def test_a_person_clears_what_has_happened_and_not_what_comes(kept: Kept) -> None:
    kept.observe()
    kept.hear("boots", "needs-reset")
    clear(kept)
    assert kept.causes() == []
    kept.hear("boots", first=3)
    assert kept.causes() == ["boots"]


def test_what_a_person_cleared_stays_so_though_the_log_is_heard_anew(kept: Kept) -> None:
    kept.observe()
    kept.hear("boots")
    clear(kept)
    for damage in (None, "{"):
        if damage is not None:
            (kept.state / "health.json").write_text(damage)
        later = Kept(kept.state)
        later.now_s = kept.now_s + 10
        record = LogRecord(sequence=1, at_s=kept.now_s, text="boots")
        # Before the first cycle, and after it.
        later.keeper.take_in((record,), ())
        later.observe()
        assert later.causes() == []
        later.keeper.take_in((record,), ())
        assert later.causes() == []


@pytest.mark.parametrize(
    ("changes", "later_s"),
    [
        pytest.param({"boot": "other"}, 0.0, id="another boot"),
        pytest.param({"boot": ""}, 0.0, id="no boot"),
        pytest.param({}, 1e6, id="from the future"),
        pytest.param({"uuid": "GPU-2"}, 0.0, id="another device in its place"),
        pytest.param({"instance": "gi1/ci0"}, 0.0, id="an instance"),
    ],
)
def test_a_word_of_another_boot_or_clock_or_about_another_device_or_an_instance_clears_nothing(
    changes: dict[str, str], later_s: float, kept: Kept
) -> None:
    kept.observe()
    kept.hear("boots")
    clear(kept, later_s, **changes)
    assert kept.causes() == ["boots"]


def test_what_is_heard_is_shown_before_it_is_saved(kept: Kept) -> None:
    kept.observe()
    file = kept.state / "health.json"
    kept.hear("boots")
    assert kept.causes() == ["boots"]
    assert b"boots" not in file.read_bytes()
    kept.keeper.save()
    assert b"boots" in file.read_bytes()


def test_an_error_after_the_specs_were_written_is_a_change(kept: Kept) -> None:
    kept.observe()
    kept.hear("boots")
    kept.keeper.with_links(inventory(gpu()))
    assert kept.keeper.take_changed() == (FIRST,)
    assert kept.keeper.take_changed() == ()


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "true", '"1"'])
def test_a_number_that_is_no_time_is_damage(number: str, kept: Kept) -> None:
    kept.observe()
    kept.keeper.close()
    file = kept.state / "health.json"
    text = file.read_text()
    assert '"seen_s": 1000.0' in text
    file.write_text(text.replace('"seen_s": 1000.0', f'"seen_s": {number}'))
    book, finding = book_file.read(str(kept.state), "boot", 2000.0)
    assert book.devices == ()
    assert finding is not None
    assert finding.rule == "health-damaged"
