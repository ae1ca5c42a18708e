"""Equal causes of several devices become one group with the CDI names of these devices."""

from __future__ import annotations

from support.values.devices import inventory
from support.values.topology_machines import FELL, partition, pcie

from cdigen.model.findings import Finding
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.cause_groups import cause_groups, finding_groups
from cdigen.pipeline.device_names import KnownDevice, known_devices
from cdigen.value import replace


def devices(count: int, *, since: str = FELL.since) -> tuple[KnownDevice, ...]:
    """Return COUNT GPUs that have fallen off the bus."""
    cause = replace(FELL, since=since)
    gpus = tuple(
        replace(gpu, health="unhealthy", causes=(cause,)) for gpu in pcie(count, per_socket=8, per_switch=2)
    )
    return known_devices({"nvidia": inventory("nvidia", *gpus)}, (DEFAULT,))


def test_the_title_for_one_device_contains_its_name() -> None:
    (group,) = cause_groups(devices(1))
    assert group.title == "nvidia.com/gpu=0 is unhealthy: xid-79"


def test_sixteen_devices_with_one_cause_are_one_group() -> None:
    (group,) = cause_groups(devices(16))
    names = ", ".join(f"nvidia.com/gpu={number}" for number in range(4))
    assert group.title == f"16 devices are unhealthy: xid-79 ({names} and 12 more)"
    assert len(group.names) == 16


def test_a_group_has_its_oldest_cause() -> None:
    (group,) = cause_groups((*devices(1), *devices(1, since="2026-11-01T00:00:00Z")))
    assert group.first.since == "2026-11-01T00:00:00Z"


def test_causes_with_different_clearances_are_separate_groups() -> None:
    first, second = devices(2)
    other = replace(second.accelerator, causes=(replace(FELL, clears_when="it is replaced"),))
    assert len(cause_groups((first, replace(second, accelerator=other)))) == 2


def test_a_split_gpu_has_the_names_of_its_instances() -> None:
    (whole,) = pcie(1, per_socket=8, per_switch=2)
    parts = tuple(partition(number) for number in range(2))
    split = replace(whole, partitioned=True, partitions=parts, health="unhealthy", causes=(FELL,))
    (group,) = cause_groups(known_devices({"nvidia": inventory("nvidia", split)}, (DEFAULT,)))
    assert group.names == ("nvidia.com/gpu=0:0", "nvidia.com/gpu=0:1")


def test_a_split_gpu_does_not_have_the_name_of_an_unusable_instance() -> None:
    (whole,) = pcie(1, per_socket=8, per_switch=2)
    parts = (replace(partition(0), usable=False), partition(1))
    split = replace(whole, partitioned=True, partitions=parts, health="unhealthy", causes=(FELL,))
    (group,) = cause_groups(known_devices({"nvidia": inventory("nvidia", split)}, (DEFAULT,)))
    assert group.names == ("nvidia.com/gpu=0:1",)
    for left, lack in (((), "no partition"), (parts[:1], "no usable partition")):
        empty = replace(split, partitions=left)
        (group,) = cause_groups(known_devices({"nvidia": inventory("nvidia", empty)}, (DEFAULT,)))
        assert group.names == (f"GPU 0 ({whole.address}, {lack})",)


def test_findings_that_differ_only_in_numbers_are_merged() -> None:
    missing = [
        Finding(
            severity="warning",
            rule="drm-node-missing",
            path=f"/dev/dri/card{number}",
            message=f"GPU {number} (0000:{number + 0x1B:02x}:00.0): /dev/dri/card{number} does not exist",
        )
        for number in range(8)
    ]
    other = replace(missing[0], message="GPU 0 (0000:1b:00.0): /dev/dri/card0 is a folder")
    first, second = finding_groups((*missing, other))
    assert first.message == (
        "GPU 0 (0000:1b:00.0): /dev/dri/card0 does not exist (and 7 more: /dev/dri/card1, /dev/dri/card2, "
        "/dev/dri/card3, /dev/dri/card4 and 3 more)"
    )
    assert second == other
