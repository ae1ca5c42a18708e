"""`cdigen topology` prints the published output of 'nvidia-smi topo -m' for the same machines.

The captures are from drivers 470 to 580. The tests add the column GPU NUMA ID to captures
without this column. Network cards have their newer names (NIC0).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.hosts.driver_files import debian_13, link, put
from support.hosts.nvidia_kernel import write_kernel_side
from support.hosts.pci_places import place
from support.nvml.nvlinks import address, linked, on_the_bus, switched
from support.nvml.standin import Gpu, Machine, gpu, install, trusted_folder
from support.values.topology_machines import VOLTA

TITLES = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
# NVIDIA DGX A100 has four groups of two GPUs and two network cards. A group shares an upper switch, and each
# device has a separate lower switch.
DGX_A100 = """\
GPU0 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 PXB PXB SYS SYS SYS SYS SYS SYS SYS SYS 48-63,176-191 3
GPU1 NV12 X NV12 NV12 NV12 NV12 NV12 NV12 PXB PXB SYS SYS SYS SYS SYS SYS SYS SYS 48-63,176-191 3
GPU2 NV12 NV12 X NV12 NV12 NV12 NV12 NV12 SYS SYS PXB PXB SYS SYS SYS SYS SYS SYS 16-31,144-159 1
GPU3 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 SYS SYS PXB PXB SYS SYS SYS SYS SYS SYS 16-31,144-159 1
GPU4 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 SYS SYS SYS SYS PXB PXB SYS SYS SYS SYS 112-127,240-255 7
GPU5 NV12 NV12 NV12 NV12 NV12 X NV12 NV12 SYS SYS SYS SYS PXB PXB SYS SYS SYS SYS 112-127,240-255 7
GPU6 NV12 NV12 NV12 NV12 NV12 NV12 X NV12 SYS SYS SYS SYS SYS SYS PXB PXB SYS SYS 80-95,208-223 5
GPU7 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X SYS SYS SYS SYS SYS SYS PXB PXB SYS SYS 80-95,208-223 5
NIC0 PXB PXB SYS SYS SYS SYS SYS SYS X PXB SYS SYS SYS SYS SYS SYS SYS SYS
"""
# HGX A100 with four GPUs and direct NVLinks; two of the GPUs are at each socket.
HGX_A100_4 = """\
GPU0 X NV4 NV4 NV4 NODE 0-23 0
GPU1 NV4 X NV4 NV4 NODE 0-23 0
GPU2 NV4 NV4 X NV4 SYS 24-47 1
GPU3 NV4 NV4 NV4 X SYS 24-47 1
NIC0 NODE NODE SYS SYS X
"""
# Four H100 with direct links, each on a separate NUMA node with a network card (NVIDIA/nccl, issue 1617).
FOUR_H100 = """\
GPU0 X NV6 NV6 NV6 PIX SYS SYS SYS 6,14,22,30 3
GPU1 NV6 X NV6 NV6 SYS PIX SYS SYS 4,12,20,28 1
GPU2 NV6 NV6 X NV6 SYS SYS PIX SYS 7,15,23,31 7
GPU3 NV6 NV6 NV6 X SYS SYS SYS PIX 5,13,21,29 5
NIC0 PIX SYS SYS SYS X SYS SYS SYS
NIC1 SYS PIX SYS SYS SYS X SYS SYS
NIC2 SYS SYS PIX SYS SYS SYS X SYS
NIC3 SYS SYS SYS PIX SYS SYS SYS X
"""
# DGX-1 with Volta GPUs: two GPUs have no, one or two links. Each switch has two GPUs and a network card.
DGX_1 = """\
GPU0 X NV1 NV1 NV2 NV2 SYS SYS SYS PIX PHB SYS SYS 0-19,40-59 0
GPU1 NV1 X NV2 NV1 SYS NV2 SYS SYS PIX PHB SYS SYS 0-19,40-59 0
GPU2 NV1 NV2 X NV2 SYS SYS NV1 SYS PHB PIX SYS SYS 0-19,40-59 0
GPU3 NV2 NV1 NV2 X SYS SYS SYS NV1 PHB PIX SYS SYS 0-19,40-59 0
GPU4 NV2 SYS SYS SYS X NV1 NV1 NV2 SYS SYS PIX PHB 20-39,60-79 1
GPU5 SYS NV2 SYS SYS NV1 X NV2 NV1 SYS SYS PIX PHB 20-39,60-79 1
GPU6 SYS SYS NV1 SYS NV1 NV2 X NV2 SYS SYS PHB PIX 20-39,60-79 1
GPU7 SYS SYS SYS NV1 NV2 NV1 NV2 X SYS SYS PHB PIX 20-39,60-79 1
NIC0 PIX PIX PHB PHB SYS SYS SYS SYS X PHB SYS SYS
NIC1 PHB PHB PIX PIX SYS SYS SYS SYS PHB X SYS SYS
NIC2 SYS SYS SYS SYS PIX PIX PHB PHB SYS SYS X PHB
NIC3 SYS SYS SYS SYS PHB PHB PIX PIX SYS SYS PHB X
"""
TWO_L4 = """\
GPU0 X SYS 16-31 1
GPU1 SYS X 0-15 0
"""
FOUR_A4000 = """\
GPU0 X NODE NODE NODE 0-31 0
GPU1 NODE X NODE NODE 0-31 0
GPU2 NODE NODE X NODE 0-31 0
GPU3 NODE NODE NODE X 0-31 0
"""
TWO_5090 = """\
GPU0 X PHB 0-63 0
GPU1 PHB X 0-63 0
"""


class Tree:
    """A host with NVIDIA's GPUs and network cards at given PCI addresses."""

    def __init__(self, folder: Path, gpus: tuple[Gpu, ...]) -> None:
        self.root = folder / "host"
        laid = debian_13(self.root)
        version = laid.libraries["libcuda.so.1"].partition(".so.")[2]
        write_kernel_side(self.root, on_the_bus(len(gpus)), driver_version=version)
        self.library = install(folder / "nvml", Machine(gpus=gpus))

    def gpu(self, number: int, above: str, numa_node: int, cpus: str) -> None:
        place(self.root, address(number), above, numa_node=numa_node, cpus=cpus)

    def nic(self, number: int, above: str, numa_node: int, function: int = 0) -> None:
        where = f"0000:{0xA0 + number:02x}:00.{function}"
        folder = f"devices/{above}/{where}"
        put(self.root / f"sys/{folder}/numa_node", f"{numa_node}\n".encode())
        link(self.root / f"sys/bus/pci/devices/{where}", f"{'../' * 3}{folder}")
        link(self.root / f"sys/{folder}/infiniband/mlx5_{number}/device", f"../../../{where}")
        link(self.root / f"sys/class/infiniband/mlx5_{number}", f"../../{folder}/infiniband/mlx5_{number}")

    def shown(self, cdigen: Run) -> list[str]:
        done = cdigen("topology", "--root", self.root, "--nvml", self.library)
        assert (done.code, done.err) == (0, "")
        return done.out.splitlines()


