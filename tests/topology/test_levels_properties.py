"""For any inventory, relations are symmetric, and the matrix can be printed."""

from hypothesis import given
from hypothesis import strategies as st
from support.values.inventories import inventories
from support.values.topology_places import gpu

from cdigen.model.inventory import Accelerator, Inventory, Link
from cdigen.topology.levels import islands, relation
from cdigen.topology.matrix import devices_of, matrix, text

FOLDERS = st.sampled_from(["pci0000:00", "pci0000:40", "0000:40:01.1", "0000:41:00.0"])
BUSES = ("", "01", "02", "03")


@st.composite
def machines(draw: st.DrawFn) -> tuple[Accelerator, ...]:
    """Draw GPUs with consistent or inconsistent positions and links."""
    peers = st.sampled_from([f"0000:{bus}:00.0" if bus else "" for bus in BUSES])
    link = st.builds(
        Link, peer=peers, technology=st.sampled_from(["nvlink", "xgmi"]), count=st.integers(0, 3)
    )
    return tuple(
        gpu(
            index,
            "/".join([*draw(st.lists(FOLDERS, max_size=4)), draw(peers)]),
            numa_node=draw(st.none() | st.integers(0, 1)),
            links=tuple(draw(st.lists(link, max_size=3))),
            island=draw(st.sampled_from(["", "a", "b"])),
        )
        for index in range(draw(st.integers(0, 5)))
    )


@given(machines())
def test_relations_are_symmetric(gpus: tuple[Accelerator, ...]) -> None:
    for one in gpus:
        assert relation(one, one).cell == "X"
        for other in gpus:
            assert relation(one, other) == relation(other, one)
            assert relation(one, other).nearness >= 10


@given(machines())
def test_every_device_is_in_one_island_with_all_linked_devices(gpus: tuple[Accelerator, ...]) -> None:
    found = islands(gpus)
    assert sorted(number for island in found for number in island) == list(range(len(gpus)))
    for island in found:
        for one in island:
            for other in set(range(len(gpus))) - set(island):
                assert not relation(gpus[one], gpus[other]).technology


@given(st.dictionaries(st.sampled_from(["nvidia", "amd", "intel"]), inventories))
def test_any_inventory_has_a_matrix_with_rows_of_equal_length(found: dict[str, Inventory]) -> None:
    shown = matrix(devices_of(found), ())
    header, *rows = text(shown).splitlines()[: len(shown.devices) + 1]
    assert len(rows) == len(shown.devices)
    # An empty cell without a header follows the NUMA node.
    assert {len(row.split("\t")) for row in rows} <= {len(header.split("\t")) + 1}
