"""Random faults: a device is unhealthy exactly while a cause lasts."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING

import pytest
from support.values.health_devices import (
    CLEAR_AFTER_S,
    FIRST,
    RULES,
    SECOND,
    cleared,
    gpu,
    inventory,
    observe,
    vendor_health,
)

from cdigen.health import marks
from cdigen.health.tracker import HealthTracker
from cdigen.model.health import HealthSample, LogRecord, Recovery, Symptom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.model.health import Clearance
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.context import DiscoveryContext

CLEARED_BY = {rule.cause: rule.cleared_by for rule in RULES}
OF_LOG = ("needs-reset", "needs-reload", "recovers", "expires", "needs-reboot")
OF_CHECKS = ("found", "found-or-reset")
ADDRESSES = (FIRST, SECOND)


class Driver:
    """A vendor whose driver reports the events of the test."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def check(self, context: DiscoveryContext, inventory: Inventory) -> HealthSample:  # noqa: ARG002
        symptoms = (
            Symptom(cause=cause, address=address, detail="a finding")
            for address, cause in sorted(self._machine.visible)
        )
        return HealthSample(source="files", covered=ADDRESSES, symptoms=tuple(symptoms))

    def parse_log(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        kind, name, address = record.text.split(" ")
        if kind == "error":
            return (Symptom(cause=name, address=address, detail="an error", at_s=record.at_s),)
        clearance: Clearance = "reset" if name == "reset" else "reload"
        return (Recovery(clearance=clearance, address=address, detail="", at_s=record.at_s),)


class Truth:
    """The events of one device that have reached the daemon; ``lasting`` computes the expected causes."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, float]] = []
        self.recoveries: list[tuple[str, float]] = []
        self.valid_from_s = 0.0

    def lasting(self, now_s: float) -> set[str]:
        return {cause for cause in OF_LOG if self._lasts(cause, now_s)}

    def _lasts(self, cause: str, now_s: float) -> bool:
        times = [at_s for one, at_s in self.errors if one == cause and at_s >= self.valid_from_s]
        if not times:
            return False
        last_s = max(times)
        has_elapsed = now_s - last_s >= CLEAR_AFTER_S
        after = {name for name, at_s in self.recoveries if at_s > last_s}
        if not has_elapsed:
            after -= {"recovered"}
        if any(name == "cleared" and at_s >= last_s for name, at_s in self.recoveries):
            return False
        return after.isdisjoint(CLEARED_BY[cause]) and not (
            has_elapsed and "clear_after" in CLEARED_BY[cause]
        )


class Machine:
    """A machine with two devices, its log, and the tracker of a daemon that is killed and restarted."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.state_dir = folder / "state"
        self.now_s, self.wall_s = 1000.0, 1e9
        self.modules, self.load = folder / "sys/module", ""
        self.reload()
        self.boot = 0
        self.visible: set[tuple[str, str]] = set()
        self.uuids = {address: f"GPU-{address}" for address in ADDRESSES}
        self.ring: list[LogRecord] = []
        self.delivered = 0
        self.truth = {address: Truth() for address in ADDRESSES}
        self.probed: set[tuple[str, str]] = set()
        self.last_load: tuple[str, float] | None = None
        self.discovered_s = self.probed_s = 0.0
        self.tracker = self._tracker()
        self.cycle()

    def _tracker(self) -> HealthTracker:
        driver = Driver(self)
        return HealthTracker(
            health_of=lambda _: vendor_health(
                check=driver.check, parse_log=driver.parse_log, modules=(self.module,)
            ),
            boottime_s=lambda: self.now_s,
            wall_s=lambda: self.wall_s,
        )

    # Actions of the daemon.

    def cycle(self) -> None:
        found = inventory(*(gpu(address, uuid=self.uuids[address]) for address in ADDRESSES))
        observe(self.tracker, found, self.state_dir, f"boot-{self.boot}")
        self._read_load()
        self.discovered_s = self.now_s

    def deliver(self) -> None:
        self.tracker.take_in(self.ring, ())
        if self.ring:
            self._read_load()
        for record in self.ring[self.delivered :]:
            kind, name, address = record.text.split(" ")
            truth = self.truth[address]
            (truth.errors if kind == "error" else truth.recoveries).append((name, record.at_s))
        self.delivered = len(self.ring)

    def _read_load(self) -> None:
        if self.last_load is not None and self.last_load[0] != self.load:
            for truth in self.truth.values():
                truth.recoveries.append(("reload", self.last_load[1] + 1e-9))
        self.last_load = (self.load, self.now_s)

    def probe(self) -> None:
        # A probe begins after the end of the previous probe.
        began_s = max(self.now_s - self.random.choice((0.0, 1.0, 60.0)), self.probed_s + 0.0001)
        self.now_s = max(self.now_s, began_s)
        self.probed_s = self.now_s
        address = self.random.choice(ADDRESSES)
        if self.random.random() < 0.3:
            self.probed ^= {(address, "found")}
        symptoms = tuple(
            Symptom(cause=cause, address=one, detail="probed") for one, cause in sorted(self.probed)
        )
        recovery = Recovery(clearance="recovered", address=address, detail="")
        sample = HealthSample(source="probe", covered=ADDRESSES, symptoms=symptoms, recoveries=(recovery,))
        self.tracker.probed("nvidia", sample, began_s)
        self.truth[address].recoveries.append(("recovered", began_s))

    def restart(self, *, cleanly: bool) -> None:
        if cleanly:
            self.tracker.close()
        file = self.state_dir / "health.json"
        if self.last_load is not None and file.exists():
            (saved,) = json.loads(file.read_bytes())["vendors"]
            self.last_load = (str(saved["load"]), float(saved["load_read_s"]))
            self.discovered_s = float(saved["discovered_s"])
        self.tracker = self._tracker()
        self.cycle()
        self.deliver()

    def tear(self) -> None:
        """Damage the state file, so that the daemon reads the whole log again."""
        text = (self.state_dir / "health.json").read_bytes()
        (self.state_dir / "health.json").write_bytes(text[: self.random.randrange(len(text))])
        for truth in self.truth.values():
            # The manual clears are in another file.
            truth.errors, truth.valid_from_s = [], 0.0
            truth.recoveries = [one for one in truth.recoveries if one[0] == "cleared"]
        self.probed.clear()
        self.delivered, self.last_load = 0, None
        self.tracker = self._tracker()
        self.cycle()
        self.deliver()

    def reboot(self) -> None:
        self.boot += 1
        self.now_s, self.probed_s, self.ring, self.delivered, self.last_load = 10.0, 0.0, [], 0, None
        self.truth = {address: Truth() for address in ADDRESSES}
        self.visible.clear()
        self.probed.clear()
        self.tracker = self._tracker()
        self.cycle()

    # Events of the machine.

    def log(self, text: str) -> None:
        self.ring.append(LogRecord(sequence=len(self.ring) + 1, at_s=self.now_s, text=text))

    def replace_device(self) -> None:
        self.deliver()
        address = self.random.choice(ADDRESSES)
        self.uuids[address] += "x"
        before_s = self.discovered_s
        self.truth[address] = Truth()
        self.truth[address].valid_from_s = before_s
        self.visible = {one for one in self.visible if one[0] != address}
        self.probed = {one for one in self.probed if one[0] != address}
        self.cycle()

    def step(self) -> None:
        """Cause a random event, and advance the time; the daemon reads the event now or later."""
        address = self.random.choice(ADDRESSES)
        events: dict[Callable[[], object], float] = {
            lambda: self.log(f"error {self.random.choice(OF_LOG)} {address}"): 30,
            lambda: self.log(f"recovery {self.random.choice(('reset', 'reload'))} {address}"): 10,
            self.probe: 15,
            lambda: self.change_visible(address): 10,
            self.reload: 5,
            lambda: self.clear(address): 5,
            self.jump: 5,
            lambda: self.restart(cleanly=self.random.random() < 0.5): 5,
            self.replace_device: 2,
            self.reboot: 0.5,
            self.tear: 1,
            lambda: None: 16,
        }
        (event,) = self.random.choices(list(events), weights=list(events.values()))
        event()
        self.now_s += self.random.choice((0.001, 0.5, 5.0, 60.0, 200.0))
        if self.random.random() < 0.5:
            self.deliver()
            self.now_s += 0.001
        self.cycle()

    def change_visible(self, address: str) -> None:
        self.visible ^= {(address, self.random.choice(OF_CHECKS))}

    def reload(self) -> None:
        """Load the driver again: as a module with another name, whose folder has another inode number."""
        self.module = f"driver{len(os.listdir(self.modules)) if self.modules.exists() else 0}"
        (self.modules / self.module).mkdir(parents=True)
        self.load = str((self.modules / self.module).stat().st_ino)

    def clear(self, address: str) -> None:
        """Write a manual clear of the device's events, which the next cycle reads."""
        clear = cleared(self.now_s, address, uuid=self.uuids[address], boot=f"boot-{self.boot}")
        marks.clear_events(str(self.state_dir), clear)
        self.truth[address].recoveries.append(("cleared", self.now_s))

    def jump(self) -> None:
        """Set the wall clock to another time."""
        self.wall_s += self.random.uniform(-1e8, 1e8)

    def judge(self) -> None:
        shown = self.shown()
        for address, truth in self.truth.items():
            found = {cause for one, cause in (*self.visible, *self.probed) if one == address}
            assert shown[address] == truth.lasting(self.now_s) | found, address

    def shown(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}

        def check(inventories: dict[str, Inventory]) -> None:
            for one in inventories["nvidia"].accelerators:
                found[one.address] = {cause.cause for cause in one.causes}
                assert (one.health == "unhealthy") == bool(one.causes)

        self.tracker.show(check)
        return found


@pytest.mark.parametrize("seed", range(12))
def test_a_device_is_unhealthy_exactly_while_a_cause_lasts(seed: int, tmp_path: Path) -> None:
    machine = Machine(tmp_path, seed)
    for _ in range(400):
        machine.step()
        machine.judge()
