"""`cdigen topology`: the matrix of a host, from the daemon's inventory if a daemon runs."""

from pathlib import Path

import pytest
from support.command.fixtures import GPUS, Run
from support.command.terminal import on_terminal
from support.hosts.driver_files import link, put
from support.hosts.pci_places import place
from support.paths import REPOSITORY
from support.values.unhealthy_gpus import FELL, example, save, with_causes

from cdigen.value import replace

EXAMPLES = REPOSITORY / "examples/hosts"


def test_without_a_daemon_the_host_is_discovered(cdigen: Run, host: Path) -> None:
    for number, gpu in enumerate(GPUS):
        place(host, gpu.bdf, f"pci0000:40/0000:40:0{number}.1", numa_node=1, cpus="32-63")
    done = cdigen("topology", "--root", host)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:3] == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tPHB\t32-63\t1\t\tN/A",
        "GPU1\tPHB\t X \t32-63\t1\t\tN/A",
    ]


def test_links_and_health_come_from_the_daemons_inventory(cdigen: Run, tmp_path: Path) -> None:
    save(tmp_path, with_causes(example(), 3, FELL))
    found = cdigen("topology", "--root", tmp_path, "--json").json
    assert {row["level"] for row in found["links"]} == {"NV18"}
    assert len(found["links"]) == 8 * 7 / 2
    assert found["islands"] == [[f"GPU{number}" for number in range(8)]]
    assert [row["health"] for row in found["devices"]] == ["healthy"] * 3 + ["unhealthy"] + ["healthy"] * 4


def test_with_an_inventory_of_another_driver_the_host_is_discovered(cdigen: Run, host: Path) -> None:
    (inventory,) = example().values()
    save(host, {"nvidia": replace(inventory, driver=replace(inventory.driver, version="535.1"))})
    done = cdigen("topology", "--root", host)
    assert done.code == 0
    assert "nvidia: the inventory is stale: it describes driver" in done.err
    assert [line.split("\t")[0] for line in done.out.splitlines()[:4]] == ["", "GPU0", "GPU1", ""]
    assert cdigen("topology", "--root", host, "--vendor", "amd").err.count("stale") == 0


def test_network_cards_are_ordered_by_the_numbers_in_their_names(cdigen: Run, host: Path) -> None:
    place(host, GPUS[0].bdf, "pci0000:40/0000:40:01.1", numa_node=0)
    for name, address in (("mlx5_10", "0000:42:00.0"), ("mlx5_2", "0000:41:00.1")):
        folder = f"devices/pci0000:40/0000:40:01.1/{address}"
        put(host / f"sys/{folder}/numa_node", b"0\n")
        link(host / f"sys/bus/pci/devices/{address}", f"../../../{folder}")
        link(host / f"sys/{folder}/infiniband/{name}/device", f"../../../{address}")
        link(host / f"sys/class/infiniband/{name}", f"../../{folder}/infiniband/{name}")
    # A software RDMA device is on no bus.
    (host / "sys/devices/virtual/infiniband/rxe0").mkdir(parents=True)
    link(host / "sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0")
    done = cdigen("topology", "--root", host)
    lines = done.out.splitlines()
    assert lines[0].startswith("\tGPU0\tGPU1\tNIC0\tNIC1\t")
    assert lines[1].startswith("GPU0\t X \tSYS\tPIX\tPIX\t")
    assert lines[3] == "NIC0\tPIX\tSYS\t X \tPIX\t\t\t\t"
    assert done.out.endswith("\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_10\n\n")


@pytest.mark.parametrize("example", ["ubuntu-2xmi300x-cpx", "ubuntu-flex170-sriov", "debian13-8xh100"])
def test_topology_shows_the_inventory_of_every_vendor(cdigen: Run, example: str) -> None:
    done = cdigen("topology", "--inventory", EXAMPLES / f"{example}.json")
    assert done.code == 0
    assert "\nLegend:\n" in done.out


def test_a_host_without_devices_is_an_error_with_the_reason(cdigen: Run, tmp_path: Path) -> None:
    assert cdigen("topology", "--root", tmp_path).failed(3, "no GPU is on the PCI bus")


def test_the_header_on_a_terminal_is_underlined_unless_no_color_is_set(host: Path) -> None:
    shown = on_terminal(200, "topology", "--root", host, NO_COLOR="")
    assert "\x1b[4mGPU0" in shown
    assert "\x1b" not in on_terminal(200, "topology", "--root", host)


def test_with_the_option_svg_a_picture_is_written_instead_of_the_matrix(cdigen: Run, tmp_path: Path) -> None:
    inventory, file = EXAMPLES / "debian13-8xh100.json", tmp_path / "topology.svg"
    done = cdigen("topology", "--inventory", inventory, "--svg", file)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"cdigen: picture written to {file}\n"
    # The second command replaces the existing file.
    assert cdigen("topology", "--inventory", inventory, "--svg", file, "--json").json["islands"]
    printed = cdigen("topology", "--inventory", inventory, "--svg", "/dev/stdout", "--quiet")
    assert printed.out == file.read_text()
    assert printed.out.startswith("<svg ")


def test_a_picture_that_cannot_be_written_is_an_error(cdigen: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inventory = EXAMPLES / "debian13-8xh100.json"
    done = cdigen("topology", "--inventory", inventory, "--svg", tmp_path / "file/topology.svg")
    assert done.code == 5
    assert done.out == ""
