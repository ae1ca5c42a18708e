"""The matrix equals the output of 'nvidia-smi topo -m' on the same machine, including tabs.

The expected outputs are from public reports. The tests invent folders in /sys that result in these outputs.
"""

from support.values.devices import inventory
from support.values.topology_places import gpu, links

from cdigen.topology.matrix import MatrixDevice, devices_of, matrix, text
from cdigen.value import replace
from cdigen.vendors.kernel.pci.place import Nic

LEGEND = """\

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
# Four A100-SXM4 of a machine with NVSwitches, driver 580.105.08.
FOUR_A100 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tNV12\tNV12\tSYS\t32-63,96-127\t1\t\tN/A
GPU1\tNV12\t X \tNV12\tNV12\tSYS\t32-63,96-127\t1\t\tN/A
GPU2\tNV12\tNV12\t X \tNV12\tSYS\t32-63,96-127\t1\t\tN/A
GPU3\tNV12\tNV12\tNV12\t X \tSYS\t32-63,96-127\t1\t\tN/A
NIC0\tSYS\tSYS\tSYS\tSYS\t X \t\t\t\t
"""
# A DGX H100 with ten network cards; two cards have two functions.
DGX_H100 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\tNIC2\tNIC3\tNIC4\tNIC5\tNIC6\tNIC7\tNIC8\tNIC9\tNIC10\tNIC11\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPXB\tNODE\tNODE\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNODE\tNODE\tNODE\tPXB\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNODE\tNODE\tNODE\tNODE\tPXB\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNODE\tNODE\tNODE\tNODE\tNODE\tPXB\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t0-55,112-167\t0\t\tN/A
GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tPXB\tNODE\tNODE\tNODE\tNODE\tNODE\t56-111,168-223\t1\t\tN/A
GPU5\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\tPXB\tNODE\tNODE\t56-111,168-223\t1\t\tN/A
GPU6\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\tNODE\tPXB\tNODE\t56-111,168-223\t1\t\tN/A
GPU7\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\tNODE\tNODE\tPXB\t56-111,168-223\t1\t\tN/A
NIC0\tPXB\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \tNODE\tNODE\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
NIC1\tNODE\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tNODE\t X \tPIX\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
NIC2\tNODE\tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tNODE\tPIX\t X \tNODE\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
NIC3\tNODE\tPXB\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\t X \tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
NIC4\tNODE\tNODE\tPXB\tNODE\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\tNODE\t X \tNODE\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
NIC5\tNODE\tNODE\tNODE\tPXB\tSYS\tSYS\tSYS\tSYS\tNODE\tNODE\tNODE\tNODE\tNODE\t X \tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t\t\t\t
"""  # noqa: E501 - as published
GPU_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
# For each network device, the GPU on the same switch. None means that the device is one function of a card
# with two functions. These cards are on separate root ports.
NIC_SWITCHES = (0, None, None, 1, 2, 3, 4, None, None, 5, 6, 7)


def below(number: int) -> str:
    """Return the PCI path to the upstream port of the switch above the GPU with the index NUMBER."""
    bus = int(GPU_BUSES[number], 16) - 8
    return f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"


def nic(number: int) -> Nic:
    switch = NIC_SWITCHES[number]
    node = number // 6
    above = f"pci0000:{0x29 + node:02x}/0000:{0x29 + node:02x}:01.0"
    address = f"0000:{0x2A + node:02x}:00.{number % 6 - 1}"
    if switch is not None:
        above, address = f"{below(switch)}/0000:{0xE2 + switch:02x}:01.0", f"0000:{0xEA + switch:02x}:00.0"
    return Nic(name=f"mlx5_{number}", address=address, pci_path=tuple(above.split("/")), numa_node=node)


def test_the_matrix_of_four_a100_equals_the_published_matrix() -> None:
    buses = ("41", "81", "a1", "c1")
    machine = tuple(
        MatrixDevice(
            label=f"GPU{number}",
            vendor="nvidia",
            accelerator=gpu(
                number,
                f"pci0000:{int(bus, 16) - 1:02x}/0000:{int(bus, 16) - 1:02x}:01.1/0000:{bus}:00.0",
                numa_node=1,
                cpus="32-63,96-127",
                links=links("nvlink", switch=12),
                island="nvlink",
            ),
        )
        for number, bus in enumerate(buses)
    )
    card = Nic(name="rocep49s0", address="0000:31:00.0", pci_path=("pci0000:30",), numa_node=0)
    assert text(matrix(machine, (card,))) == f"{FOUR_A100}{LEGEND}\nNIC Legend:\n\n  NIC0: rocep49s0\n\n"


def test_the_matrix_of_a_dgx_h100_equals_the_published_matrix() -> None:
    machine = tuple(
        MatrixDevice(
            label=f"GPU{number}",
            vendor="nvidia",
            accelerator=gpu(
                number,
                f"{below(number)}/0000:0{2 + number}:00.0/0000:{0x12 + number:02x}:00.0/0000:{bus}:00.0",
                numa_node=number // 4,
                cpus=("0-55,112-167", "56-111,168-223")[number // 4],
                links=links("nvlink", switch=18),
                island="nvlink",
            ),
        )
        for number, bus in enumerate(GPU_BUSES)
    )
    lines = text(matrix(machine, tuple(nic(number) for number in range(12)))).splitlines(keepends=True)
    assert "".join(lines[:15]) == DGX_H100


def test_a_machine_without_links_network_cards_and_numa_nodes_has_a_matrix() -> None:
    """A virtual machine: the second GPU has no known path, and there is no NUMA node."""
    machine = devices_of({"nvidia": inventory("nvidia", gpu(0, "pci0000:00/0000:00:05.0"), gpu(1))})
    assert text(matrix(machine, ())) == (
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tSYS\t\tN/A\t\tN/A\n"
        "GPU1\tSYS\t X \t\tN/A\t\tN/A\n"
        f"{LEGEND}\n"
    )


def test_only_the_header_is_formatted_on_a_terminal() -> None:
    machine = devices_of({"nvidia": inventory("nvidia", gpu(0))})
    plain = text(matrix(machine, ()))
    painted = text(matrix(machine, ()), header_as=lambda line: f"<{line}>")
    assert painted.splitlines()[0] == "\t<GPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID>"
    assert painted.splitlines()[1:] == plain.splitlines()[1:]


def test_the_legend_explains_the_links_of_amd_and_intel_only_if_a_device_has_them() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0", links=links("xgmi", at_81=1))
    shown = text(matrix(devices_of({"amd": inventory("amd", one, gpu(1, "pci0000:80/0000:81:00.0"))}), ()))
    assert "GPU0\t X \tXGMI1\t" in shown
    assert "\n  XGMI# = Connection traversing a bonded set of # XGMI links\n" in shown
    assert "XL#" not in shown


def test_links_of_another_packages_vendor_have_the_name_of_their_technology() -> None:
    one = gpu(0, "pci0000:40/0000:41:00.0", links=links("acmelink", at_81=2))
    shown = text(matrix(devices_of({"acme": inventory("acme", one, gpu(1, "pci0000:80/0000:81:00.0"))}), ()))
    assert "GPU0\t X \tACMELINK2\t" in shown
    assert "\n  ACMELINK# = Connection traversing a bonded set of # acmelink links\n" in shown


def test_devices_of_two_vendors_have_unique_labels() -> None:
    first, second = gpu(0, "pci0000:40/0000:41:00.0"), gpu(0, "pci0000:80/0000:81:00.0")
    npu = replace(gpu(0, "pci0000:00/0000:00:0b.0"), device_class="npu")
    both = {"nvidia": inventory("nvidia", first), "amd": inventory("amd", second, npu)}
    assert [device.label for device in devices_of(both)] == ["nvidia0", "amd0", "NPU0"]


def test_a_device_with_two_entries_in_the_inventory_has_one_row() -> None:
    whole = gpu(0, "pci0000:40/0000:41:00.0")
    both = {"intel": inventory("intel", whole, replace(whole, device_class="gpu-mei"))}
    assert [device.label for device in devices_of(both)] == ["GPU0"]
