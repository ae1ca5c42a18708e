"""Figures on demand: asked once for a burst, by nobody when nobody asks, and never waited for too long."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.daemon.threads import beside
from support.waiting import PATIENCE_S, until

from cdigen.daemon.figures import FRESH_S, MAX_WAITING, PENDING, FiguresOnDemand, VendorFigures
from cdigen.host.root import Root
from cdigen.model.errors import ConfigError
from cdigen.model.figures import DeviceFigures
from cdigen.model.inventory import Accelerator, Driver, Inventory
from cdigen.vendors.base import DiscoveryContext

if TYPE_CHECKING:
    from collections.abc import Iterator

TOLD = (DeviceFigures(address="0000:65:00.0", memory_used=1),)


class Teller:
    """A vendor's health that tells figures, as slowly as the test wants."""

    CAUSES = ()

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.let_go = threading.Event()
        self.let_go.set()

    def figures(self, _context: DiscoveryContext, _inventory: Inventory) -> tuple[DeviceFigures, ...]:
        self.asked += 1
        self.let_go.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return TOLD


class Desk:
    """Figures of vendors that the test plays, by a clock that it moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.tellers = {"nvidia": Teller(), "amd": Teller()}
        self.context_error: ConfigError | None = None
        self.figures = FiguresOnDemand(self.context, health=self.tellers.get, clock=lambda: self.now_s)  # type: ignore[arg-type]
        self.figures.show({"nvidia": inventory("nvidia")})

    def context(self) -> DiscoveryContext:
        if self.context_error is not None:
            raise self.context_error
        root = Root("/")
        return DiscoveryContext(host=root, driver=root, dev=root)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.figures.close()
    for teller in made.tellers.values():
        teller.let_go.set()


def inventory(vendor: str, *, devices: int = 1) -> Inventory:
    gpu = Accelerator(index=0, address="0000:65:00.0", model="", uuid=None, minor=0, nodes=(), usable=True)
    return Inventory(
        vendor=vendor,
        driver=Driver(version="1", flavour="open", architecture="x86_64"),
        accelerators=(gpu,) * devices,
        nodes=(),
        files=(),
        sought=(),
        findings=(),
    )


def both(desk: Desk) -> None:
    desk.figures.show({"nvidia": inventory("nvidia"), "amd": inventory("amd")})


def test_nobody_is_asked_while_nobody_asks(desk: Desk) -> None:
    both(desk)
    assert [teller.asked for teller in desk.tellers.values()] == [0, 0]
    assert not [each for each in threading.enumerate() if each.name.startswith("figures-")]


def test_an_answer_has_every_vendor_that_tells_figures(desk: Desk) -> None:
    desk.figures.show({name: inventory(name) for name in ("nvidia", "amd", "other")})
    first, second = desk.figures.ask(PATIENCE_S)
    assert (first.vendor, first.devices, first.problem) == ("nvidia", TOLD, "")
    assert second.vendor == "amd"
    assert first.at_s == pytest.approx(time.time(), abs=PATIENCE_S)


def test_a_vendor_without_devices_is_not_asked(desk: Desk) -> None:
    desk.figures.show({"nvidia": inventory("nvidia", devices=0)})
    assert desk.figures.ask(PATIENCE_S) == ()


def test_an_answer_is_good_for_a_while(desk: Desk) -> None:
    for _ in range(3):
        desk.figures.ask(PATIENCE_S)
    desk.now_s += FRESH_S - 0.1
    desk.figures.ask(PATIENCE_S)
    assert desk.tellers["nvidia"].asked == 1
    desk.now_s += 0.2
    desk.figures.ask(PATIENCE_S)
    assert desk.tellers["nvidia"].asked == 2


def test_two_that_ask_at_once_get_one_answer(desk: Desk) -> None:
    teller = desk.tellers["nvidia"]
    teller.let_go.clear()
    answers: list[tuple[VendorFigures, ...]] = []
    with beside(lambda: answers.append(desk.figures.ask(PATIENCE_S)), count=2):
        assert until(lambda: teller.asked)
        teller.let_go.set()
    assert teller.asked == 1
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert answers[0][0].devices == TOLD


def test_a_vendor_that_hangs_is_unknown_and_costs_no_other_its_figures(desk: Desk) -> None:
    both(desk)
    desk.tellers["nvidia"].let_go.clear()

    def amd_tells() -> bool:
        nvidia, amd = desk.figures.ask(0.05)
        assert nvidia == VendorFigures(vendor="nvidia", problem=PENDING)
        return amd.devices == TOLD

    for _ in range(5):
        assert until(amd_tells)
        desk.now_s += FRESH_S
    # One thread hangs, however often somebody asks; the other vendor goes on being asked.
    assert desk.tellers["nvidia"].asked == 1
    assert desk.tellers["amd"].asked == 5


def test_an_answer_that_came_too_late_is_there_for_the_next(desk: Desk) -> None:
    teller = desk.tellers["nvidia"]
    teller.let_go.clear()
    assert desk.figures.ask(0.0)[0].problem == PENDING
    teller.let_go.set()
    assert until(lambda: desk.figures.ask(0.0)[0].devices == TOLD)
    assert teller.asked == 1


def test_while_a_new_answer_is_awaited_an_old_one_may_do(desk: Desk) -> None:
    teller = desk.tellers["nvidia"]
    desk.figures.ask(PATIENCE_S)
    teller.let_go.clear()
    desk.now_s += FRESH_S + 5
    assert desk.figures.ask(0.0, stale_s=30)[0].devices == TOLD
    assert desk.figures.ask(0.0)[0].problem == PENDING
    desk.now_s += 30
    assert desk.figures.ask(0.0, stale_s=30)[0].problem == PENDING


def test_of_many_that_ask_only_some_wait(desk: Desk) -> None:
    teller = desk.tellers["nvidia"]
    teller.let_go.clear()
    with beside(desk.figures.ask, PATIENCE_S, count=MAX_WAITING) as waiting:
        assert until(lambda: desk.figures._waiting == MAX_WAITING)
        # It is answered while the others, who began earlier, still wait.
        assert desk.figures.ask(2 * PATIENCE_S)[0].problem == PENDING
        assert all(thread.is_alive() for thread in waiting)
        teller.let_go.set()
    assert desk.figures.ask(PATIENCE_S)[0].devices == TOLD


def test_the_end_of_the_daemon_lets_go_who_waits(desk: Desk) -> None:
    desk.tellers["nvidia"].let_go.clear()
    with beside(desk.figures.ask, PATIENCE_S) as (thread,):
        assert until(lambda: desk.tellers["nvidia"].asked)
        desk.figures.close()
        thread.join(PATIENCE_S / 2)
        assert not thread.is_alive()


def test_a_defect_of_a_vendors_code_is_its_problem_alone(desk: Desk) -> None:
    both(desk)
    desk.tellers["nvidia"].error = KeyError("x")
    nvidia, amd = desk.figures.ask(PATIENCE_S)
    assert nvidia.problem == "cdigen's code failed: KeyError('x')"
    assert amd.devices == TOLD


def test_a_driver_root_that_is_gone_is_told(desk: Desk) -> None:
    desk.context_error = ConfigError("there is no /run/nvidia/driver")
    assert desk.figures.ask(PATIENCE_S)[0].problem == "there is no /run/nvidia/driver"
