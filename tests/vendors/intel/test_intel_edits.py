"""From an inventory of Intel's to the drafts of its specs."""

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


def test_a_gpu_of_unknown_id_has_no_name_by_its_address() -> None:
    (made,) = drafts(inventory(gpu(1, device_id="")), (DEFAULT,))
    assert [device.name for device in made.devices] == ["1", "card1"]


def test_for_compute_alone_a_gpu_is_its_render_node() -> None:
    profile = Profile(name="p", device_class="compute", capabilities=("compute",))
    (made,) = drafts(inventory(gpu(0)), (profile,))
    assert made.kind == "intel.com/compute"
    assert devices(made)["0"] == ["/dev/dri/renderD128"]


def test_a_display_that_cannot_compute_is_no_device_for_it() -> None:
    display = gpu(0, node("/dev/dri/card0", "card", *CARD_CAPABILITIES))
    profile = Profile(name="p", device_class="gpu", capabilities=("compute",))
    assert devices(drafts(inventory(display, gpu(1)), (profile,))[0]).keys() == {
        "1",
        "0000-01-00-0-0x56c0",
        "card1",
    }


def test_the_groups_of_the_nodes_come_along() -> None:
    (made,) = drafts(inventory(gpu(0)), (DEFAULT,))
    assert made.devices[0].edits.additional_gids == (44, 993)


def test_each_profile_gives_a_kind_of_gpus_and_npus_stay_one() -> None:
    profiles = (DEFAULT, Profile(name="video", device_class="video", capabilities=("video",)))
    kinds = [made.kind for made in drafts(inventory(gpu(0), npu()), profiles)]
    assert kinds == ["intel.com/gpu", "intel.com/video", "intel.com/npu"]


def test_a_profile_named_as_npus_are_is_theirs() -> None:
    profile = Profile(name="npu", device_class="npu", names=("card",))
    made = {draft.kind: draft for draft in drafts(inventory(gpu(0), npu()), (DEFAULT, profile))}
    assert made.keys() == {"intel.com/gpu", "intel.com/npu"}
    assert devices(made["intel.com/npu"]) == {"accel0": ["/dev/accel/accel0"]}


def test_a_profiles_capabilities_are_of_gpus_and_cost_no_npu_its_node() -> None:
    profile = Profile(name="p", device_class="gpu", capabilities=("display",))
    made = drafts(inventory(npu()), (profile,))
    assert devices(made[-1])["0"] == ["/dev/accel/accel0"]


def test_an_unusable_device_is_none_and_moves_no_name() -> None:
    broken = replace(gpu(0), usable=False, nodes=())
    assert "0" not in devices(drafts(inventory(broken, gpu(1)), (DEFAULT,))[0])


def test_all_leaves_out_what_is_for_virtual_machines() -> None:
    machine = gpu(1, node("/dev/vfio/7", "vfio"), node("/dev/vfio/vfio", "vfio-control"))
    document = build(drafts(inventory(gpu(0), machine), (DEFAULT,))[0])
    (everything,) = (device for device in document["devices"] if device["name"] == "all")
    paths = [each["path"] for each in everything["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/dri/card0", "/dev/dri/renderD128"]


@given(hosts())
def test_no_name_is_given_twice_and_no_device_is_empty(given: Inventory) -> None:
    for made in drafts(given, (DEFAULT,)):
        names = [device.name for device in made.devices]
        assert len(set(names)) == len(names)
        assert all(device.edits.device_nodes for device in made.devices)
