"""Stats are read on demand only, once for several callers, and with a limited wait."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from support.daemon.threads import beside
from support.waiting import PATIENCE_S, until

from cdigen.daemon.stats import MAX_WAITING, PENDING, StatsReader, VendorStats
from cdigen.host.root import Root
from cdigen.model.errors import ConfigError
from cdigen.model.inventory import Accelerator, Driver, Inventory
from cdigen.model.stats import DeviceStats
from cdigen.service.polling import FRESH_S
from cdigen.vendors.context import DiscoveryContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdigen.vendors.base import ReadStats

STATS = (DeviceStats(address="0000:65:00.0", memory_used=1),)


class VendorStatsDouble:
    """A vendor's code that returns stats as slowly as the test requires."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.may_return = threading.Event()
        self.may_return.set()

    def stats(self, _context: DiscoveryContext, _inventory: Inventory) -> tuple[DeviceStats, ...]:
        self.reads += 1
        self.may_return.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return STATS


class Case:
    """A reader of stats, with doubles of two vendors and a clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.vendors = {"nvidia": VendorStatsDouble(), "amd": VendorStatsDouble()}
        self.context_error: ConfigError | None = None
        self.reader = StatsReader(self.context, stats_of=self.stats_of, clock=lambda: self.now_s)
        self.reader.update({"nvidia": inventory("nvidia")})

    def stats_of(self, vendor: str) -> ReadStats | None:
        double = self.vendors.get(vendor)
        return double.stats if double else None

    def context(self) -> DiscoveryContext:
        if self.context_error is not None:
            raise self.context_error
        root = Root("/")
        return DiscoveryContext(host=root, driver=root, dev=root)


@pytest.fixture
def case() -> Iterator[Case]:
    made = Case()
    yield made
    made.reader.close()
    for vendor_double in made.vendors.values():
        vendor_double.may_return.set()


def inventory(vendor: str, *, devices: int = 1) -> Inventory:
    gpu = Accelerator(index=0, address="0000:65:00.0", model="", uuid=None, minor=0, nodes=(), usable=True)
    return Inventory(
        vendor=vendor,
        driver=Driver(version="1", flavour="open", architecture="x86_64"),
        accelerators=(gpu,) * devices,
        nodes=(),
        files=(),
        searched=(),
        findings=(),
    )


def both(case: Case) -> None:
    case.reader.update({"nvidia": inventory("nvidia"), "amd": inventory("amd")})


def test_no_vendor_is_read_without_a_caller(case: Case) -> None:
    both(case)
    assert [vendor_double.reads for vendor_double in case.vendors.values()] == [0, 0]
    assert not [each for each in threading.enumerate() if each.name.startswith("stats-")]


def test_a_result_has_every_vendor_that_reads_stats(case: Case) -> None:
    case.reader.update({name: inventory(name) for name in ("nvidia", "amd", "other")})
    first, second = case.reader.read(PATIENCE_S)
    assert (first.vendor, first.devices, first.problem) == ("nvidia", STATS, "")
    assert second.vendor == "amd"
    assert first.at_s == pytest.approx(time.time(), abs=PATIENCE_S)


def test_a_vendor_without_devices_is_not_read(case: Case) -> None:
    case.reader.update({"nvidia": inventory("nvidia", devices=0)})
    assert case.reader.read(PATIENCE_S) == ()


def test_a_fresh_result_is_reused(case: Case) -> None:
    for _ in range(3):
        case.reader.read(PATIENCE_S)
    case.now_s += FRESH_S - 0.1
    case.reader.read(PATIENCE_S)
    assert case.vendors["nvidia"].reads == 1
    case.now_s += 0.2
    case.reader.read(PATIENCE_S)
    assert case.vendors["nvidia"].reads == 2


def test_two_concurrent_callers_get_the_same_result(case: Case) -> None:
    vendor_double = case.vendors["nvidia"]
    vendor_double.may_return.clear()
    results: list[tuple[VendorStats, ...]] = []
    with beside(lambda: results.append(case.reader.read(PATIENCE_S)), count=2):
        assert until(lambda: vendor_double.reads)
        vendor_double.may_return.set()
    assert vendor_double.reads == 1
    assert len(results) == 2
    assert results[0] == results[1]
    assert results[0][0].devices == STATS


def test_stats_of_a_hanging_vendor_are_unknown_and_no_other_vendor_is_delayed(case: Case) -> None:
    both(case)
    case.vendors["nvidia"].may_return.clear()

    def amd_responds() -> bool:
        nvidia, amd = case.reader.read(0.05)
        assert nvidia == VendorStats(vendor="nvidia", problem=PENDING)
        return amd.devices == STATS

    for _ in range(5):
        assert until(amd_responds)
        case.now_s += FRESH_S
    # A single thread hangs, independent of the number of callers. The other vendor is read again.
    assert case.vendors["nvidia"].reads == 1
    assert case.vendors["amd"].reads == 5


def test_a_late_result_is_returned_to_the_next_caller(case: Case) -> None:
    vendor_double = case.vendors["nvidia"]
    vendor_double.may_return.clear()
    assert case.reader.read(0.0)[0].problem == PENDING
    vendor_double.may_return.set()
    assert until(lambda: case.reader.read(0.0)[0].devices == STATS)
    assert vendor_double.reads == 1


def test_while_a_read_runs_the_previous_result_is_returned(case: Case) -> None:
    vendor_double = case.vendors["nvidia"]
    case.reader.read(PATIENCE_S)
    vendor_double.may_return.clear()
    case.now_s += FRESH_S + 5
    assert case.reader.read(0.0, stale_s=30)[0].devices == STATS
    assert case.reader.read(0.0)[0].problem == PENDING
    case.now_s += 30
    assert case.reader.read(0.0, stale_s=30)[0].problem == PENDING


def test_the_number_of_waiting_callers_is_limited(case: Case) -> None:
    vendor_double = case.vendors["nvidia"]
    vendor_double.may_return.clear()
    with beside(case.reader.read, PATIENCE_S, count=MAX_WAITING) as waiting:
        assert until(lambda: case.reader._poller._waiting == MAX_WAITING)
        # This call returns while the earlier callers still wait.
        assert case.reader.read(2 * PATIENCE_S)[0].problem == PENDING
        assert all(thread.is_alive() for thread in waiting)
        vendor_double.may_return.set()
    assert case.reader.read(PATIENCE_S)[0].devices == STATS


def test_the_end_of_the_daemon_ends_all_waits(case: Case) -> None:
    case.vendors["nvidia"].may_return.clear()
    with beside(case.reader.read, PATIENCE_S) as (thread,):
        assert until(lambda: case.vendors["nvidia"].reads)
        case.reader.close()
        thread.join(PATIENCE_S / 2)
        assert not thread.is_alive()


def test_a_defect_in_a_vendors_code_affects_only_that_vendor(case: Case) -> None:
    both(case)
    case.vendors["nvidia"].error = KeyError("x")
    nvidia, amd = case.reader.read(PATIENCE_S)
    assert nvidia.problem == "the code for nvidia failed: KeyError: 'x'"
    assert amd.devices == STATS


def test_a_missing_driver_root_is_reported(case: Case) -> None:
    case.context_error = ConfigError("there is no /run/nvidia/driver")
    assert case.reader.read(PATIENCE_S)[0].problem == "there is no /run/nvidia/driver"