def joined(count: int, links: int) -> tuple[Gpu, ...]:
    """Return COUNT GPUs with LINKS links between each pair of GPUs."""
    return tuple(
        linked(one, *(other for other in range(count) if other != one for _ in range(links)))
        for one in range(count)
    )


def rows(capture: str) -> list[str]:
    """Return the lines of CAPTURE (words and spaces) in the form that `cdigen topology` prints."""
    lines = []
    for line in capture.splitlines():
        label, *cells = line.split()
        ends = ["", "", "", ""] if label.startswith("NIC") else [cells[-2], cells[-1], "", "N/A"]
        cells = cells if label.startswith("NIC") else cells[:-2]
        lines.append("\t".join([label, *(" X " if cell == "X" else cell for cell in cells), *ends]))
    return lines


@pytest.fixture
def folder(real_nodes: None) -> Iterator[Path]:  # noqa: ARG001 - the fixture checks that nodes can be created
    with trusted_folder() as place_:
        yield place_


def test_the_topology_of_a_dgx_a100_equals_the_capture(cdigen: Run, folder: Path) -> None:
    tree = Tree(folder, tuple(switched(number, 8, 12) for number in range(8)))
    nodes = ((3, "48-63,176-191"), (1, "16-31,144-159"), (7, "112-127,240-255"), (5, "80-95,208-223"))
    for pair, (node, cpus) in enumerate(nodes):
        first = f"0000:{pair + 1:x}"
        root = f"pci{first}0/{first}0:01.1/{first}1:00.0"
        for half in (0, 1):
            gpus = f"{root}/{first}2:{half:02x}.0/{first}{3 + half}:00.0/{first}{5 + half}:00.0"
            cards = f"{root}/{first}2:{4 + half:02x}.0/{first}{7 + half}:00.0/{first}9:0{half}.0"
            tree.gpu(2 * pair + half, gpus, node, cpus)
            tree.nic(2 * pair + half, cards, node)
    for number in (8, 9):
        tree.nic(number, f"pci0000:f{number}/0000:f{number}:01.1", 2 * (number - 8))
    lines = tree.shown(cdigen)
    assert lines[1:10] == rows(DGX_A100)
    assert lines[0].split("\t")[9:] == [*(f"NIC{number}" for number in range(10)), *TITLES]


