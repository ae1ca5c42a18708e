"""The configuration can set any resource name for any devices; each device is in one resource."""

import pytest
from support.kubelet.advertised_resources import counts, h100, in_mig, offered, resource_of, with_gpus
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
def test_each_condition_of_a_row_selects_devices(condition: dict[str, object]) -> None:
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


def test_only_the_first_row_that_matches_applies_to_a_device() -> None:
    rows = (
        ResourceRow(name="example.com/first", devices=("0",)),
        ResourceRow(name="example.com/a100", models=("*A100*",)),
    )
    assert counts(offered(two_models(), resources=rows)) == {
        "example.com/first": 1,
        "example.com/a100": 1,
        "nvidia.com/gpu": 6,
    }


def test_the_kind_of_a_row_also_selects_the_kind_of_the_cdi_names() -> None:
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


def test_profiles_select_partitions_and_the_profile_none_selects_whole_gpus() -> None:
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


def test_the_memory_of_a_partition_is_the_size_in_its_profile() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    rows = (ResourceRow(name="example.com/large", min_memory_gb=40),)
    assert counts(offered(host, resources=rows)) == {"nvidia.com/mig-1g.10gb": 1, "example.com/large": 8}


def test_a_gpu_of_unknown_memory_matches_no_row_with_a_memory_limit_and_is_reported() -> None:
    rows = (ResourceRow(name="example.com/any", min_memory_gb=1),)
    found = offered(example("ubuntu-2xmi300x-cpx"), resources=rows)
    assert counts(found) == {"amd.com/gpu": 16}
    assert [(one.severity, one.rule) for one in found.findings] == [
        ("warning", "resource-memory-unknown")
    ] * 16
    others = (ResourceRow(name="example.com/any", models=("other",), min_memory_gb=1),)
    assert offered(example("ubuntu-2xmi300x-cpx"), resources=others).findings == ()


def test_unknown_memory_is_not_reported_if_no_memory_limit_applies_to_the_gpu() -> None:
    limit = ResourceRow(name="example.com/large", min_memory_gb=100)
    earlier = (ResourceRow(name="example.com/any"), limit)
    assert offered(example("ubuntu-2xmi300x-cpx"), resources=earlier).findings == ()
    host = example("ubuntu-2xmi300x-cpx")
    ignored = tuple(gpu.address for gpu in host["amd"].accelerators)
    found = offered(host, resources=(limit,), ignore=ignored)
    assert {one.rule for one in found.findings} == {"resource-left-out"}


def test_memory_that_the_kernel_reports_is_rounded_up_to_a_gib() -> None:
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
        # In this name, 480GB is the memory of the CPU.
        ("NVIDIA GH200 480GB", 96),
    ],
)
def test_the_memory_of_a_gpu_is_the_size_for_its_model(model: str, size: int) -> None:
    host = with_gpus(replace(h100(0), model=model))
    rows = (ResourceRow(name="example.com/it", models=(model,), min_memory_gb=size, max_memory_gb=size),)
    assert counts(offered(host, resources=rows))["example.com/it"] == (8 if model in h100(1).model else 1)


def test_the_memory_for_the_model_has_precedence_over_the_reported_memory() -> None:
    """A T4 has 15 GiB for programs. The same row matches before and after NVML has reported the memory."""
    host = with_gpus(replace(h100(0), model="Tesla T4", memory_mib=15360))
    rows = (ResourceRow(name="example.com/it", models=("Tesla T4",), min_memory_gb=16, max_memory_gb=16),)
    assert counts(offered(host, resources=rows))["example.com/it"] == 1


def test_the_strategy_single_ignores_gpus_that_a_row_selects() -> None:
    host = with_gpus(*(in_mig(h100(number), "1g.10gb") for number in range(3)), replace(h100(3), model=A100))
    rows = (ResourceRow(name="nvidia.com/h100", models=("*H100*",), profiles=("none",)),)
    found = offered(host, mig_strategy="single", resources=rows)
    assert counts(found) == {"nvidia.com/gpu": 3, "nvidia.com/h100": 4}


@pytest.mark.parametrize("word", ["0", h100(0).uuid, h100(0).address, "nvidia.com/gpu=0"])
def test_an_ignored_gpu_and_its_partitions_are_not_advertised(word: str) -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    found = offered(host, ignore=(word,))
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert {each.rule for each in found.findings} == {"resource-left-out"}


def test_one_partition_can_be_ignored() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "1g.10gb"))
    assert counts(offered(host, ignore=("0:1",)))["nvidia.com/mig-1g.10gb"] == 1
