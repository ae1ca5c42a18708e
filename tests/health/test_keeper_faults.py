"""A long run of random faults: no device is healthy while a cause lasts, nor unhealthy afterwards."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from support.values.health_devices import (
    FIRST,
    QUIET_S,
    RULES,
    SECOND,
    SilentHealth,
    cleared,
    gpu,
    inventory,
    observe,
)

from cdigen.health import marks
from cdigen.health.keeper import Keeper
from cdigen.model.health import LogRecord, Look, Recovery, Symptom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cdigen.model.health import Clearance
    from cdigen.model.inventory import Inventory
    from cdigen.vendors.base import DiscoveryContext

CLEARED_BY = {rule.cause: rule.cleared_by for rule in RULES}
OF_LOG = ("needs-reset", "needs-reload", "recovers", "quiets", "boots")
OF_LOOKS = ("seen", "seen-or-reset")
ADDRESSES = (FIRST, SECOND)


class Driver(SilentHealth):
    """A vendor whose driver says what the test wants."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def look(self, context: DiscoveryContext, inventory: Inventory) -> Look:  # noqa: ARG002
        symptoms = (
            Symptom(cause=cause, address=address, detail="it is seen")
            for address, cause in sorted(self._machine.visible)
        )
        return Look(source="files", covered=ADDRESSES, symptoms=tuple(symptoms))

    def heard(self, record: LogRecord, inventory: Inventory) -> tuple[Symptom | Recovery, ...]:  # noqa: ARG002
        what, word, address = record.text.split(" ")
        if what == "ill":
            return (Symptom(cause=word, address=address, detail="it is ill", at_s=record.at_s),)
        clearance: Clearance = "reset" if word == "reset" else "reload"
        return (Recovery(clearance=clearance, address=address, detail="", at_s=record.at_s),)

    def load(self, context: DiscoveryContext) -> str:  # noqa: ARG002
        self._machine.loaded_s = self._machine.now_s
        return self._machine.load


class Truth:
    """Everything that has reached the daemon of one device, and by brute force what follows of it."""

    def __init__(self) -> None:
        self.ills: list[tuple[str, float]] = []
        self.words: list[tuple[str, float]] = []
        self.begins_s = 0.0

    def lasting(self, now_s: float) -> set[str]:
        return {cause for cause in OF_LOG if self._lasts(cause, now_s)}

    def _lasts(self, cause: str, now_s: float) -> bool:
        times = [at_s for one, at_s in self.ills if one == cause and at_s >= self.begins_s]
        if not times:
            return False
        last_s = max(times)
        is_quiet = now_s - last_s >= QUIET_S
        said = {word for word, at_s in self.words if at_s > last_s}
        if not is_quiet:
            said -= {"recovered"}
        if any(word == "cleared" and at_s >= last_s for word, at_s in self.words):
            return False
        return said.isdisjoint(CLEARED_BY[cause]) and not (is_quiet and "quiet" in CLEARED_BY[cause])