def test_the_topology_of_four_gpus_with_direct_links_equals_the_capture(cdigen: Run, folder: Path) -> None:
    tree = Tree(folder, joined(4, 4))
    for number in range(4):
        above = f"pci0000:{number + 1}0/0000:{number + 1}0:01.1"
        tree.gpu(number, above, number // 2, ("0-23", "24-47")[number // 2])
    tree.nic(0, "pci0000:60/0000:60:01.1", 0)
    assert tree.shown(cdigen)[1:6] == rows(HGX_A100_4)


def test_the_topology_of_four_gpus_on_four_numa_nodes_equals_the_capture(cdigen: Run, folder: Path) -> None:
    tree = Tree(folder, joined(4, 6))
    nodes = ((3, "6,14,22,30"), (1, "4,12,20,28"), (7, "7,15,23,31"), (5, "5,13,21,29"))
    for number, (node, cpus) in enumerate(nodes):
        first = f"0000:{number + 1}"
        switch = f"pci{first}0/{first}0:01.1/{first}1:00.0"
        tree.gpu(number, f"{switch}/{first}2:00.0", node, cpus)
        tree.nic(number, f"{switch}/{first}2:01.0", node)
    assert tree.shown(cdigen)[1:9] == rows(FOUR_H100)


def test_the_topology_of_a_dgx_1_with_1_or_2_links_equals_the_capture(cdigen: Run, folder: Path) -> None:
    both = VOLTA | {(other, one): count for (one, other), count in VOLTA.items()}
    tree = Tree(
        folder,
        tuple(
            linked(one, *(other for other in range(8) for _ in range(both.get((one, other), 0))))
            for one in range(8)
        ),
    )
    for number in range(4):
        top = f"0000:{number // 2 * 8}0"
        switch = f"pci{top}/{top}:0{number % 2 + 1}.0/0000:f{number}:00.0"
        for half in (0, 1):
            cpus = ("0-19,40-59", "20-39,60-79")[number // 2]
            tree.gpu(2 * number + half, f"{switch}/0000:e{number}:0{half}.0", number // 2, cpus)
        tree.nic(number, f"{switch}/0000:e{number}:02.0", number // 2)
    assert tree.shown(cdigen)[1:13] == rows(DGX_1)


@pytest.mark.parametrize(
    ("capture", "places"),
    [
        (TWO_L4, [("pci0000:c0/0000:c0:01.1", 1, "16-31"), ("pci0000:00/0000:00:01.1", 0, "0-15")]),
        (FOUR_A4000, [(f"pci0000:{bus}0/0000:{bus}0:01.1", 0, "0-31") for bus in "1468"]),
        (TWO_5090, [(f"pci0000:00/0000:00:0{port}.1", 0, "0-63") for port in "13"]),
    ],
    ids=["two sockets", "one socket", "one host bridge"],
)
def test_the_topology_of_gpus_without_links_equals_the_capture(
    cdigen: Run, folder: Path, capture: str, places: list[tuple[str, int, str]]
) -> None:
    tree = Tree(folder, tuple(gpu(number) for number in range(len(places))))
    for number, (above, node, cpus) in enumerate(places):
        tree.gpu(number, above, node, cpus)
    assert tree.shown(cdigen)[1 : len(places) + 1] == rows(capture)


def test_16_gpus_below_switches_of_two_sockets_have_the_expected_levels(cdigen: Run, folder: Path) -> None:
    """Each socket has two ports, each port has two switches, and each switch has two GPUs."""
    tree = Tree(folder, tuple(gpu(number) for number in range(16)))
    for number in range(16):
        socket, switch = number // 8, number // 2 % 4
        top = f"pci0000:{4 * socket + switch // 2 * 2:02x}"
        upper = f"{top}/{top[3:]}:01.1/0000:f{socket}:{switch // 2:02x}.0"
        below = f"{upper}/0000:f{2 + socket}:{switch:02x}.0/0000:f{4 + socket}:{switch:02x}.0"
        port = f"{below}/0000:f{6 + socket}:{number % 8:02x}.0"
        tree.gpu(number, port, socket, ("0-31", "32-63")[socket])
    lines = tree.shown(cdigen)
    cells = [line.split("\t")[1:17] for line in lines[1:17]]
    assert cells[0] == [" X ", "PIX", *["PXB"] * 2, *["NODE"] * 4, *["SYS"] * 8]
    assert cells == [list(column) for column in zip(*cells, strict=True)]
    assert lines[16] == "\t".join(
        ["GPU15", *["SYS"] * 8, *["NODE"] * 4, *["PXB"] * 2, "PIX", " X ", "32-63", "1", "", "N/A"]
    )


def test_a_lost_gpu_keeps_its_row_and_other_gpus_keep_their_links(cdigen: Run, folder: Path) -> None:
    tree = Tree(folder, tuple(switched(number, 4, 12) for number in range(4)))
    for number in range(4):
        tree.gpu(number, f"pci0000:{number + 1}0", 0, "0-31")
    (tree.root / "dev/nvidia2").unlink()
    cells = [line.split("\t")[1:5] for line in tree.shown(cdigen)[1:5]]
    assert cells == [
        [" X ", "NV12", "NODE", "NV12"],
        ["NV12", " X ", "NODE", "NV12"],
        ["NODE", "NODE", " X ", "NODE"],
        ["NV12", "NV12", "NODE", " X "],
    ]
