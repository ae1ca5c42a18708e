"""AMD's and Intel's devices from lines, uevents and counters to the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.values.health_devices import FIRST, SECOND, at, gpu, inventory, partition

from cdigen.health.advance import advance
from cdigen.health.annotate import annotated
from cdigen.health.book import Book, Heard, Looked, Policy, Seen
from cdigen.model.health import DeviceEvent, LogRecord, Look, Measurement
from cdigen.value import replace
from cdigen.vendors import registry

if TYPE_CHECKING:
    from cdigen.model.inventory import Inventory


class Course:
    """A book of a vendor's two GPUs, the first of them split, and what it is told."""

    def __init__(self, vendor: str) -> None:
        health = registry.health(vendor)
        assert health is not None
        self._health, self._vendor = health, vendor
        found: Inventory = inventory(
            gpu(FIRST, partitions=(partition("amdgpu_xcp_0"),)), gpu(SECOND, uuid="GPU-2")
        )["nvidia"]
        self._host = {vendor: replace(found, vendor=vendor)}
        self._policy = Policy(rules={(vendor, rule.cause): rule for rule in health.CAUSES})
        self._book = advance(Book(boot="b"), Seen(inventories=self._host), at(0.0), self._policy)
        self._sequence = 0
        self.look(1.0)

    def hear(self, time_s: float, *texts: str) -> None:
        for place, text in enumerate(texts):
            self._sequence += 1
            record = LogRecord(sequence=self._sequence, at_s=time_s + place / 1000, text=text)
            told = self._health.heard(record, self._host[self._vendor])
            event = Heard(vendor=self._vendor, sequence=self._sequence, told=told)
            self._book = advance(self._book, event, at(time_s + 1), self._policy)

    def notice(self, time_s: float, subsystem: str, action: str, **properties: str) -> None:
        event = DeviceEvent(
            subsystem=subsystem, action=action, address=FIRST, at_s=time_s,
            properties=tuple(properties.items()),
        )  # fmt: skip
        told = self._health.noticed(event, self._host[self._vendor])
        heard = Heard(vendor=self._vendor, sequence=self._sequence, told=told)
        self._book = advance(self._book, heard, at(time_s), self._policy)

    def unbind(self, time_s: float) -> None:
        """Take the first GPU's driver away, so that discovery does not find it, until ``rebound``."""
        whole = self._host[self._vendor]
        self._whole = self._host
        self._host = {self._vendor: replace(whole, accelerators=whole.accelerators[1:])}
        self._book = advance(self._book, Seen(inventories=self._host), at(time_s), self._policy)

    def rebound(self, time_s: float) -> None:
        """Let discovery find the first GPU again."""
        self._host = self._whole
        self._book = advance(self._book, Seen(inventories=self._host), at(time_s), self._policy)

    def look(self, time_s: float, *measurements: Measurement, source: str = "files") -> None:
        look = Look(source=source, covered=(FIRST, SECOND), measurements=measurements)  # type: ignore[arg-type]
        looked = Looked(vendor=self._vendor, look=look, began_s=time_s)
        self._book = advance(self._book, looked, at(time_s), self._policy)

    def causes(self, time_s: float) -> set[str]:
        """Return the causes of the first GPU at TIME_S; the second has none, and the partition its GPU's."""
        self.look(time_s)
        first, second = annotated(self._book, (), self._host, self._policy)[self._vendor].accelerators
        assert second.health == "healthy"
        assert first.partitions[0].causes == first.causes
        return {one.cause for one in first.causes}


# Logs of Linux 6.12 to 6.18 (drm/amd issues, mailing lists), without the lines that nobody reads.
def amdgpu(text: str) -> str:
    return f"amdgpu {FIRST}: amdgpu: {text}"


def test_a_gpu_is_unhealthy_while_it_is_reset_and_well_afterwards() -> None:
    course = Course("amd")
    course.hear(100.0, amdgpu("ring gfx_0.0.0 timeout"), amdgpu("GPU reset begin!. Source:  1"))
    assert course.causes(102.0) == {"amdgpu-resetting"}
    course.hear(110.0, amdgpu("GPU reset succeeded, trying to resume"), amdgpu("GPU reset(1) succeeded!"))
    assert course.causes(112.0) == set()


def test_a_gpu_that_cannot_be_reset_stays_unhealthy_until_the_driver_takes_it_anew() -> None:
    course = Course("amd")
    course.hear(
        100.0,
        amdgpu("GPU reset begin!. Source:  1"),
        amdgpu("device lost from bus!"),
        amdgpu("GPU reset end with ret = -19"),
    )
    expected = {"amdgpu-resetting", "amdgpu-lost", "amdgpu-reset-failed"}
    assert course.causes(100_000.0) == expected
    course.notice(100_001.0, "pci", "bind", DRIVER="amdgpu")
    assert course.causes(100_002.0) == set()


