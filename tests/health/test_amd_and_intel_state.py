"""Log lines, uevents and counters of AMD's and Intel's devices set and clear causes in the inventory."""

from __future__ import annotations

import pytest
from support.values.health_devices import FIRST
from support.values.health_scenario import HealthScenario

from cdigen.model.health import Measurement


def scenario_of(vendor: str) -> HealthScenario:
    return HealthScenario(vendor, "amdgpu_xcp_0")


def causes(scenario: HealthScenario, time_s: float) -> set[str]:
    """Return the first GPU's causes; fail if its partition has other causes or the second GPU has causes."""
    first, second, part = scenario.causes(time_s)
    assert (second, part) == (set(), first)
    return first


# Log lines of the driver xe.
WEDGED = f"xe {FIRST}: [drm] *ERROR* CRITICAL: Xe has declared device {FIRST} as wedged."
INITIALIZED = f"xe {FIRST}: [drm] Initialized xe 1.1.0 for {FIRST} on minor 1"


# Logs of Linux 6.12 to 6.18 (drm/amd issues, mailing lists), without irrelevant lines.
def amdgpu(text: str) -> str:
    return f"amdgpu {FIRST}: amdgpu: {text}"


def test_a_gpu_is_unhealthy_during_its_reset_and_healthy_afterwards() -> None:
    scenario = scenario_of("amd")
    scenario.log(100.0, amdgpu("ring gfx_0.0.0 timeout"), amdgpu("GPU reset begin!. Source:  1"))
    assert causes(scenario, 102.0) == {"amdgpu-resetting"}
    scenario.log(110.0, amdgpu("GPU reset succeeded, trying to resume"), amdgpu("GPU reset(1) succeeded!"))
    assert causes(scenario, 112.0) == set()


def test_a_gpu_whose_reset_failed_stays_unhealthy_until_the_driver_is_bound_again() -> None:
    scenario = scenario_of("amd")
    scenario.log(
        100.0,
        amdgpu("GPU reset begin!. Source:  1"),
        amdgpu("device lost from bus!"),
        amdgpu("GPU reset end with ret = -19"),
    )
    expected = {"amdgpu-resetting", "amdgpu-lost", "amdgpu-reset-failed"}
    assert causes(scenario, 100_000.0) == expected
    scenario.uevent(100_001.0, "pci", "bind", DRIVER="amdgpu")
    assert causes(scenario, 100_002.0) == set()


def test_a_reset_of_a_ring_and_a_skipped_reset_do_not_clear_an_uncorrectable_error() -> None:
    scenario = scenario_of("amd")
    scenario.log(100.0, amdgpu("2 new uncorrectable hardware errors detected in umc block"))
    scenario.log(
        110.0, amdgpu("Ring comp_1.1.0 reset succeeded"),
        f"amdgpu {FIRST}: [drm] device wedged, but recovered through reset",
    )  # fmt: skip
    scenario.uevent(110.5, "drm", "change", WEDGED="none")
    scenario.log(
        120.0, amdgpu("GPU reset begin!. Source:  1"),
        amdgpu("Guilty job already signaled, skipping HW reset"), amdgpu("GPU reset(1) succeeded!"),
    )  # fmt: skip
    assert causes(scenario, 100_000.0) == {"amdgpu-uncorrectable-error"}
    scenario.log(100_001.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"))
    scenario.log(100_010.0, amdgpu("GPU reset(2) succeeded!"))
    assert causes(scenario, 100_012.0) == set()


def test_a_hardware_reset_whose_resume_fails_is_a_failed_reset() -> None:
    scenario = scenario_of("amd")
    scenario.log(
        100.0, amdgpu("GPU reset begin!"), amdgpu("GPU reset succeeded, trying to resume"),
        amdgpu("GPU reset(3) failed"), amdgpu("GPU reset end with ret = -62"),
    )  # fmt: skip
    assert "amdgpu-reset-failed" in causes(scenario, 100_000.0)


def test_the_first_value_of_a_ras_counter_is_no_cause_and_a_rise_is_a_cause() -> None:
    def errors(value: int) -> Measurement:
        return Measurement(
            cause="amdgpu-uncorrectable-error", address=FIRST, what="uncorrectable errors of umc",
            value=value, worse="higher",
        )  # fmt: skip

    scenario = scenario_of("amd")
    scenario.measure(100.0, errors(4))
    scenario.measure(700.0, errors(4))
    assert causes(scenario, 701.0) == set()
    scenario.measure(1300.0, errors(5))
    scenario.measure(1900.0, errors(5))
    assert causes(scenario, 100_000.0) == {"amdgpu-uncorrectable-error"}
    scenario.log(100_001.0, amdgpu("GPU reset succeeded, trying to resume"))
    assert causes(scenario, 100_003.0) == set()


def test_a_gpu_that_xe_declared_wedged_is_healthy_after_a_rebind() -> None:
    scenario = scenario_of("intel")
    scenario.log(100.0, WEDGED, f"xe {FIRST}: [drm] device wedged, needs recovery")
    scenario.uevent(100.5, "drm", "change", WEDGED="rebind,bus-reset")
    assert causes(scenario, 100_000.0) == {"xe-wedged", "drm-wedged"}
    scenario.log(100_001.0, INITIALIZED)
    assert causes(scenario, 100_003.0) == set()


def test_an_i915_reset_without_an_end_event_is_cleared_after_300_seconds() -> None:
    scenario = scenario_of("intel")
    scenario.uevent(100.0, "drm", "change", ERROR="1")
    scenario.uevent(100.1, "drm", "change", RESET="1")
    assert causes(scenario, 101.0) == {"i915-resetting"}
    assert causes(scenario, 399.0) == {"i915-resetting"}
    assert causes(scenario, 401.0) == set()
    scenario.uevent(500.0, "drm", "change", RESET="1")
    scenario.uevent(500.4, "drm", "change", ERROR="0")
    assert causes(scenario, 501.0) == set()


def test_a_gpu_that_i915_declared_wedged_stays_unhealthy() -> None:
    scenario = scenario_of("intel")
    scenario.uevent(100.0, "drm", "change", RESET="1")
    scenario.log(100.2, f"i915 {FIRST}: [drm] *ERROR* GT0: Failed to reset chip")
    assert causes(scenario, 100_000.0) == {"i915-wedged"}


@pytest.mark.parametrize("source", ["event", "line"])
def test_a_rebind_clears_the_causes_of_a_device_that_was_unbound_meanwhile(
    source: str,
) -> None:
    scenario = scenario_of("intel")
    scenario.log(100.0, WEDGED)
    scenario.unbind(110.0)
    if source == "event":
        scenario.uevent(120.0, "pci", "bind", DRIVER="xe")
    else:
        scenario.log(120.0, INITIALIZED)
    scenario.rebind(122.0)
    assert causes(scenario, 123.0) == set()


def test_an_error_during_a_bind_belongs_to_the_device_that_is_found_afterwards() -> None:
    scenario = scenario_of("intel")
    scenario.unbind(100.0)
    scenario.log(110.0, WEDGED)
    scenario.rebind(112.0)
    assert causes(scenario, 113.0) == {"xe-wedged"}


def test_a_bind_to_vfio_clears_no_cause() -> None:
    scenario = scenario_of("intel")
    scenario.log(100.0, WEDGED)
    scenario.uevent(110.0, "pci", "bind", DRIVER="vfio-pci")
    assert causes(scenario, 111.0) == {"xe-wedged"}
