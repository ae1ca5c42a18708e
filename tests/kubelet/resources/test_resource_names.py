"""Resources have the names that the vendors' own plugins use, and units have stable ids."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import nvidia_platforms
from support.hosts.intel import discover
from support.hosts.intel_tree import Device, b60, flex_170, gaudi_3, laptop
from support.kubelet.advertised_resources import (
    counts,
    h100,
    in_mig,
    names_of,
    offered,
    resource_of,
    with_gpus,
)
from support.values.unhealthy_gpus import ECC, FELL, example, split, with_causes

from cdigen.config import KubeletConfig, SharingRow
from cdigen.host.root import Root
from cdigen.kubelet.resources.model import MAX_ID
from cdigen.kubelet.resources.resource_set import advertise
from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.registry import VENDORS, load, resource_names

HOSTS = ("debian13-8xh100", "ubuntu-2xmi300x-cpx", "ubuntu-flex170-sriov")


def test_nvidias_gpus_have_their_uuids_as_ids_and_names() -> None:
    units = resource_of(offered(example()), "nvidia.com/gpu").units
    assert [unit.id for unit in units] == [gpu.uuid for gpu in example()["nvidia"].accelerators]
    assert units[0].cdi_names == (f"nvidia.com/gpu={units[0].id}",)
    assert {unit.health for unit in units} == {"healthy"}


@pytest.mark.parametrize("host", HOSTS)
def test_ids_differ_and_leave_room_for_the_number_of_a_replica(host: str) -> None:
    units = [unit for each in offered(example(host)).resources for unit in each.units]
    assert len({unit.id for unit in units}) == len(units) > 0
    assert all(len(f"{unit.id}::39999") <= MAX_ID for unit in units)


@pytest.mark.parametrize("host", HOSTS)
def test_each_unit_has_one_cdi_name_that_no_other_unit_has(host: str) -> None:
    names = [unit.cdi_names for each in offered(example(host)).resources for unit in each.units]
    assert all(len(each) == 1 for each in names)
    assert len(set(names)) == len(names)


def test_amd_partitions_are_gpus_or_have_a_resource_for_their_profile() -> None:
    host = example("ubuntu-2xmi300x-cpx")
    assert counts(offered(host)) == {"amd.com/gpu": 16}
    assert counts(offered(host, amd_strategy="mixed")) == {"amd.com/cpx_nps1": 16}


def test_with_mixed_the_resource_name_of_a_partitionable_whole_amd_gpu_has_its_mode() -> None:
    amd = example("ubuntu-2xmi300x-cpx")["amd"]
    first, second = amd.accelerators
    whole = replace(first, model="AMD Instinct MI300X (SPX, NPS1)", partitioned=False, partitions=())
    host = {"amd": replace(amd, accelerators=(whole, second))}
    found = offered(host, amd_strategy="mixed")
    assert counts(found) == {"amd.com/spx_nps1": 1, "amd.com/cpx_nps1": 8}
    plain = replace(whole, model="AMD Instinct MI210")
    host = {"amd": replace(amd, accelerators=(plain, second))}
    assert counts(offered(host, amd_strategy="mixed")) == {"amd.com/gpu": 1, "amd.com/cpx_nps1": 8}


def test_amd_partitions_have_the_ids_of_amds_plugin() -> None:
    units = resource_of(offered(example("ubuntu-2xmi300x-cpx")), "amd.com/gpu").units
    assert [unit.id for unit in units[:3]] == ["0000:05:00.0", "amdgpu_xcp_0", "amdgpu_xcp_1"]


def test_virtual_functions_of_an_intel_gpu_are_advertised_instead_of_the_gpu() -> None:
    found = offered(example("ubuntu-flex170-sriov"))
    assert counts(found) == {"gpu.intel.com/i915": 5}
    assert [(each.rule, each.path) for each in found.findings] == [("resource-left-out", "intel.com/gpu=1")]
    assert found.resources[0].units[1].cdi_names == ("intel.com/gpu=0000-4d-00-1-0x56c0",)


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (flex_170(), {"gpu.intel.com/i915": 5}),
        (b60(2), {"gpu.intel.com/xe": 2}),
        (laptop(), {"gpu.intel.com/xe": 1, "npu.intel.com/accel": 1}),
        (gaudi_3(3), {"habana.ai/gaudi": 3}),
    ],
)
def test_resources_of_intel_have_the_name_of_the_driver_or_of_the_device_class(
    tmp_path: Path, devices: tuple[Device, ...], expected: dict[str, int]
) -> None:
    assert counts(offered({"intel": discover(tmp_path, *devices)})) == expected


def test_a_gpu_for_virtual_machines_is_in_no_resource() -> None:
    host = example("ubuntu-flex170-sriov")
    gpus = (replace(host["intel"].accelerators[0], kernel_driver="vfio-pci"),)
    found = offered({"intel": replace(host["intel"], accelerators=gpus)})
    assert found.resources == ()
    assert "its driver is vfio-pci" in found.findings[0].message


def test_each_vendor_has_a_resource_name_for_gpus() -> None:
    assert all(any(row.device_class == "gpu" for row in resource_names(name)) for name in VENDORS)


def test_only_the_replicas_of_an_unhealthy_gpu_are_unhealthy() -> None:
    host = with_causes(example(), 3, FELL)
    row = SharingRow(resource="nvidia.com/gpu", replicas=4)
    units = offered(host, sharing=(row,)).resources[0].units
    assert [unit.id for unit in units if unit.health == "unhealthy"] == [
        f"{h100(3).uuid}::{number}" for number in range(4)
    ]


def test_only_the_unit_of_an_unhealthy_mig_instance_is_unhealthy() -> None:
    units = resource_of(offered(with_gpus(split(h100(0)))), "nvidia.com/mig-1g.10gb").units
    assert [unit.health for unit in units] == ["healthy", "unhealthy"]
    assert units[1].partition is not None
    assert units[1].partition.causes == (ECC,)


def test_a_gpu_without_a_name_in_a_spec_is_unhealthy_and_stays_in_the_list() -> None:
    host = example()
    gone = h100(2).uuid or ""
    names = {name for name in names_of(host) if gone not in name and name != "nvidia.com/gpu=2"}
    found = advertise(host, (DEFAULT,), names.__contains__, KubeletConfig())
    units = found.resources[0].units
    assert [unit.health for unit in units].count("unhealthy") == 1
    assert (units[2].health, units[2].cdi_names) == ("unhealthy", ())
    assert [each.rule for each in found.findings] == ["resource-without-name"]


def test_without_specs_all_units_are_advertised_as_unhealthy() -> None:
    found = advertise(example(), (DEFAULT,), lambda _: False, KubeletConfig())
    assert {unit.health for unit in found.resources[0].units} == {"unhealthy"}
    assert counts(found) == {"nvidia.com/gpu": 8}


def test_if_specs_have_no_uuids_the_cdi_name_of_a_unit_has_the_address_or_the_index() -> None:
    host = example()
    by_address = replace(DEFAULT, names=("index", "pci"))
    (name,) = offered(host, profiles=(by_address,)).resources[0].units[1].cdi_names
    assert name.startswith(f"nvidia.com/gpu={h100(1).address}")
    by_number = replace(DEFAULT, names=("index",))
    assert offered(host, profiles=(by_number,)).resources[0].units[1].cdi_names == ("nvidia.com/gpu=1",)


def test_a_gpu_of_unknown_uuid_has_its_address_as_id() -> None:
    found = offered(with_gpus(replace(h100(0), uuid=None)))
    assert found.resources[0].units[0].id == h100(0).address


def test_a_gpu_that_cannot_be_used_is_unhealthy_although_a_spec_names_it() -> None:
    host = with_gpus(replace(h100(0), usable=False, problem="it has fallen off the bus"))
    found = advertise(host, (DEFAULT,), lambda _: True, KubeletConfig())
    assert [unit.health for unit in found.resources[0].units] == ["unhealthy"] + ["healthy"] * 7


def test_with_several_kinds_the_cdi_name_in_the_kind_of_the_first_profile_is_used() -> None:
    profiles = (DEFAULT, Profile(name="compute", device_class="gpu-compute"))
    known = names_of(example(), profiles)
    # The specs have no UUIDs in the first kind, and UUIDs in the second kind.
    lasting = {name for name in known if name.startswith("nvidia.com/gpu=GPU-")}
    found = advertise(example(), profiles, (known - lasting).__contains__, KubeletConfig())
    assert found.resources[0].units[3].cdi_names == ("nvidia.com/gpu=3",)


def test_ids_that_are_too_long_are_shortened_and_still_differ() -> None:
    gpus = [replace(h100(0), uuid=None, address=f"{'0' * 80}:0{n}:00.0") for n in range(8)]
    units = offered(with_gpus(*gpus)).resources[0].units
    assert len({unit.id for unit in units}) == 8


def test_an_instance_of_unknown_uuid_has_its_instance_numbers_in_the_id() -> None:
    gpu = in_mig(h100(0), "1g.10gb")
    part = replace(gpu.partitions[0], uuid=None, index=None, instance="gi9/ci0")
    found = offered(with_gpus(replace(gpu, partitions=(part,))))
    assert resource_of(found, "nvidia.com/mig-1g.10gb").units[0].id == f"{h100(0).uuid}:gi9-ci0"


def test_units_have_the_numa_nodes_of_their_gpus_or_none_if_unknown() -> None:
    host = with_gpus(replace(h100(0), numa_node=1), replace(h100(1), numa_node=None))
    assert [unit.numa for unit in offered(host).resources[0].units[:2]] == [1, None]


def test_a_host_with_devices_of_two_vendors_has_the_resources_of_both() -> None:
    found = offered({**example(), **example("ubuntu-2xmi300x-cpx")})
    assert counts(found) == {"nvidia.com/gpu": 8, "amd.com/gpu": 16}


def test_a_host_without_devices_has_no_resources() -> None:
    assert offered({}).resources == ()


def of_platform(root: Path, lay: Callable[[Path], None]) -> Inventory:
    lay(root)
    host = Root(str(root))
    return load("nvidia").discover(DiscoveryContext(host=host, driver=host, dev=host))


@pytest.mark.usefixtures("real_nodes")
@pytest.mark.parametrize(
    ("lay", "name"),
    [(nvidia_platforms.wsl2, "nvidia.com/gpu=all"), (nvidia_platforms.orin, "nvidia.com/gpu=0")],
)
def test_a_host_whose_gpus_are_one_device_has_one_unit(
    tmp_path: Path, lay: Callable[[Path], None], name: str
) -> None:
    (one,) = offered({"nvidia": of_platform(tmp_path, lay)}).resources
    assert (one.name, [unit.cdi_names for unit in one.units]) == ("nvidia.com/gpu", [(name,)])
