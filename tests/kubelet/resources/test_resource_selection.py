"""Names by configuration: any for any selection, each device in one resource."""

import pytest
from support.kubelet.offering import counts, h100, in_mig, offered, resource_of, with_gpus
from support.values.unhealthy_gpus import example

from cdigen.config import ResourceRow
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.value import replace

A100 = "NVIDIA A100-SXM4-40GB"


def two_models() -> dict[str, Inventory]:
    return with_gpus(replace(h100(0), model=A100), replace(h100(1), model=A100))


@pytest.mark.parametrize(
    "condition",
    [
        {"models": ("*a100*",)},
        {"models": (A100,)},
        {"devices": ("0", "1")},
        {"devices": (h100(0).uuid, h100(1).address)},
        {"devices": ("nvidia.com/gpu=0", f"nvidia.com/gpu={h100(1).uuid}")},
        {"max_memory_gb": 40},
        {"min_memory_gb": 40, "max_memory_gb": 79},
    ],
)
def test_devices_are_named_by_what_they_are(condition: dict[str, object]) -> None:
    found = offered(two_models(), resources=(ResourceRow(name="nvidia.com/a100", **condition),))  # type: ignore[arg-type]
    assert counts(found) == {"nvidia.com/a100": 2, "nvidia.com/gpu": 6}


@pytest.mark.parametrize(
    "condition",
    [
        {"models": ("A100",)},
        {"models": ("*A100*",), "min_memory_gb": 80},
        {"profiles": ("*",)},
        {"kind": "amd.com/gpu"},
    ],
)
def test_all_conditions_of_a_row_have_to_match(condition: dict[str, object]) -> None:
    found = offered(two_models(), resources=(ResourceRow(name="nvidia.com/a100", **condition),))  # type: ignore[arg-type]
    assert counts(found) == {"nvidia.com/gpu": 8}


def test_the_first_row_that_matches_counts_and_a_device_is_in_one_resource() -> None:
    rows = (
        ResourceRow(name="example.com/first", devices=("0",)),
        ResourceRow(name="example.com/a100", models=("*A100*",)),
    )
    assert counts(offered(two_models(), resources=rows)) == {
        "example.com/first": 1,
        "example.com/a100": 1,
        "nvidia.com/gpu": 6,
    }


def test_a_kind_is_also_what_devices_are_given_by() -> None:
    profiles = (DEFAULT, replace(DEFAULT, name="compute", device_class="gpu-compute"))
    rows = (ResourceRow(name="example.com/compute", kind="nvidia.com/gpu-compute", devices=("2",)),)
    found = offered(example(), profiles=profiles, resources=rows)
    (unit,) = resource_of(found, "example.com/compute").units
    assert unit.cdi_names == (f"nvidia.com/gpu-compute={h100(2).uuid}",)
    assert all(
        name.startswith("nvidia.com/gpu=")
        for one in resource_of(found, "nvidia.com/gpu").units
        for name in one.cdi_names
    )


def test_profiles_name_partitions_and_none_names_whole_gpus() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    rows = (
        ResourceRow(name="example.com/small", profiles=("1g.*",)),
        ResourceRow(name="example.com/whole", profiles=("none",)),
    )
    assert counts(offered(host, resources=rows)) == {
        "example.com/small": 1,
        "nvidia.com/mig-3g.40gb": 1,
        "example.com/whole": 7,
    }


def test_memory_of_a_partition_is_that_of_its_profile() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    rows = (ResourceRow(name="example.com/large", min_memory_gb=40),)
    assert counts(offered(host, resources=rows)) == {"nvidia.com/mig-1g.10gb": 1, "example.com/large": 8}


def test_a_gpu_whose_memory_is_not_known_matches_no_limit_of_it_which_is_said() -> None:
    rows = (ResourceRow(name="example.com/any", min_memory_gb=1),)
    found = offered(example("ubuntu-2xmi300x-cpx"), resources=rows)
    assert counts(found) == {"amd.com/gpu": 16}
    assert [(one.severity, one.rule) for one in found.findings] == [
        ("warning", "resource-memory-unknown")
    ] * 16
    others = (ResourceRow(name="example.com/any", models=("other",), min_memory_gb=1),)
    assert offered(example("ubuntu-2xmi300x-cpx"), resources=others).findings == ()


def test_memory_that_nobody_asks_for_need_not_be_known() -> None:
    limit = ResourceRow(name="example.com/large", min_memory_gb=100)
    earlier = (ResourceRow(name="example.com/any"), limit)
    assert offered(example("ubuntu-2xmi300x-cpx"), resources=earlier).findings == ()
    host = example("ubuntu-2xmi300x-cpx")
    ignored = tuple(gpu.address for gpu in host["amd"].accelerators)
    found = offered(host, resources=(limit,), ignore=ignored)
    assert {one.rule for one in found.findings} == {"resource-left-out"}


def test_memory_that_the_kernel_tells_counts_to_a_whole_gib() -> None:
    host = example("ubuntu-2xmi300x-cpx")
    amd = host["amd"]
    gpus = tuple(
        replace(gpu, partitions=tuple(replace(each, memory_mib=size * 1024 - 16) for each in gpu.partitions))
        for gpu, size in zip(amd.accelerators, (24, 48), strict=True)
    )
    rows = (ResourceRow(name="example.com/half", min_memory_gb=48, max_memory_gb=48),)
    found = offered({"amd": replace(amd, accelerators=gpus)}, resources=rows)
    assert counts(found) == {"amd.com/gpu": 8, "example.com/half": 8}


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("NVIDIA H100 80GB HBM3", 80),
        ("Tesla V100-SXM2-32GB", 32),
        ("Tesla T4", 16),
        ("NVIDIA H200", 141),
        # The size in its name is that of the processor's memory.
        ("NVIDIA GH200 480GB", 96),
    ],
)
def test_memory_of_a_model_is_what_it_is_sold_by(model: str, size: int) -> None:
    host = with_gpus(replace(h100(0), model=model))
    rows = (ResourceRow(name="example.com/it", models=(model,), min_memory_gb=size, max_memory_gb=size),)
    assert counts(offered(host, resources=rows))["example.com/it"] == (8 if model in h100(1).model else 1)


def test_a_model_is_what_it_is_sold_by_also_once_the_driver_has_told_its_memory() -> None:
    """A T4 has 15 GiB for programs: the row for it is the same before NVML was asked and after."""
    host = with_gpus(replace(h100(0), model="Tesla T4", memory_mib=15360))
    rows = (ResourceRow(name="example.com/it", models=("Tesla T4",), min_memory_gb=16, max_memory_gb=16),)
    assert counts(offered(host, resources=rows))["example.com/it"] == 1


def test_a_gpu_that_has_a_row_of_its_own_does_not_count_for_single() -> None:
    host = with_gpus(*(in_mig(h100(number), "1g.10gb") for number in range(3)), replace(h100(3), model=A100))
    rows = (ResourceRow(name="nvidia.com/h100", models=("*H100*",), profiles=("none",)),)
    found = offered(host, mig_strategy="single", resources=rows)
    assert counts(found) == {"nvidia.com/gpu": 3, "nvidia.com/h100": 4}


@pytest.mark.parametrize("word", ["0", h100(0).uuid, h100(0).address, "nvidia.com/gpu=0"])
def test_what_is_ignored_is_not_offered_with_all_its_partitions(word: str) -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    found = offered(host, ignore=(word,))
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert {each.rule for each in found.findings} == {"resource-left-out"}


def test_one_partition_can_be_ignored() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    assert counts(offered(host, ignore=("0:1",)))["nvidia.com/mig-1g.10gb"] == 1
