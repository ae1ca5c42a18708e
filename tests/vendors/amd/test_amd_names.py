"""The names of AMD's devices, and their nodes in a container."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, document, offered, rules
from support.hosts.amd_tree import mi210, mi300x
from support.hosts.driver_files import put

from cdigen.model.profile import DEFAULT
from cdigen.vendors.amd.vendor import VENDOR

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")


def test_a_gpu_is_named_by_number_unique_id_and_address(tmp_path: Path) -> None:
    offers = offered(tmp_path, discover(tmp_path, *mi210(2)))
    assert set(offers) == {
        *("0", "1", "0000:05:00.0", "0000:26:00.0", "all"),
        *(f"0x{unique_id:X}" for unique_id in amd_tree.UNIQUE_IDS[:2]),
    }


def test_the_unique_id_and_the_address_of_a_partitioned_gpu_mean_all_its_partitions(tmp_path: Path) -> None:
    offers = offered(tmp_path, discover(tmp_path, *mi300x(2, count=2)))
    whole = offers["0000:05:00.0"]
    assert whole == offers[f"0x{amd_tree.UNIQUE_IDS[0]:X}"]
    assert whole == [
        "/dev/dri/card1",
        "/dev/dri/card2",
        "/dev/dri/renderD128",
        "/dev/dri/renderD129",
        "/dev/kfd",
    ]
    assert offers["1"] == ["/dev/dri/card2", "/dev/dri/renderD129", "/dev/kfd"]


def test_a_partition_with_a_unique_id_has_the_id_as_a_name(tmp_path: Path) -> None:
    offers = offered(tmp_path, discover(tmp_path, *mi300x(2, count=1, own_ids=True)))
    first, second = (f"0x{amd_tree.UNIQUE_IDS[0] + part:X}" for part in range(2))
    assert offers[first] == offers["0"]
    assert offers[second] == offers["1"]
    assert len(offers["0000:05:00.0"]) == 5


def test_a_unique_id_that_two_gpus_have_is_not_a_name(tmp_path: Path) -> None:
    gpus = [replace(gpu, unique_id=7) for gpu in mi210(2)]
    inventory = discover(tmp_path, *gpus)
    assert rules(inventory) == [("warning", "gpu-repeated")]
    assert list(offered(tmp_path, inventory)) == ["0", "0000:05:00.0", "0000:26:00.0", "1", "all"]


def test_a_gpu_without_a_unique_id_has_only_its_index_and_address_as_names(tmp_path: Path) -> None:
    inventory = discover(tmp_path, replace(mi210(1)[0], unique_id=0))
    assert list(offered(tmp_path, inventory)) == ["0", "0000:05:00.0", "all"]


def test_a_profile_chooses_the_names(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi300x(2, count=1))
    assert list(offered(tmp_path, inventory, names=("card", "index"))) == ["0", "1", "card1", "card2", "all"]


def test_the_default_names_are_used_if_the_profile_has_no_naming_of_amd(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi210(1))
    assert offered(tmp_path, inventory, names=("minor",)) == offered(tmp_path, inventory)


def test_the_groups_of_the_nodes_are_in_the_additional_gids(tmp_path: Path) -> None:
    inventory = discover(tmp_path, *mi210(1))
    (draft,) = VENDOR.edits(inventory, (DEFAULT,))
    assert draft.devices[0].edits.additional_gids == (amd_tree.VIDEO_GID, amd_tree.RENDER_GID)
    nodes = document(tmp_path, inventory)["devices"][0]["containerEdits"]["deviceNodes"]
    assert all("major" not in node and node["permissions"] == "rw" for node in nodes)


def test_nodes_that_all_users_may_open_need_no_group(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi210(1))
    for node in ("kfd", "dri/card1", "dri/renderD128"):
        (tmp_path / "dev" / node).chmod(0o666)
    (draft,) = VENDOR.edits(discover(tmp_path), (DEFAULT,))
    assert draft.devices[0].edits.additional_gids == ()


def test_a_profile_without_graphics_has_no_card_node(tmp_path: Path) -> None:
    offers = offered(tmp_path, discover(tmp_path, *mi210(1)), graphics=False)
    assert offers["0"] == ["/dev/dri/renderD128", "/dev/kfd"]


def test_a_gpu_for_which_the_kernel_has_no_card_node_is_offered(tmp_path: Path) -> None:
    inventory = discover(tmp_path, replace(mi210(1)[0], card=None))
    assert offered(tmp_path, inventory)["0"] == ["/dev/dri/renderD128", "/dev/kfd"]
    assert inventory.findings == ()


@pytest.mark.parametrize(
    ("text", "mib"), [("68702699520\n", 65520), ("0\n", None), ("-1\n", None), ("x\n", None)]
)
def test_a_gpu_has_the_memory_that_amdgpu_reports(tmp_path: Path, text: str, mib: int | None) -> None:
    amd_tree.write(tmp_path, mi210(2))
    put(next(tmp_path.glob("sys/devices/**/0000:05:00.0")) / "mem_info_vram_total", text.encode())
    assert [gpu.memory_mib for gpu in discover(tmp_path).accelerators] == [mib, None]


def test_a_partition_has_the_memory_that_kfd_reports(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, mi300x(2, count=1))
    for number, size in ((2, "51522830336"), (3, "9" * 40)):
        bank = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{number}/mem_banks/0/properties"
        put(bank, f"heap_type 1\nsize_in_bytes {size}\nflags 0\n".encode())
    (gpu,) = discover(tmp_path).accelerators
    assert [part.memory_mib for part in gpu.partitions] == [49136, None]
