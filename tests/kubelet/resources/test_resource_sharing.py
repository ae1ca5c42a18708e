"""Replicas of a resource or a GPU, under the same or another name, up to the size of a message."""

import re

import pytest
from support.cost import calls
from support.kubelet.advertised_resources import counts, h100, in_mig, offered, resource_of, with_gpus
from support.kubelet.resources import GPU
from support.values.unhealthy_gpus import example

from cdigen.config import ResourceRow, SharingRow
from cdigen.kubelet.resources.model import MAX_MESSAGE
from cdigen.value import replace


def test_replicas_of_a_device_have_the_ids_of_nvidias_plugin() -> None:
    units = offered(example(), sharing=(SharingRow(resource=GPU, replicas=4),)).resources[0].units
    assert len(units) == 32
    assert [unit.id for unit in units[:5]] == [
        *(f"{h100(0).uuid}::{number}" for number in range(4)),
        f"{h100(1).uuid}::0",
    ]
    assert [unit.replica for unit in units[:4]] == [0, 1, 2, 3]
    assert {unit.cdi_names for unit in units[:4]} == {(f"{GPU}={h100(0).uuid}",)}


def test_a_single_gpu_can_be_shared_under_another_resource_name() -> None:
    row = SharingRow(resource=GPU, replicas=8, devices=("0",), rename="nvidia.com/notebook")
    found = offered(example(), sharing=(row,))
    assert counts(found) == {"nvidia.com/notebook": 8, GPU: 7}


def test_a_row_with_devices_has_precedence_over_a_row_without_devices() -> None:
    rows = (
        SharingRow(resource=GPU, replicas=2),
        SharingRow(resource=GPU, replicas=10, devices=(h100(0).uuid or "",)),
        SharingRow(resource=GPU, replicas=1, devices=("1",)),
    )
    assert counts(offered(example(), sharing=rows)) == {GPU: 10 + 1 + 6 * 2}


def test_with_rename_shared_replicas_are_renamed_and_whole_devices_are_not() -> None:
    rows = (SharingRow(resource=GPU, replicas=2, devices=("0",)),)
    found = offered(example(), sharing=rows, rename_shared=True)
    assert counts(found) == {f"{GPU}.shared": 2, GPU: 7}


def test_instances_are_shared_under_the_resource_name_of_their_profile() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    rows = (SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=3),)
    assert counts(offered(host, sharing=rows)) == {
        "nvidia.com/mig-1g.10gb": 3,
        "nvidia.com/mig-3g.40gb": 1,
        GPU: 7,
    }


def test_requests_for_several_replicas_fail_if_configured() -> None:
    rows = (SharingRow(resource="amd.com/gpu", replicas=2),)
    host = {**example(), **example("ubuntu-2xmi300x-cpx")}
    found = offered(host, sharing=rows, fail_requests_greater_than_one=True)
    assert {one.name for one in found.resources if one.fails_many} == {"amd.com/gpu"}
    assert not any(one.fails_many for one in offered(host, sharing=rows).resources)


def test_a_resource_knows_that_it_is_shared_by_mps() -> None:
    found = offered(example(), sharing=(SharingRow(resource=GPU, replicas=4, mps=True),))
    assert [one.by_mps for one in found.resources] == [True]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=2, mps=True),
            "MPS does not support MIG instances",
        ),
        (SharingRow(resource=GPU, replicas=49, mps=True), "MPS supports 48 clients, not 49"),
        (SharingRow(resource="amd.com/gpu", replicas=2, mps=True), "MPS supports NVIDIA's devices only"),
    ],
)
def test_an_impossible_use_of_mps_is_reported_and_the_device_stays_unshared(
    row: SharingRow, reason: str
) -> None:
    host = {**with_gpus(in_mig(h100(0), "1g.10gb")), **example("ubuntu-2xmi300x-cpx")}
    found = offered(host, sharing=(row,))
    assert counts(found) == counts(offered(host))
    assert reason in found.findings[0].message


def test_a_resource_name_that_renaming_makes_too_long_is_refused() -> None:
    name = f"example.com/{'a' * 60}"
    found = offered(
        example(),
        resources=(ResourceRow(name=name),),
        sharing=(SharingRow(resource=name, replicas=2),),
        rename_shared=True,
    )
    assert counts(found) == {name: 8}
    assert "more than 63 characters" in found.findings[0].message


def test_five_thousand_replicas_of_each_of_eight_gpus_fit_and_need_few_calls() -> None:
    found = offered(example(), sharing=(SharingRow(resource=GPU, replicas=5_000),))
    # 300,000 calls are needed, which is 7 for each replica.
    again = calls(lambda: offered(example(), sharing=(SharingRow(resource=GPU, replicas=5_000),)))
    assert again < 1_000_000
    assert counts(found) == {GPU: 40_000}
    assert found.findings == ()


def test_a_list_that_is_longer_than_a_message_affects_no_other_resource() -> None:
    gpus = tuple(in_mig(h100(number), *("1g.10gb",) * 7) for number in range(4))
    rows = (SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=5_000),)
    found = offered(with_gpus(*gpus), sharing=rows)
    assert counts(found) == {"nvidia.com/mig-1g.10gb": 0, GPU: 4}
    assert "its 140000 units is too long: up to" in found.findings[0].message
    assert str(MAX_MESSAGE) in found.findings[0].message
    assert resource_of(found, GPU).units


@pytest.mark.parametrize("replicas", [5_001, 10_000, 40_000])
def test_a_gpu_can_have_more_replicas_than_five_thousand(replicas: int) -> None:
    host = {"nvidia": replace(example()["nvidia"], accelerators=(h100(0),))}
    found = offered(host, sharing=(SharingRow(resource=GPU, replicas=replicas),))
    assert (counts(found), found.findings) == ({GPU: replicas}, ())


def test_the_hint_of_a_list_that_is_too_long_has_the_possible_number_of_units() -> None:
    too_many = offered(example(), sharing=(SharingRow(resource=GPU, replicas=40_000),))
    assert counts(too_many) == {GPU: 0}
    (finding,) = too_many.findings
    assert "its 320000 units is too long" in finding.message
    (most,) = map(int, re.findall(r"at most ([0-9]+) units", finding.hint))
    fitting = offered(example(), sharing=(SharingRow(resource=GPU, replicas=most // 8),))
    assert (counts(fitting), fitting.findings) == ({GPU: most // 8 * 8}, ())
