"""The names of devices of all vendors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.values.inventories import inventories as any_inventories
from support.values.unhealthy_gpus import example, split

from cdigen.model.inventory import Inventory
from cdigen.model.profile import DEFAULT
from cdigen.pipeline.device_names import devices_by_name, known_devices
from cdigen.pipeline.naming import named_drafts
from cdigen.value import replace

GPU = "nvidia.com/gpu"
HOSTS = ("debian13-8xh100", "ubuntu-2xmi300x-cpx", "ubuntu-flex170-sriov")


@pytest.mark.parametrize("host", HOSTS)
def test_every_device_name_in_a_spec_belongs_to_a_known_device(host: str) -> None:
    inventories = example(host)
    found = devices_by_name(known_devices(inventories, (DEFAULT,)))
    for vendor, inventory in inventories.items():
        classes = {gpu.device_class for gpu in inventory.accelerators}
        drafts = [
            draft
            for draft in named_drafts(vendor, inventory, (DEFAULT,))[0]
            if draft.kind.partition("/")[2] in classes
        ]
        names = {f"{draft.kind}={device.name}" for draft in drafts for device in draft.devices}
        assert names - {f"{draft.kind}=none" for draft in drafts} - found.keys() == set()


@pytest.mark.parametrize("host", HOSTS)
def test_every_device_has_a_unique_name(host: str) -> None:
    devices = known_devices(example(host), (DEFAULT,))
    assert len({device.name for device in devices}) == len(devices)


def test_the_usual_name_of_a_device_follows_the_first_naming_of_the_profile() -> None:
    profile = replace(DEFAULT, device_class="fast", names=("pci", "index"))
    assert known_devices(example(), (profile,))[0].name == "nvidia.com/fast=0000:1b:00.0"


def test_the_name_all_refers_to_every_usable_device() -> None:
    whole = example()["nvidia"]
    gpus = (replace(whole.accelerators[0], usable=False), *whole.accelerators[1:])
    found = devices_by_name(known_devices({"nvidia": replace(whole, accelerators=gpus)}, (DEFAULT,)))
    assert [device.accelerator.index for device in found[f"{GPU}=all"]] == list(range(1, 8))


def test_the_name_all_refers_to_the_partitions_of_a_gpu_but_not_to_the_gpu() -> None:
    found = devices_by_name(known_devices(example("ubuntu-2xmi300x-cpx"), (DEFAULT,)))["amd.com/gpu=all"]
    assert [device.partition is not None for device in found] == [True] * 16


def test_a_gpu_that_is_split_and_its_instances_are_three_devices() -> None:
    whole = example()["nvidia"]
    gpus = (split(whole.accelerators[0]), *whole.accelerators[1:2])
    devices = known_devices({"nvidia": replace(whole, accelerators=gpus)}, (DEFAULT,))
    assert [device.name for device in devices] == [f"{GPU}=0", f"{GPU}=0:0", f"{GPU}=0:1", f"{GPU}=1"]
    # No spec has a device for the GPU as a whole.
    assert f"{GPU}=0" not in devices_by_name(devices)


def test_a_split_gpu_that_is_also_a_whole_device_has_no_name_of_its_instance() -> None:
    whole = example()["nvidia"]
    gpu = split(whole.accelerators[0])
    gpus = (replace(gpu, partitions=gpu.partitions[:1]),)
    profile = replace(DEFAULT, whole_gpus=True)
    devices = known_devices({"nvidia": replace(whole, accelerators=gpus)}, (profile,))
    assert [device.name for device in devices] == [f"{GPU}=0", f"{GPU}=0:0"]
    assert devices_by_name(devices)[f"{GPU}={gpu.uuid}"] == devices[:1]


def test_the_address_of_a_split_gpu_names_all_its_partitions() -> None:
    devices = known_devices(example("ubuntu-2xmi300x-cpx"), (DEFAULT,))
    first = devices[0]
    parts = [device for device in devices if device.partition and device.accelerator == first.accelerator]
    assert devices_by_name(devices)[f"amd.com/gpu={first.accelerator.address}"] == (first, *parts)


@given(inventory=any_inventories, vendor=st.sampled_from(["nvidia", "amd", "intel"]))
def test_every_device_of_every_inventory_has_a_name(inventory: Inventory, vendor: str) -> None:
    devices = known_devices({vendor: replace(inventory, vendor=vendor)}, (DEFAULT,))
    parts = [part for gpu in inventory.accelerators for part in (None, *gpu.partitions)]
    assert [device.partition for device in devices] == parts
    assert all("=" in device.name for device in devices)
    devices_by_name(devices)
