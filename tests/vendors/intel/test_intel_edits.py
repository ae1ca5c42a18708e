"""The drafts of specs from an inventory of Intel's devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from support.values.devices import accelerator, host_node
from support.values.devices import inventory as of_vendor
from support.values.inventories import hosts

from cdigen.cdi.build import build
from cdigen.model.profile import DEFAULT, Profile
from cdigen.value import replace
from cdigen.vendors.intel.edits import drafts

if TYPE_CHECKING:
    from cdigen.model.cdi import Draft
    from cdigen.model.inventory import Accelerator, HostNode, Inventory

CARD_CAPABILITIES = ("graphics", "display")


def node(path: str, role: str, *capabilities: str, gid: int = 0, mode: int = 0o660) -> HostNode:
    return host_node(path, role, major=226, mode=mode, gid=gid, capabilities=capabilities)


def gpu(index: int, *nodes: HostNode, device_class: str = "gpu", device_id: str = "0x56c0") -> Accelerator:
    own = nodes or (
        node(f"/dev/dri/card{index}", "card", *CARD_CAPABILITIES, gid=44),
        node(f"/dev/dri/renderD{128 + index}", "render", gid=993),
    )
    address = f"0000:{index:02x}:00.0"
    return accelerator(index, address, minor=index, nodes=own, device_class=device_class, device_id=device_id)


def inventory(*accelerators: Accelerator) -> Inventory:
    return of_vendor("intel", *accelerators)


def devices(made: Draft) -> dict[str, list[str]]:
    return {device.name: [each.path for each in device.edits.device_nodes] for device in made.devices}


def npu() -> Accelerator:
    return gpu(0, node("/dev/accel/accel0", "accel", gid=993), device_class="npu", device_id="0x643e")


def test_a_profile_chooses_the_names() -> None:
    profile = Profile(name="p", device_class="gpu", names=("pci", "uuid", "card"))
    (made,) = drafts(inventory(gpu(1)), (profile,))
    assert [device.name for device in made.devices] == ["0000-01-00-0-0x56c0", "card1"]


def test_a_gpu_without_a_pci_device_number_has_no_name_with_its_address() -> None:
    (made,) = drafts(inventory(gpu(1, device_id="")), (DEFAULT,))
    assert [device.name for device in made.devices] == ["1", "card1"]


def test_with_a_compute_profile_a_gpu_has_only_its_render_node() -> None:
    profile = Profile(name="p", device_class="compute", capabilities=("compute",))
    (made,) = drafts(inventory(gpu(0)), (profile,))
    assert made.kind == "intel.com/compute"
    assert devices(made)["0"] == ["/dev/dri/renderD128"]


def test_with_a_compute_profile_a_gpu_without_a_render_node_has_no_device() -> None:
    display = gpu(0, node("/dev/dri/card0", "card", *CARD_CAPABILITIES))
    profile = Profile(name="p", device_class="gpu", capabilities=("compute",))
    assert devices(drafts(inventory(display, gpu(1)), (profile,))[0]).keys() == {
        "1",
        "0000-01-00-0-0x56c0",
        "card1",
    }


def test_the_groups_of_the_nodes_are_added() -> None:
    (made,) = drafts(inventory(gpu(0)), (DEFAULT,))
    assert made.devices[0].edits.additional_gids == (44, 993)


def test_each_profile_has_a_kind_for_gpus_and_the_kind_for_npus_exists_once() -> None:
    profiles = (DEFAULT, Profile(name="video", device_class="video", capabilities=("video",)))
    kinds = [made.kind for made in drafts(inventory(gpu(0), npu()), profiles)]
    assert kinds == ["intel.com/gpu", "intel.com/video", "intel.com/npu"]


def test_a_profile_of_the_class_npu_applies_to_npus() -> None:
    profile = Profile(name="npu", device_class="npu", names=("card",))
    made = {draft.kind: draft for draft in drafts(inventory(gpu(0), npu()), (DEFAULT, profile))}
    assert made.keys() == {"intel.com/gpu", "intel.com/npu"}
    assert devices(made["intel.com/npu"]) == {"accel0": ["/dev/accel/accel0"]}


def test_a_profiles_capabilities_apply_to_gpus_and_not_to_npu_nodes() -> None:
    profile = Profile(name="p", device_class="gpu", capabilities=("display",))
    made = drafts(inventory(npu()), (profile,))
    assert devices(made[-1])["0"] == ["/dev/accel/accel0"]


def test_an_unusable_device_is_left_out_and_does_not_change_other_names() -> None:
    broken = replace(gpu(0), usable=False, nodes=())
    assert "0" not in devices(drafts(inventory(broken, gpu(1)), (DEFAULT,))[0])


def test_the_device_all_excludes_devices_for_virtual_machines() -> None:
    machine = gpu(1, node("/dev/vfio/7", "vfio"), node("/dev/vfio/vfio", "vfio-control"))
    document = build(drafts(inventory(gpu(0), machine), (DEFAULT,))[0])
    (everything,) = (device for device in document["devices"] if device["name"] == "all")
    paths = [each["path"] for each in everything["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/dri/card0", "/dev/dri/renderD128"]


@given(hosts())
def test_no_name_is_used_twice_and_no_device_is_empty(drawn: Inventory) -> None:
    for made in drafts(drawn, (DEFAULT,)):
        names = [device.name for device in made.devices]
        assert len(set(names)) == len(names)
        assert all(device.edits.device_nodes for device in made.devices)
