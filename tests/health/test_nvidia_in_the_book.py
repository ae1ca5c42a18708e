"""NVIDIA's GPUs from the line of an Xid to the inventory: what makes one unhealthy, and what clears it."""

from __future__ import annotations

import pytest
from support.values.health_course import Course
from support.values.health_devices import FIRST, SECOND, gpu, inventory, partition

from cdigen.health.book import Loaded, Seen
from cdigen.model.findings import Finding
from cdigen.model.health import Look, Symptom
from cdigen.model.partition_names import CONTRADICTION
from cdigen.value import replace


@pytest.fixture
def course() -> Course:
    return Course("nvidia", "gi5/ci0", "gi6/ci0")


def xid(number: int, *, of: str = FIRST, words: str = "pid=7, name=x, y") -> str:
    return f"NVRM: Xid (PCI:{of.removesuffix('.0')}): {number}, {words}"


def test_an_xid_of_a_gpu_is_its_own_and_its_instances(course: Course) -> None:
    course.hear(100.0, xid(79))
    assert course.causes(101.0) == [{"xid-79"}, set(), {"xid-79"}, {"xid-79"}]


def test_an_xid_of_an_instance_is_that_instances_alone(course: Course) -> None:
    course.hear(100.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7, name=x, Contained: SM (0x1)")
    assert course.causes(101.0) == [set(), set(), {"xid-94"}, set()]
    course.hear(102.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:06): 95, pid=7, name=x, Uncontained: LTC")
    assert course.causes(103.0) == [{"xid-95"}, set(), {"xid-94", "xid-95"}, {"xid-95"}]


def test_an_instance_on_which_kernel_and_nvml_disagree_for_a_moment_keeps_its_causes(course: Course) -> None:
    course.hear(100.0, "NVRM: Xid (PCI:0000:65:00 GPU-I:05): 94, pid=7, name=x, Contained: SM (0x1)")
    left = inventory(gpu(FIRST, partitions=(partition("gi6/ci0"),)), gpu(SECOND, uuid="GPU-2"))
    finding = Finding(severity="error", rule=CONTRADICTION, path="GPU 0", message="gi5/ci0 is left out")
    course.tell(110.0, Seen(inventories={"nvidia": replace(left["nvidia"], findings=(finding,))}))
    course.tell(120.0, Seen(inventories=course.host))
    assert course.causes(121.0) == [set(), set(), {"xid-94"}, set()]
    course.tell(130.0, Seen(inventories=left))
    course.tell(140.0, Seen(inventories=course.host))
    assert course.causes(141.0) == [set(), set(), set(), set()]


def test_a_probe_that_has_no_nvml_clears_nothing_that_nvml_said(course: Course) -> None:
    symptom = Symptom(cause="memory-remap-failed", address=SECOND, detail="")
    found = Look(source="probe", covered=(SECOND,), symptoms=(symptom,))
    course.look(100.0, found)
    without = Look(source="probe", covered=(SECOND,), only=("node-unusable",))
    course.look(200.0, without)
    assert course.causes(201.0)[1] == {"memory-remap-failed"}
    course.recover(300.0, SECOND)
    assert course.causes(301.0)[1] == set()


def test_an_application_that_fails_harms_no_gpu(course: Course) -> None:
    for number in (13, 31, 43, 45, 68, 109):
        course.hear(100.0 + number, xid(number))
    assert course.causes(300.0) == [set(), set(), set(), set()]


def test_a_driver_that_is_content_clears_it_after_a_quiet_time_and_not_before(course: Course) -> None:
    course.hear(100.0, xid(48, of=SECOND))
    course.recover(101.0, FIRST, SECOND)
    assert course.causes(399.0)[1] == {"xid-48"}
    assert course.causes(401.0)[1] == set()


def test_a_driver_that_was_content_before_it_clears_nothing(course: Course) -> None:
    course.recover(99.0, SECOND)
    course.hear(100.0, xid(48, of=SECOND))
    assert course.causes(10_000.0)[1] == {"xid-48"}


def test_a_gpu_is_not_well_while_xids_go_on_whatever_nvml_says(course: Course) -> None:
    for time_s in range(100, 3_000, 100):
        course.hear(float(time_s), xid(119, of=SECOND))
        course.recover(time_s + 1.0, SECOND)
        assert course.causes(time_s + 99.0)[1] == {"xid-119"}
    assert course.causes(3_201.0)[1] == set()


def test_a_driver_that_does_not_say_what_it_wants_clears_nothing_but_by_its_load(course: Course) -> None:
    course.tell(50.0, Loaded(vendor="nvidia", load="11"))
    course.hear(100.0, xid(48, of=SECOND))
    course.look(200.0, Look(source="probe", covered=(SECOND,)))
    assert course.causes(90_000.0)[1] == {"xid-48"}
    course.hear(
        90_001.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC"
    )
    assert course.causes(90_002.0)[1] == set()


def test_what_the_driver_wants_lasts_until_it_wants_nothing_more(course: Course) -> None:
    course.hear(100.0, xid(48, of=SECOND))
    action = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    course.hear(100.1, xid(154, of=SECOND, words=action))
    assert course.causes(90_000.0)[1] == {"xid-48", "xid-154"}
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    course.hear(90_001.0, xid(154, of=SECOND, words=action))
    assert course.causes(90_002.0)[1] == set()


def test_that_a_gpu_is_content_says_nothing_of_its_switch(course: Course) -> None:
    course.hear(100.0, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 30 sourcetrack timeout")
    course.recover(1_000.0, FIRST, SECOND)
    assert course.causes(90_000.0)[:2] == [{"nvswitch-fatal"}, {"nvswitch-fatal"}]
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    course.hear(90_001.0, xid(154, of=SECOND, words=action))
    assert course.causes(90_002.0)[:2] == [{"nvswitch-fatal"}, set()]
    course.hear(90_003.0, "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15")
    assert course.causes(90_004.0)[:2] == [set(), set()]


def test_an_xid_after_the_reset_is_not_cleared_by_it(course: Course) -> None:
    action = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    course.hear(100.0, xid(154, of=SECOND, words=action))
    course.hear(101.0, xid(79, of=SECOND))
    assert course.causes(90_000.0)[1] == {"xid-79"}


def test_lines_that_are_heard_late_are_put_in_their_order(course: Course) -> None:
    course.tell(50.0, Loaded(vendor="nvidia", load="11"))
    course.hear(200.0, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build")
    course.hear(150.0, "NVRM: Xid (PCI:0000:66:00): 79, GPU has fallen off the bus.", read_s=201.0)
    assert course.causes(202.0)[1] == set()
