"""Replicas: per resource and per GPU, under another name or the same, and as many as a message holds."""

import time

import pytest
from support.kubelet.offering import counts, h100, in_mig, offered, resource_of, with_gpus
from support.kubelet.resources import GPU
from support.values.unhealthy_gpus import example

from cdigen.config import ResourceRow, SharingRow
from cdigen.kubelet.resources.offer import MAX_MESSAGE


def test_replicas_are_units_of_the_same_device_with_ids_as_nvidias_plugin_has_them() -> None:
    units = offered(example(), sharing=(SharingRow(resource=GPU, replicas=4),)).resources[0].units
    assert len(units) == 32
    assert [unit.id for unit in units[:5]] == [
        *(f"{h100(0).uuid}::{number}" for number in range(4)),
        f"{h100(1).uuid}::0",
    ]
    assert [unit.replica for unit in units[:4]] == [0, 1, 2, 3]
    assert {unit.cdi_names for unit in units[:4]} == {(f"{GPU}={h100(0).uuid}",)}


def test_one_gpu_can_be_shared_alone_and_under_a_name_of_its_own() -> None:
    row = SharingRow(resource=GPU, replicas=8, devices=("0",), rename="nvidia.com/notebook")
    found = offered(example(), sharing=(row,))
    assert counts(found) == {"nvidia.com/notebook": 8, GPU: 7}


def test_a_row_with_devices_comes_before_one_without() -> None:
    rows = (
        SharingRow(resource=GPU, replicas=2),
        SharingRow(resource=GPU, replicas=10, devices=(h100(0).uuid or "",)),
        SharingRow(resource=GPU, replicas=1, devices=("1",)),
    )
    assert counts(offered(example(), sharing=rows)) == {GPU: 10 + 1 + 6 * 2}


def test_shares_are_renamed_where_the_configuration_says_so_and_what_is_not_shared_is_not() -> None:
    rows = (SharingRow(resource=GPU, replicas=2, devices=("0",)),)
    found = offered(example(), sharing=rows, rename_shared=True)
    assert counts(found) == {f"{GPU}.shared": 2, GPU: 7}


def test_instances_are_shared_by_the_name_of_their_profile() -> None:
    host = with_gpus(in_mig(h100(0), "1g.10gb", "3g.40gb"))
    rows = (SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=3),)
    assert counts(offered(host, sharing=rows)) == {
        "nvidia.com/mig-1g.10gb": 3,
        "nvidia.com/mig-3g.40gb": 1,
        GPU: 7,
    }


def test_of_which_resources_more_than_one_share_is_refused() -> None:
    rows = (SharingRow(resource="amd.com/gpu", replicas=2),)
    host = {**example(), **example("ubuntu-2xmi300x-cpx")}
    assert offered(host, sharing=rows, single_shares=True).fails_many == {"amd.com/gpu"}
    assert offered(host, sharing=rows).fails_many == frozenset()


def test_mps_is_told_apart() -> None:
    found = offered(example(), sharing=(SharingRow(resource=GPU, replicas=4, mps=True),))
    assert found.by_mps == {GPU}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=2, mps=True), "MPS is not for MIG instances"),
        (SharingRow(resource=GPU, replicas=49, mps=True), "MPS serves 48 clients, not 49"),
        (SharingRow(resource="amd.com/gpu", replicas=2, mps=True), "MPS is NVIDIA's alone"),
    ],
)
def test_what_mps_cannot_do_is_refused_and_the_device_is_offered_unshared(row: SharingRow, why: str) -> None:
    host = {**with_gpus(in_mig(h100(0), "1g.10gb")), **example("ubuntu-2xmi300x-cpx")}
    found = offered(host, sharing=(row,))
    assert counts(found) == counts(offered(host))
    assert why in found.findings[0].message


def test_a_name_that_renaming_makes_too_long_is_refused() -> None:
    name = f"example.com/{'a' * 60}"
    found = offered(
        example(),
        resources=(ResourceRow(name=name),),
        sharing=(SharingRow(resource=name, replicas=2),),
        rename_shared=True,
    )
    assert counts(found) == {name: 8}
    assert "longer than the 63 characters" in found.findings[0].message


def test_five_thousand_replicas_of_each_of_eight_gpus_fit_and_take_a_moment() -> None:
    begun_s = time.process_time()
    found = offered(example(), sharing=(SharingRow(resource=GPU, replicas=5_000),))
    assert time.process_time() - begun_s < 5
    assert counts(found) == {GPU: 40_000}
    assert found.findings == ()


def test_more_than_a_message_holds_is_refused_and_costs_no_other_resource() -> None:
    gpus = tuple(in_mig(h100(number), *("1g.10gb",) * 7) for number in range(4))
    rows = (SharingRow(resource="nvidia.com/mig-1g.10gb", replicas=5_000),)
    found = offered(with_gpus(*gpus), sharing=rows)
    assert counts(found) == {"nvidia.com/mig-1g.10gb": 0, GPU: 4}
    assert "its 140000 units takes up to" in found.findings[0].message
    assert str(MAX_MESSAGE) in found.findings[0].message
    assert resource_of(found, GPU).units