def test_an_uncorrectable_error_outlasts_the_reset_of_a_ring_and_a_reset_that_was_skipped() -> None:
    course = Course("amd")
    course.hear(100.0, amdgpu("2 new uncorrectable hardware errors detected in umc block"))
    course.hear(
        110.0, amdgpu("Ring comp_1.1.0 reset succeeded"),
        f"amdgpu {FIRST}: [drm] device wedged, but recovered through reset",
    )  # fmt: skip
    course.notice(110.5, "drm", "change", WEDGED="none")
    course.hear(
        120.0, amdgpu("GPU reset begin!. Source:  1"),
        amdgpu("Guilty job already signaled, skipping HW reset"), amdgpu("GPU reset(1) succeeded!"),
    )  # fmt: skip
    assert course.causes(100_000.0) == {"amdgpu-uncorrectable-error"}
    course.hear(100_001.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"))
    course.hear(100_010.0, amdgpu("GPU reset(2) succeeded!"))
    assert course.causes(100_012.0) == set()


def test_a_reset_of_the_hardware_after_which_nothing_works_is_a_failure() -> None:
    course = Course("amd")
    course.hear(
        100.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"),
        amdgpu("GPU reset(3) failed"), amdgpu("GPU reset end with ret = -62"),
    )  # fmt: skip
    assert "amdgpu-reset-failed" in course.causes(100_000.0)


def test_errors_that_the_counters_of_ras_had_before_count_for_nothing_and_later_ones_do() -> None:
    def errors(value: int) -> Measurement:
        return Measurement(
            cause="amdgpu-uncorrectable-error", address=FIRST, what="uncorrectable errors of umc",
            value=value, worse="higher",
        )  # fmt: skip

    course = Course("amd")
    course.look(100.0, errors(4), source="probe")
    course.look(700.0, errors(4), source="probe")
    assert course.causes(701.0) == set()
    course.look(1300.0, errors(5), source="probe")
    course.look(1900.0, errors(5), source="probe")
    assert course.causes(100_000.0) == {"amdgpu-uncorrectable-error"}
    course.hear(100_001.0, amdgpu("GPU reset succeeded, trying to resume"))
    assert course.causes(100_003.0) == set()


def test_a_gpu_that_xe_gave_up_is_well_when_it_is_bound_anew() -> None:
    course = Course("intel")
    course.hear(
        100.0, f"xe {FIRST}: [drm] *ERROR* CRITICAL: Xe has declared device {FIRST} as wedged.",
        f"xe {FIRST}: [drm] device wedged, needs recovery",
    )  # fmt: skip
    course.notice(100.5, "drm", "change", WEDGED="rebind,bus-reset")
    assert course.causes(100_000.0) == {"xe-wedged", "drm-wedged"}
    course.hear(100_001.0, f"xe {FIRST}: [drm] Initialized xe 1.1.0 for {FIRST} on minor 1")
    assert course.causes(100_003.0) == set()


def test_a_reset_by_i915_that_nobody_heard_the_end_of_is_over_after_a_while() -> None:
    course = Course("intel")
    course.notice(100.0, "drm", "change", ERROR="1")
    course.notice(100.1, "drm", "change", RESET="1")
    assert course.causes(101.0) == {"i915-resetting"}
    assert course.causes(399.0) == {"i915-resetting"}
    assert course.causes(401.0) == set()
    course.notice(500.0, "drm", "change", RESET="1")
    course.notice(500.4, "drm", "change", ERROR="0")
    assert course.causes(501.0) == set()


def test_a_gpu_that_i915_gave_up_stays_so() -> None:
    course = Course("intel")
    course.notice(100.0, "drm", "change", RESET="1")
    course.hear(100.2, f"i915 {FIRST}: [drm] *ERROR* GT0: Failed to reset chip")
    assert course.causes(100_000.0) == {"i915-wedged"}


WEDGED = f"xe {FIRST}: [drm] *ERROR* CRITICAL: Xe has declared device {FIRST} as wedged."


def test_a_driver_that_is_bound_anew_clears_causes_though_the_device_was_not_found_meanwhile() -> None:
    for said in ("event", "line"):
        course = Course("intel")
        course.hear(100.0, WEDGED)
        course.unbind(110.0)
        if said == "event":
            course.notice(120.0, "pci", "bind", DRIVER="xe")
        else:
            course.hear(120.0, f"xe {FIRST}: [drm] Initialized xe 1.1.0 for {FIRST} on minor 1")
        course.rebound(122.0)
        assert course.causes(123.0) == set(), said


def test_what_a_driver_says_while_it_is_bound_is_kept_for_the_device_that_is_found_then() -> None:
    course = Course("intel")
    course.unbind(100.0)
    course.hear(110.0, WEDGED)
    course.rebound(112.0)
    assert course.causes(113.0) == {"xe-wedged"}


def test_a_driver_of_vfio_mends_nothing() -> None:
    course = Course("intel")
    course.hear(100.0, WEDGED)
    course.notice(110.0, "pci", "bind", DRIVER="vfio-pci")
    assert course.causes(111.0) == {"xe-wedged"}