class Machine:
    """A machine with two devices, its log, and a daemon's keeper that is killed and started again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.state_dir = folder / "state"
        self.now_s, self.wall_s = 1000.0, 1e9
        self.load, self.loaded_s = "a", 0.0
        self.boot = 0
        self.visible: set[tuple[str, str]] = set()
        self.uuids = {address: f"GPU-{address}" for address in ADDRESSES}
        self.ring: list[LogRecord] = []
        self.delivered = 0
        self.truth = {address: Truth() for address in ADDRESSES}
        self.probed: set[tuple[str, str]] = set()
        self.seen_load: tuple[str, float] | None = None
        self.seen_s = self.probed_s = 0.0
        self.keeper = self._keeper()
        self.cycle()

    def _keeper(self) -> Keeper:
        return Keeper(
            health_of=lambda _: Driver(self), boottime_s=lambda: self.now_s, wall_s=lambda: self.wall_s
        )

    # What the daemon does.

    def cycle(self) -> None:
        found = inventory(*(gpu(address, uuid=self.uuids[address]) for address in ADDRESSES))
        observe(self.keeper, found, self.state_dir, f"boot-{self.boot}")
        self._learn_load()
        self.seen_s = self.now_s

    def deliver(self) -> None:
        self.keeper.take_in(self.ring, ())
        if self.ring:
            self._learn_load()
        for record in self.ring[self.delivered :]:
            what, word, address = record.text.split(" ")
            said = self.truth[address].ills if what == "ill" else self.truth[address].words
            said.append((word, record.at_s))
        self.delivered = len(self.ring)

    def _learn_load(self) -> None:
        if self.seen_load is not None and self.seen_load[0] != self.load:
            for truth in self.truth.values():
                truth.words.append(("reload", self.seen_load[1] + 1e-9))
        self.seen_load = (self.load, self.now_s)

    def probe(self) -> None:
        # One probe begins after the last has ended.
        began_s = max(self.now_s - self.random.choice((0.0, 1.0, 60.0)), self.probed_s + 0.0001)
        self.now_s = max(self.now_s, began_s)
        self.probed_s = self.now_s
        address = self.random.choice(ADDRESSES)
        if self.random.random() < 0.3:
            self.probed ^= {(address, "seen")}
        symptoms = tuple(
            Symptom(cause=cause, address=one, detail="probed") for one, cause in sorted(self.probed)
        )
        word = Recovery(clearance="recovered", address=address, detail="")
        look = Look(source="probe", covered=ADDRESSES, symptoms=symptoms, recoveries=(word,))
        self.keeper.probed("nvidia", look, began_s)
        self.truth[address].words.append(("recovered", began_s))

    def restart(self, *, cleanly: bool) -> None:
        if cleanly:
            self.keeper.close()
        file = self.state_dir / "health.json"
        if self.seen_load is not None and file.exists():
            (saved,) = json.loads(file.read_bytes())["vendors"]
            self.seen_load = (str(saved["load"]), float(saved["loaded_s"]))
            self.seen_s = float(saved["seen_s"])
        self.keeper = self._keeper()
        self.cycle()
        self.deliver()

    def tear(self) -> None:
        """Lose the state: all that the log still has is heard again, and no more."""
        text = (self.state_dir / "health.json").read_bytes()
        (self.state_dir / "health.json").write_bytes(text[: self.random.randrange(len(text))])
        for truth in self.truth.values():
            # What people said is in another file.
            truth.ills, truth.begins_s = [], 0.0
            truth.words = [one for one in truth.words if one[0] == "cleared"]
        self.probed.clear()
        self.delivered, self.seen_load = 0, None
        self.keeper = self._keeper()
        self.cycle()
        self.deliver()

    def reboot(self) -> None:
        self.boot += 1
        self.now_s, self.probed_s, self.ring, self.delivered, self.seen_load = 10.0, 0.0, [], 0, None
        self.truth = {address: Truth() for address in ADDRESSES}
        self.visible.clear()
        self.probed.clear()
        self.keeper = self._keeper()
        self.cycle()

    # What happens to it.

    def say(self, text: str) -> None:
        self.ring.append(LogRecord(sequence=len(self.ring) + 1, at_s=self.now_s, text=text))

    def replace_device(self) -> None:
        self.deliver()
        address = self.random.choice(ADDRESSES)
        self.uuids[address] += "x"
        before_s = self.seen_s
        self.truth[address] = Truth()
        self.truth[address].begins_s = before_s
        self.visible = {one for one in self.visible if one[0] != address}
        self.probed = {one for one in self.probed if one[0] != address}
        self.cycle()

    def step(self) -> None:
        """Let one thing happen, then time pass; the daemon hears of it now or later."""
        address = self.random.choice(ADDRESSES)
        happenings: dict[Callable[[], object], float] = {
            lambda: self.say(f"ill {self.random.choice(OF_LOG)} {address}"): 30,
            lambda: self.say(f"well {self.random.choice(('reset', 'reload'))} {address}"): 10,
            self.probe: 15,
            lambda: self.look_changes(address): 10,
            self.reload: 5,
            lambda: self.clear(address): 5,
            self.jump: 5,
            lambda: self.restart(cleanly=self.random.random() < 0.5): 5,
            self.replace_device: 2,
            self.reboot: 0.5,
            self.tear: 1,
            lambda: None: 16,
        }
        (happens,) = self.random.choices(list(happenings), weights=list(happenings.values()))
        happens()
        self.now_s += self.random.choice((0.001, 0.5, 5.0, 60.0, 200.0))
        if self.random.random() < 0.5:
            self.deliver()
            self.now_s += 0.001
        self.cycle()

    def look_changes(self, address: str) -> None:
        self.visible ^= {(address, self.random.choice(OF_LOOKS))}

    def reload(self) -> None:
        self.load += "x"

    def clear(self, address: str) -> None:
        """Let a person say that what happened to the device is over; it is known with the next cycle."""
        word = cleared(self.now_s, address, uuid=self.uuids[address], boot=f"boot-{self.boot}")
        marks.clear_events(str(self.state_dir), word)
        self.truth[address].words.append(("cleared", self.now_s))

    def jump(self) -> None:
        """Set the clock."""
        self.wall_s += self.random.uniform(-1e8, 1e8)

    def judge(self) -> None:
        shown = self.shown()
        for address, truth in self.truth.items():
            seen = {cause for one, cause in (*self.visible, *self.probed) if one == address}
            assert shown[address] == truth.lasting(self.now_s) | seen, address

    def shown(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}

        def look(inventories: dict[str, Inventory]) -> None:
            for one in inventories["nvidia"].accelerators:
                found[one.address] = {cause.cause for cause in one.causes}
                assert (one.health == "unhealthy") == bool(one.causes)

        self.keeper.show(look)
        return found


@pytest.mark.parametrize("seed", range(12))
def test_no_device_is_healthy_while_a_cause_lasts_nor_unhealthy_afterwards(seed: int, tmp_path: Path) -> None:
    machine = Machine(tmp_path, seed)
    for _ in range(400):
        machine.step()
        machine.judge()
