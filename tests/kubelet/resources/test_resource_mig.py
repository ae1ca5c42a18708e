"""MIG strategies: the resources of partitions, and the effect of a GPU with another split."""

import pytest
from support.kubelet.advertised_resources import counts, h100, in_mig, offered, with_gpus

from cdigen.config import ResourceRow
from cdigen.value import replace

SEVEN = ("1g.10gb",) * 7


def test_the_strategy_mixed_has_whole_gpus_and_a_resource_for_each_profile() -> None:
    host = with_gpus(in_mig(h100(0), *SEVEN), in_mig(h100(1), "3g.40gb", "2g.20gb+me", "1c.2g.20gb"))
    assert counts(offered(host)) == {
        "nvidia.com/mig-1g.10gb": 7,
        "nvidia.com/mig-3g.40gb": 1,
        "nvidia.com/mig-2g.20gb.me": 1,
        "nvidia.com/mig-1c.2g.20gb": 1,
        "nvidia.com/gpu": 6,
    }


def test_the_strategy_none_leaves_out_gpus_that_are_split() -> None:
    found = offered(with_gpus(in_mig(h100(0), *SEVEN)), mig_strategy="none")
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert [each.path for each in found.findings] == ["nvidia.com/gpu=0"]


def test_the_strategy_none_leaves_out_a_gpu_in_mig_mode_without_instances() -> None:
    found = offered(with_gpus(in_mig(h100(0))), mig_strategy="none")
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert "it is split, and the strategy is 'none'" in found.findings[-1].message


def test_the_strategy_single_advertises_instances_as_gpus() -> None:
    host = with_gpus(*(in_mig(h100(number), *SEVEN) for number in range(8)))
    found = offered(host, mig_strategy="single")
    assert counts(found) == {"nvidia.com/gpu": 56}
    assert found.findings == ()


@pytest.mark.parametrize("profiles", [(), ("3g.40gb", "1g.10gb"), ("3g.40gb",), None])
def test_the_strategy_single_leaves_out_only_the_gpu_whose_split_differs(
    profiles: tuple[str, ...] | None,
) -> None:
    odd = h100(0) if profiles is None else in_mig(h100(0), *profiles)
    host = with_gpus(odd, *(in_mig(h100(number), *SEVEN) for number in range(1, 8)))
    found = offered(host, mig_strategy="single")
    assert counts(found) == {"nvidia.com/gpu": 49}
    assert [each.path for each in found.findings] == ["nvidia.com/gpu=0"]


def test_the_strategy_single_leaves_out_a_split_gpu_on_a_node_of_whole_gpus() -> None:
    found = offered(with_gpus(in_mig(h100(0), *SEVEN)), mig_strategy="single")
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert (
        "it is split into 1g.10gb, and the other GPUs of nvidia.com/gpu are whole"
        in found.findings[0].message
    )


def test_the_strategy_single_advertises_the_split_gpus_if_half_of_the_gpus_are_split() -> None:
    host = with_gpus(*(in_mig(h100(number), *SEVEN) for number in range(4)))
    assert counts(offered(host, mig_strategy="single")) == {"nvidia.com/gpu": 28}


def test_the_strategy_single_does_not_depend_on_the_order_of_gpus() -> None:
    host = with_gpus(*(in_mig(h100(n), "1g.10gb" if n % 2 else "2g.20gb") for n in range(8)))
    gpus = host["nvidia"].accelerators
    for order in (gpus, gpus[::-1]):
        found = offered({"nvidia": replace(host["nvidia"], accelerators=order)}, mig_strategy="single")
        assert {unit.partition.profile for unit in found.resources[0].units if unit.partition} == {"1g.10gb"}


@pytest.mark.parametrize("profile", ["1g.10gb+", "é", "1g 10gb", "1g/2", "x" * 60])
def test_only_an_instance_without_a_valid_resource_name_is_left_out(profile: str) -> None:
    found = offered(with_gpus(in_mig(h100(0), profile, "1g.10gb")))
    assert counts(found) == {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 7}
    assert [(each.severity, each.path) for each in found.findings] == [("error", "nvidia.com/gpu=0:0")]
    named = offered(
        with_gpus(in_mig(h100(0), profile)), resources=(ResourceRow(name="x.com/odd", devices=("0",)),)
    )
    assert counts(named) == {"x.com/odd": 1, "nvidia.com/gpu": 7}


@pytest.mark.parametrize("strategy", ["mixed", "single"])
def test_an_instance_of_unknown_profile_is_not_advertised_as_a_gpu(strategy: str) -> None:
    host = with_gpus(in_mig(h100(0), "", ""))
    found = offered(host, mig_strategy=strategy)
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert [(each.severity, each.path) for each in found.findings] == [
        ("error", "nvidia.com/gpu=0:0"),
        ("error", "nvidia.com/gpu=0:1"),
    ]
    rows = (ResourceRow(name="example.com/slice", devices=("0:1",)),)
    assert counts(offered(host, mig_strategy=strategy, resources=rows))["example.com/slice"] == 1


def test_a_gpu_in_mig_mode_without_instances_is_reported() -> None:
    found = offered(with_gpus(in_mig(h100(0))))
    assert counts(found) == {"nvidia.com/gpu": 7}
    assert [each.severity for each in found.findings] == ["info"]


def test_the_strategy_single_leaves_out_even_a_majority_of_gpus_with_several_profiles() -> None:
    odd = tuple(in_mig(h100(number), "3g.40gb", "1g.10gb") for number in range(5))
    host = with_gpus(*odd, *(in_mig(h100(number), *SEVEN) for number in range(5, 8)))
    found = offered(host, mig_strategy="single")
    assert counts(found) == {"nvidia.com/gpu": 21}
    assert len(found.findings) == 5
