"""The PCI paths and NUMA nodes of devices, and the CPUs of the NUMA nodes, for every vendor."""

from pathlib import Path

import pytest
from support.hosts import amd_tree, intel_tree
from support.hosts.amd import discover as discover_amd
from support.hosts.driver_files import debian_13, link
from support.hosts.intel import discover as discover_intel
from support.hosts.nvidia import boot, discover
from support.hosts.pci_places import place
from support.values.devices import accelerator

from cdigen.host.root import Root
from cdigen.model.inventory import Accelerator
from cdigen.vendors.kernel.pci.place import placed

BRIDGES = "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:08.0"
PATH = tuple(BRIDGES.split("/"))


def gpu(address: str = "0000:1b:00.0") -> Accelerator:
    return accelerator(0, address)


def laid(root: Path, numa_node: str = "1\n", cpus: str = "32-63,96-127\n", *, above: str = BRIDGES) -> Root:
    """Write the folder of a device in /sys/devices and the link to the folder; return the root."""
    folder = root / "sys/devices" / above / "0000:1b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text(numa_node)
    (folder / "local_cpulist").write_text(cpus)
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    (root / "sys/bus/pci/devices/0000:1b:00.0").symlink_to(f"../../../devices/{above}/0000:1b:00.0")
    return Root(str(root))


def test_the_pci_path_of_a_device_is_the_folders_above_it(tmp_path: Path) -> None:
    (found,) = placed(laid(tmp_path), [gpu()])
    assert (found.pci_path, found.numa_node, found.cpus) == (PATH, 1, "32-63,96-127")


def test_the_pci_path_begins_at_the_root_complex(tmp_path: Path) -> None:
    above = "LNXSYSTM:00/VMBUS:00/47505500-0001/pci0001:00"
    assert placed(laid(tmp_path, above=above), [gpu()])[0].pci_path == ("pci0001:00",)


@pytest.mark.parametrize("text", ["-1\n", "", "garbage\n", "99999999999\n", "1 2\n"])
def test_an_unknown_numa_node_is_none(tmp_path: Path, text: str) -> None:
    assert placed(laid(tmp_path, text), [gpu()])[0].numa_node is None


@pytest.mark.parametrize("text", ["", "\n", "all\n", "0-\n", "0-3;reboot\n"])
def test_an_invalid_list_of_cpus_is_empty(tmp_path: Path, text: str) -> None:
    assert placed(laid(tmp_path, cpus=text), [gpu()])[0].cpus == ""


def test_a_device_whose_address_is_not_on_the_bus_has_no_pci_path_and_no_numa_node(tmp_path: Path) -> None:
    lost, elsewhere, whole = placed(laid(tmp_path), [gpu("0000:5e:00.0"), gpu(""), gpu()])
    assert [(each.pci_path, each.numa_node, each.cpus) for each in (lost, elsewhere)] == [((), None, "")] * 2
    assert whole.pci_path == PATH


def test_a_device_with_missing_files_does_not_affect_the_cpus_of_other_devices(tmp_path: Path) -> None:
    host = laid(tmp_path)
    broken = tmp_path / "sys/devices/pci0000:40/0000:40:02.0"
    broken.mkdir()
    (broken / "numa_node").write_text("1\n")
    (tmp_path / "sys/bus/pci/devices/0000:40:02.0").symlink_to("../../../devices/pci0000:40/0000:40:02.0")
    first, second = placed(host, [gpu("0000:40:02.0"), gpu()])
    assert (first.cpus, second.cpus) == ("", "32-63,96-127")


def test_nvidia_gpus_have_pci_paths_numa_nodes_and_cpus(root: Path) -> None:
    debian_13(root)
    first, second = boot(root, 2)
    place(root, first.bdf, BRIDGES, numa_node=1, cpus="32-63")
    place(root, second.bdf, "pci0000:00")
    found = discover(root).accelerators
    assert [(each.pci_path, each.numa_node, each.cpus) for each in found] == [
        (PATH, 1, "32-63"),
        (("pci0000:00",), None, ""),
    ]


def test_amd_gpus_and_npus_have_pci_paths_numa_nodes_and_cpus(root: Path) -> None:
    gpus = amd_tree.mi210(1)
    amd_tree.write(root, gpus)
    amd_tree.write_npu(root, bdf="0000:c5:00.1")
    link(root / "sys/bus/pci/devices/0000:c5:00.1", "../../../devices/pci0000:00/0000:c5:00.1")
    place(root, gpus[0].bdf, BRIDGES, numa_node=0, cpus="0-31")
    found, npu = discover_amd(root).accelerators
    assert (found.pci_path, found.numa_node, found.cpus) == (PATH, 0, "0-31")
    assert npu.pci_path == ("pci0000:00",)


def test_intel_gpus_and_virtual_functions_have_pci_paths_numa_nodes_and_cpus(root: Path) -> None:
    intel_tree.lay(
        root,
        intel_tree.gpu(0, "0000:4d:00.0", "0x56c0", "i915", vfs=("0000:4d:00.1",)),
        intel_tree.gpu(1, "0000:4d:00.1", "0x56c0", "i915"),
    )
    for address in ("0000:4d:00.0", "0000:4d:00.1"):
        place(root, address, BRIDGES, numa_node=1, cpus="32-63")
    found = discover_intel(root).accelerators
    assert [(each.pci_path, each.numa_node, each.cpus) for each in found] == [(PATH, 1, "32-63")] * 2
