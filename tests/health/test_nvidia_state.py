"""Log lines and probes of NVIDIA's GPUs set and clear causes in the inventory."""

from __future__ import annotations

import pytest
from support.values.health_devices import FIRST, SECOND, gpu, inventory, partition
from support.values.health_scenario import HealthScenario

from cdigen.health.state import DevicesDiscovered, DriverLoaded
from cdigen.model.findings import Finding
from cdigen.model.health import HealthSample, Symptom
from cdigen.model.saved import CONTRADICTION
from cdigen.value import replace


@pytest.fixture
def scenario() -> HealthScenario:
    return HealthScenario("nvidia", "gi5/ci0", "gi6/ci0")


def xid(number: int, *, of: str = FIRST, text: str = "pid=7, name=x, y") -> str:
    return f"NVRM: Xid (PCI:{of.removesuffix('.0')}): {number}, {text}"


def test_an_xid_of_a_gpu_is_a_cause_of_the_gpu_and_its_instances(scenario: HealthScenario) -> None:
    scenario.log(100.0, xid(79))
    assert scenario.causes(101.0) == [{"xid-79"}, set(), {"xid-79"}, {"xid-79"}]


def test_an_xid_of_an_instance_is_a_cause_of_only_this_instance(scenario: HealthScenario) -> None:
    scenario.log(100.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7, name=x, Contained: SM (0x1)")
    assert scenario.causes(101.0) == [set(), set(), {"xid-94"}, set()]
    scenario.log(102.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:06): 95, pid=7, name=x, Uncontained: LTC")
    assert scenario.causes(103.0) == [{"xid-95"}, set(), {"xid-94", "xid-95"}, {"xid-95"}]


def test_an_instance_keeps_its_causes_while_the_kernel_and_nvml_list_different_instances(
    scenario: HealthScenario,
) -> None:
    scenario.log(100.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7, name=x, Contained: SM (0x1)")
    left = inventory(gpu(FIRST, partitions=(partition("gi6/ci0"),)), gpu(SECOND, uuid="GPU-2"))
    finding = Finding(severity="error", rule=CONTRADICTION, path="GPU 0", message="gi5/ci0 is left out")
    scenario.apply(
        110.0, DevicesDiscovered(inventories={"nvidia": replace(left["nvidia"], findings=(finding,))})
    )
    scenario.apply(120.0, DevicesDiscovered(inventories=scenario.host))
    assert scenario.causes(121.0) == [set(), set(), {"xid-94"}, set()]
    scenario.apply(130.0, DevicesDiscovered(inventories=left))
    scenario.apply(140.0, DevicesDiscovered(inventories=scenario.host))
    assert scenario.causes(141.0) == [set(), set(), set(), set()]


def test_a_probe_without_nvml_does_not_clear_causes_from_nvml(scenario: HealthScenario) -> None:
    symptom = Symptom(cause="memory-remap-failed", address=SECOND, detail="")
    found = HealthSample(source="probe", covered=(SECOND,), symptoms=(symptom,))
    scenario.check(100.0, found)
    without = HealthSample(source="probe", covered=(SECOND,), only=("node-unusable",))
    scenario.check(200.0, without)
    assert scenario.causes(201.0)[1] == {"memory-remap-failed"}
    scenario.recover(300.0, SECOND)
    assert scenario.causes(301.0)[1] == set()


def test_an_xid_of_a_failed_application_is_no_cause(scenario: HealthScenario) -> None:
    for number in (13, 31, 43, 45, 68, 109):
        scenario.log(100.0 + number, xid(number))
    assert scenario.causes(300.0) == [set(), set(), set(), set()]


def test_a_recovery_clears_an_xid_only_after_the_time_clear_after(scenario: HealthScenario) -> None:
    scenario.log(100.0, xid(48, of=SECOND))
    scenario.recover(101.0, FIRST, SECOND)
    assert scenario.causes(399.0)[1] == {"xid-48"}
    assert scenario.causes(401.0)[1] == set()


def test_a_recovery_before_an_xid_does_not_clear_the_xid(scenario: HealthScenario) -> None:
    scenario.recover(99.0, SECOND)
    scenario.log(100.0, xid(48, of=SECOND))
    assert scenario.causes(10_000.0)[1] == {"xid-48"}


def test_recoveries_from_nvml_do_not_clear_repeated_xids(scenario: HealthScenario) -> None:
    for time_s in range(100, 3_000, 100):
        scenario.log(float(time_s), xid(119, of=SECOND))
        scenario.recover(time_s + 1.0, SECOND)
        assert scenario.causes(time_s + 99.0)[1] == {"xid-119"}
    assert scenario.causes(3_201.0)[1] == set()


def test_without_a_recovery_action_only_a_load_of_the_driver_clears_causes(
    scenario: HealthScenario,
) -> None:
    scenario.apply(50.0, DriverLoaded(vendor="nvidia", load="11"))
    scenario.log(100.0, xid(48, of=SECOND))
    scenario.check(200.0, HealthSample(source="probe", covered=(SECOND,)))
    assert scenario.causes(90_000.0)[1] == {"xid-48"}
    scenario.log(
        90_001.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC"
    )
    assert scenario.causes(90_002.0)[1] == set()


def test_a_recovery_action_is_a_cause_until_the_driver_needs_no_action(scenario: HealthScenario) -> None:
    scenario.log(100.0, xid(48, of=SECOND))
    action = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    scenario.log(100.1, xid(154, of=SECOND, text=action))
    assert scenario.causes(90_000.0)[1] == {"xid-48", "xid-154"}
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    scenario.log(90_001.0, xid(154, of=SECOND, text=action))
    assert scenario.causes(90_002.0)[1] == set()


def test_a_recovery_of_a_gpu_does_not_clear_a_cause_of_its_nvswitch(scenario: HealthScenario) -> None:
    scenario.log(
        100.0, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 30 sourcetrack timeout"
    )
    scenario.recover(1_000.0, FIRST, SECOND)
    assert scenario.causes(90_000.0)[:2] == [{"nvswitch-fatal"}, {"nvswitch-fatal"}]
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    scenario.log(90_001.0, xid(154, of=SECOND, text=action))
    assert scenario.causes(90_002.0)[:2] == [{"nvswitch-fatal"}, set()]
    scenario.log(90_003.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15")
    assert scenario.causes(90_004.0)[:2] == [set(), set()]


def test_a_reset_does_not_clear_a_later_xid(scenario: HealthScenario) -> None:
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    scenario.log(100.0, xid(154, of=SECOND, text=action))
    scenario.log(101.0, xid(79, of=SECOND))
    assert scenario.causes(90_000.0)[1] == {"xid-79"}


def test_late_lines_are_applied_in_the_order_of_their_times(scenario: HealthScenario) -> None:
    scenario.apply(50.0, DriverLoaded(vendor="nvidia", load="11"))
    scenario.log(200.0, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build")
    scenario.log(150.0, "NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.", read_s=201.0)
    assert scenario.causes(202.0)[1] == set()
