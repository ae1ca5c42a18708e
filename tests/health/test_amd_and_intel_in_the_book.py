"""AMD's and Intel's devices from lines, uevents and counters to the inventory."""

from __future__ import annotations

import pytest
from support.values.health_course import Course
from support.values.health_devices import FIRST

from cdigen.model.health import Measurement


def course_of(vendor: str) -> Course:
    return Course(vendor, "amdgpu_xcp_0")


def causes(course: Course, time_s: float) -> set[str]:
    """Return the causes of the first GPU, which are those of its partition; the second GPU has none."""
    first, second, part = course.causes(time_s)
    assert (second, part) == (set(), first)
    return first


# Lines of xe.
WEDGED = f"xe {FIRST}: [drm] *ERROR* CRITICAL: Xe has declared device {FIRST} as wedged."
INITIALIZED = f"xe {FIRST}: [drm] Initialized xe 1.1.0 for {FIRST} on minor 1"


# Logs of Linux 6.12 to 6.18 (drm/amd issues, mailing lists), without the lines that nobody reads.
def amdgpu(text: str) -> str:
    return f"amdgpu {FIRST}: amdgpu: {text}"


def test_a_gpu_is_unhealthy_while_it_is_reset_and_well_afterwards() -> None:
    course = course_of("amd")
    course.hear(100.0, amdgpu("ring gfx_0.0.0 timeout"), amdgpu("GPU reset begin!. Source:  1"))
    assert causes(course, 102.0) == {"amdgpu-resetting"}
    course.hear(110.0, amdgpu("GPU reset succeeded, trying to resume"), amdgpu("GPU reset(1) succeeded!"))
    assert causes(course, 112.0) == set()


def test_a_gpu_that_cannot_be_reset_stays_unhealthy_until_the_driver_takes_it_anew() -> None:
    course = course_of("amd")
    course.hear(
        100.0,
        amdgpu("GPU reset begin!. Source:  1"),
        amdgpu("device lost from bus!"),
        amdgpu("GPU reset end with ret = -19"),
    )
    expected = {"amdgpu-resetting", "amdgpu-lost", "amdgpu-reset-failed"}
    assert causes(course, 100_000.0) == expected
    course.notice(100_001.0, "pci", "bind", DRIVER="amdgpu")
    assert causes(course, 100_002.0) == set()


def test_an_uncorrectable_error_outlasts_the_reset_of_a_ring_and_a_reset_that_was_skipped() -> None:
    course = course_of("amd")
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
    assert causes(course, 100_000.0) == {"amdgpu-uncorrectable-error"}
    course.hear(100_001.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"))
    course.hear(100_010.0, amdgpu("GPU reset(2) succeeded!"))
    assert causes(course, 100_012.0) == set()


def test_a_reset_of_the_hardware_after_which_nothing_works_is_a_failure() -> None:
    course = course_of("amd")
    course.hear(
        100.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"),
        amdgpu("GPU reset(3) failed"), amdgpu("GPU reset end with ret = -62"),
    )  # fmt: skip
    assert "amdgpu-reset-failed" in causes(course, 100_000.0)


def test_errors_that_the_counters_of_ras_had_before_count_for_nothing_and_later_ones_do() -> None:
    def errors(value: int) -> Measurement:
        return Measurement(
            cause="amdgpu-uncorrectable-error", address=FIRST, what="uncorrectable errors of umc",
            value=value, worse="higher",
        )  # fmt: skip

    course = course_of("amd")
    course.measure(100.0, errors(4))
    course.measure(700.0, errors(4))
    assert causes(course, 701.0) == set()
    course.measure(1300.0, errors(5))
    course.measure(1900.0, errors(5))
    assert causes(course, 100_000.0) == {"amdgpu-uncorrectable-error"}
    course.hear(100_001.0, amdgpu("GPU reset succeeded, trying to resume"))
    assert causes(course, 100_003.0) == set()


def test_a_gpu_that_xe_gave_up_is_well_when_it_is_bound_anew() -> None:
    course = course_of("intel")
    course.hear(100.0, WEDGED, f"xe {FIRST}: [drm] device wedged, needs recovery")
    course.notice(100.5, "drm", "change", WEDGED="rebind,bus-reset")
    assert causes(course, 100_000.0) == {"xe-wedged", "drm-wedged"}
    course.hear(100_001.0, INITIALIZED)
    assert causes(course, 100_003.0) == set()


def test_a_reset_by_i915_that_nobody_heard_the_end_of_is_over_after_a_while() -> None:
    course = course_of("intel")
    course.notice(100.0, "drm", "change", ERROR="1")
    course.notice(100.1, "drm", "change", RESET="1")
    assert causes(course, 101.0) == {"i915-resetting"}
    assert causes(course, 399.0) == {"i915-resetting"}
    assert causes(course, 401.0) == set()
    course.notice(500.0, "drm", "change", RESET="1")
    course.notice(500.4, "drm", "change", ERROR="0")
    assert causes(course, 501.0) == set()


def test_a_gpu_that_i915_gave_up_stays_so() -> None:
    course = course_of("intel")
    course.notice(100.0, "drm", "change", RESET="1")
    course.hear(100.2, f"i915 {FIRST}: [drm] *ERROR* GT0: Failed to reset chip")
    assert causes(course, 100_000.0) == {"i915-wedged"}


@pytest.mark.parametrize("said", ["event", "line"])
def test_a_driver_that_is_bound_anew_clears_causes_though_the_device_was_not_found_meanwhile(
    said: str,
) -> None:
    course = course_of("intel")
    course.hear(100.0, WEDGED)
    course.unbind(110.0)
    if said == "event":
        course.notice(120.0, "pci", "bind", DRIVER="xe")
    else:
        course.hear(120.0, INITIALIZED)
    course.rebind(122.0)
    assert causes(course, 123.0) == set()


def test_what_a_driver_says_while_it_is_bound_is_kept_for_the_device_that_is_found_then() -> None:
    course = course_of("intel")
    course.unbind(100.0)
    course.hear(110.0, WEDGED)
    course.rebind(112.0)
    assert causes(course, 113.0) == {"xe-wedged"}


def test_a_driver_of_vfio_mends_nothing() -> None:
    course = course_of("intel")
    course.hear(100.0, WEDGED)
    course.notice(110.0, "pci", "bind", DRIVER="vfio-pci")
    assert causes(course, 111.0) == {"xe-wedged"}
