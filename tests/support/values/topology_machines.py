"""Accelerators of real machines: `dgx1`, `hives`, `nvswitch`, `pcie`; `any_machine` for hypothesis."""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from hypothesis import strategies as st
from support.values import devices
from support.values.topology_places import gpu

from cdigen.model.health import Cause
from cdigen.model.inventory import Accelerator, Link, Partition
from cdigen.topology.choose import AcceleratorPart

FELL = Cause(cause="xid-79", since="2026-11-23T10:00:00Z", detail="fell off the bus", clears_when="reboot")
# The number of NVLinks between GPUs, from NVIDIA's go-gpuallocator (gpuallocator/common_test.go).
PASCAL = {(a, b): 1 for half in (0, 4) for a in range(half, half + 4) for b in range(a + 1, half + 4)}
PASCAL |= {(a, a + 4): 1 for a in range(4)}
VOLTA = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1,
    (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
# The PCIe switch of each GPU. Pascal machine: GPUs 0 and 2 share a switch. Volta machine: GPUs 0 and 1.
PASCAL_SWITCHES = (0, 1, 0, 1, 2, 3, 2, 3)
VOLTA_SWITCHES = (0, 0, 1, 1, 2, 2, 3, 3)


def address(index: int) -> str:
    return f"0000:{index * 14 + 17:02x}:00.0"


def mesh(technology: Any, counts: dict[tuple[int, int], int], index: int) -> tuple[Link, ...]:
    """Return the links of the GPU INDEX; COUNTS has the number of links by pair of GPUs."""
    both = counts | {(b, a): count for (a, b), count in counts.items()}
    return tuple(
        Link(peer=address(b), technology=technology, count=count)
        for (a, b), count in sorted(both.items())
        if a == index
    )


def placed(index: int, *, socket: int | None, switch: int | None = None, **more: object) -> Accelerator:
    """Return a GPU below SWITCH, or below a root port of its own, at the host bridge of its SOCKET."""
    bus = (socket or 0) * 0x40
    above = f"0000:{bus:02x}:{index + 1:02x}.0"
    if switch is not None:
        # A root port, the upper port of the switch, and its port to the GPU.
        first = bus + 4 * switch + 1
        above = f"0000:{bus:02x}:{switch + 1:02x}.0/0000:{first:02x}:00.0/0000:{first + 1:02x}:{index:02x}.0"
    return gpu(index, f"pci0000:{bus:02x}/{above}/{address(index)}", numa_node=socket, **more)


def dgx1(counts: dict[tuple[int, int], int], switches: tuple[int, ...]) -> tuple[Accelerator, ...]:
    """Return the 8 GPUs of a DGX-1: two sockets, four switches, NVLinks as a cube mesh."""
    return tuple(
        placed(n, socket=n // 4, switch=switches[n], links=mesh("nvlink", counts, n)) for n in range(8)
    )


def rtx8000() -> tuple[Accelerator, ...]:
    """Return 4 GPUs on two sockets, bridged by NVLink across the sockets: 0 and 3, 1 and 2."""
    bridges = {(0, 3): 2, (1, 2): 2}
    return tuple(placed(n, socket=n // 2, links=mesh("nvlink", bridges, n)) for n in range(4))


def pairs(counts: Iterable[int]) -> tuple[Accelerator, ...]:
    """Return pairs of GPUs without PCI positions; COUNTS has the number of NVLinks of each pair."""
    bridges = {(2 * n, 2 * n + 1): count for n, count in enumerate(counts)}
    devices = sorted({n for both in bridges for n in both})
    return tuple(gpu(n, address(n), links=mesh("nvlink", bridges, n)) for n in devices)


def hives(count: int, size: int, *, per_socket: int) -> tuple[Accelerator, ...]:
    """Return COUNT AMD GPUs in XGMI hives of SIZE GPUs; all GPUs of a hive are linked."""
    linked = {(a, b): 1 for a in range(count) for b in range(a + 1, count) if a // size == b // size}
    return tuple(
        placed(
            n,
            socket=n // per_socket,
            links=mesh("xgmi", linked, n),
            island=f"hive-{n // size}",
            model="AMD Instinct",
        )
        for n in range(count)
    )


def nvswitch(count: int, links: int, *, island: int = 0) -> tuple[Accelerator, ...]:
    """Return COUNT GPUs on two sockets, two per PCIe switch, each with LINKS links to NVSwitches.

    ISLAND is the number of GPUs with the same NVSwitches (0: all GPUs).
    """
    link = (Link(peer="", technology="nvlink", count=links),)
    return tuple(
        placed(
            n, socket=n * 2 // count, switch=n // 2, links=link, island=f"nvswitch-{n // (island or count)}"
        )
        for n in range(count)
    )


def dgx_a100() -> tuple[Accelerator, ...]:
    """Return the 8 GPUs of a DGX A100: pairs below two levels of switches, on four NUMA nodes."""
    nodes = ((3, "48-63,176-191"), (1, "16-31,144-159"), (7, "112-127,240-255"), (5, "80-95,208-223"))
    link = (Link(peer="", technology="nvlink", count=12),)
    gpus = []
    for index in range(8):
        node, cpus = nodes[index // 2]
        bus, half = f"0000:{(index // 2) * 4:x}", index % 2
        switch = f"{bus}0:01.1/{bus}1:00.0/{bus}2:{half:02x}.0"
        above = f"pci{bus}0/{switch}/{bus}{3 + half}:00.0/{bus}{5 + half}:00.0"
        gpus.append(
            gpu(
                index,
                f"{above}/{bus}{7 + half}:00.0",
                numa_node=node,
                cpus=cpus,
                links=link,
                island="nvswitch",
                model="NVIDIA A100-SXM4-80GB",
            )
        )
    return tuple(gpus)


def pcie(count: int, *, per_socket: int, per_switch: int | None = None) -> tuple[Accelerator, ...]:
    """Return COUNT GPUs without direct links."""
    return tuple(
        placed(n, socket=n // per_socket, switch=None if per_switch is None else n // per_switch)
        for n in range(count)
    )


def partitioned(devices: tuple[Accelerator, ...], count: int) -> tuple[AcceleratorPart, ...]:
    """Return COUNT partitions of each of DEVICES, named as ``<GPU>:<partition>``."""
    return tuple(
        AcceleratorPart(name=f"{device.index}:{n}", accelerator=device, partition=partition(n))
        for device in devices
        for n in range(count)
    )


def partition(index: int) -> Partition:
    return devices.partition(f"gi{index}/ci0", index)


def replicas(devices: tuple[Accelerator, ...], count: int) -> tuple[AcceleratorPart, ...]:
    """Return COUNT replicas of each of DEVICES, with the names of NVIDIA's device plugin: ``GPU-0::1``."""
    return tuple(
        AcceleratorPart(name=f"GPU-{device.index}::{n}", accelerator=device)
        for device in devices
        for n in range(count)
    )


# The PCI folders above a GPU, with two host bridges and three switches; () is an unreadable folder.
PATHS = (
    (),
    ("pci0000:00", "0000:00:01.0"),
    ("pci0000:00", "0000:00:02.0", "0000:01:00.0"),
    ("pci0000:00", "0000:00:02.0", "0000:01:01.0"),
    ("pci0000:40", "0000:40:01.0", "0000:41:00.0"),
    ("pci0000:40", "0000:40:02.0"),
)


@st.composite
def any_machine(draw: st.DrawFn, most: int = 12) -> tuple[Accelerator, ...]:
    count = draw(st.integers(1, most))
    every = list(combinations(range(count), 2))
    counts = draw(st.dictionaries(st.sampled_from(every), st.integers(1, 4), max_size=8)) if every else {}
    switched = draw(st.booleans())
    return tuple(
        gpu(
            n,
            "/".join((*draw(st.sampled_from(PATHS)), draw(st.sampled_from((address(n), address(n), ""))))),
            numa_node=draw(st.sampled_from((None, 0, 1))),
            links=(
                *mesh("nvlink", counts, n),
                *((Link(peer="", technology="nvlink", count=2),) if switched else ()),
            ),
            island=draw(st.sampled_from(("", "one", "two"))),
        )
        for n in range(count)
    )
