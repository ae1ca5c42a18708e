"""Statistics of AMD's GPUs, with values of an MI300X and a Radeon with amdgpu of Linux 6.8."""

import os
from pathlib import Path

import pytest
from support.hosts import amd_tree
from support.hosts.amd import discover, places
from support.hosts.driver_files import link, put
from support.waiting import by_deadline

from cdigen.model.stats import MAX_PROCESSES, DeviceStats
from cdigen.vendors.amd.stats import STATS, read_stats

pytestmark = pytest.mark.usefixtures("real_nodes")

GPU, OTHER = amd_tree.ADDRESSES[:2]
GIB = 1 << 30
NODES = "sys/class/kfd/kfd/topology/nodes"
FILES = {
    "mem_info_vram_total": f"{192 * GIB}",
    "mem_info_vram_used": f"{10 * GIB}",
    "gpu_busy_percent": "97",
    "mem_busy_percent": "31",
    "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz ",
    "pp_dpm_mclk": "0: 900Mhz\n1: 1100Mhz\n2: 1300Mhz *",
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "8",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
    "hwmon/hwmon7/temp2_input": "56000",
    "hwmon/hwmon7/temp2_label": "junction",
    "hwmon/hwmon7/temp3_input": "61000",
    "hwmon/hwmon7/temp3_label": "mem",
    "hwmon/hwmon7/power1_average": "346120000",
    "hwmon/hwmon7/power1_cap": "750000000",
    "hwmon/hwmon7/freq1_input": "2099000000",
    "hwmon/hwmon7/freq1_label": "sclk",
    "hwmon/hwmon7/freq2_input": "1300000000",
    "hwmon/hwmon7/freq2_label": "mclk",
}


def fill(host: Path, address: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        put(host / "sys/devices/pci0000:00" / address / name, f"{text}\n".encode())


def stats_of(host: Path) -> dict[tuple[str, str], DeviceStats]:
    return {(each.address, each.instance): each for each in STATS(places(host), discover(host))}


def test_every_value_that_amdgpu_reports_is_read(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi300x(1, count=1))
    fill(tmp_path, GPU, FILES)
    assert stats_of(tmp_path)[GPU, ""] == DeviceStats(
        address=GPU, memory_total=192 * GIB, memory_used=10 * GIB, utilization=97.0, memory_utilization=31.0,
        temperature=56.0, power=346.12, power_limit=750.0, core_clock=2099, memory_clock=1300,
        core_clock_max=2100, memory_clock_max=1300, pcie_generation=5, pcie_generation_max=5, pcie_width=8,
        pcie_width_max=16,
    )  # fmt: skip


def test_a_gpu_that_reports_nothing_has_only_unknown_values(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, (amd_tree.radeon(),))
    assert stats_of(tmp_path) == {("0000:03:00.0", ""): DeviceStats(address="0000:03:00.0")}


def test_invalid_readings_are_unknown(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi300x(1, count=1))
    fill(
        tmp_path,
        GPU,
        {
            "mem_info_vram_total": "0",
            "mem_info_vram_used": "5",
            "gpu_busy_percent": "65535",
            "mem_busy_percent": "-1",
            "pp_dpm_sclk": "none",
            "current_link_speed": "Unknown",
            "current_link_width": "63",
            "hwmon/hwmon7/temp1_input": "65535000",
            "hwmon/hwmon7/power1_average": "x",
            "hwmon/hwmon7/power1_cap": "0",
            "hwmon/hwmon7/freq1_input": "0",
            "hwmon/hwmon7/freq1_label": "sclk",
        },
    )
    assert stats_of(tmp_path)[GPU, ""] == DeviceStats(address=GPU)


def test_the_temperature_is_from_the_sensor_edge_if_it_exists(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(1))
    fill(
        tmp_path,
        GPU,
        FILES
        | {
            "hwmon/hwmon7/temp1_input": "-4000",
            "hwmon/hwmon7/temp1_label": "edge",
            "hwmon/hwmon7/power1_input": "99",
        },
    )
    found = stats_of(tmp_path)[GPU, ""]
    assert (found.temperature, found.power) == (-4.0, 346.12)


def test_a_suspended_gpu_is_not_queried(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(2))
    fill(tmp_path, GPU, FILES | {"power/runtime_status": "suspended"})
    fill(tmp_path, OTHER, FILES)
    found = stats_of(tmp_path)
    assert found[GPU, ""] == DeviceStats(
        address=GPU, problem="the device is suspended, and a query would resume it"
    )
    assert found[OTHER, ""].utilization == 97.0


def test_a_gpu_that_hangs_does_not_delay_other_gpus(tmp_path: Path) -> None:
    amd_tree.write(tmp_path, amd_tree.mi210(2))
    inventory = discover(tmp_path)
    fill(tmp_path, GPU, FILES)
    fill(tmp_path, OTHER, FILES)
    file = tmp_path / "sys/devices/pci0000:00" / GPU / "gpu_busy_percent"
    file.unlink()
    os.mkfifo(file)
    broken, healthy = by_deadline(
        lambda deadline_s: read_stats(places(tmp_path), inventory, deadline_s=deadline_s),
        lambda found: not found[1].problem,
    )
    assert broken == DeviceStats(address=GPU, problem="its driver does not answer")
    assert healthy.utilization == 97.0


@pytest.fixture
def computing(tmp_path: Path) -> Path:
    """Return a host with KFD's files, a GPU of two partitions, and three processes that compute."""
    amd_tree.write(tmp_path, amd_tree.mi300x(2, count=1))
    for number, gpu_id in ((2, 11), (3, 22)):
        folder = tmp_path / NODES / str(number)
        put(folder / "gpu_id", f"{gpu_id}\n".encode())
        put(folder / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {96 * GIB}\nflags 0\n".encode())
        put(folder / "mem_banks/0/used_memory", f"{number * GIB}\n".encode())
    for pid, gpu_id, memory in ((100, 11, GIB), (100, 22, 2 * GIB), (200, 22, 5), (300, 33, 7)):
        put(tmp_path / f"sys/class/kfd/kfd/proc/{pid}/vram_{gpu_id}", f"{memory}\n".encode())
    put(tmp_path / "proc/100/comm", b"python3\n")
    return tmp_path


def test_partitions_have_their_own_memory_and_processes(computing: Path) -> None:
    found = stats_of(computing)
    first, second = (each for each in found.values() if each.instance)
    assert (first.memory_total, first.memory_used) == (96 * GIB, 2 * GIB)
    assert (second.memory_total, second.memory_used) == (96 * GIB, 3 * GIB)
    assert [(each.pid, each.name, each.memory) for each in first.processes or ()] == [(100, "python3", GIB)]
    assert [(each.pid, each.memory) for each in second.processes or ()] == [(100, 2 * GIB), (200, 5)]


def test_a_partitioned_gpu_has_the_processes_of_all_its_partitions(computing: Path) -> None:
    whole = stats_of(computing)[GPU, ""]
    assert [(each.pid, each.memory) for each in whole.processes or ()] == [(100, 3 * GIB), (200, 5)]


def test_only_the_processes_with_the_most_memory_are_reported(computing: Path) -> None:
    for pid in range(1000, 1000 + 2 * MAX_PROCESSES):
        put(computing / f"sys/class/kfd/kfd/proc/{pid}/vram_11", f"{pid}\n".encode())
    processes = stats_of(computing)[GPU, ""].processes or ()
    assert len(processes) == MAX_PROCESSES
    assert processes[1].memory == 999 + 2 * MAX_PROCESSES


def test_processes_are_empty_if_no_program_uses_a_gpu_and_unknown_if_kfd_lacks_the_gpu(
    tmp_path: Path,
) -> None:
    amd_tree.write(tmp_path, (*amd_tree.mi210(1), amd_tree.radeon("0000:99:00.0")))
    put(tmp_path / NODES / "2/gpu_id", b"11\n")
    found = stats_of(tmp_path)
    assert found[GPU, ""].processes == ()
    assert found["0000:99:00.0", ""].processes is None


def test_the_processes_include_programs_that_draw_and_programs_that_compute(computing: Path) -> None:
    render = next(iter((computing / "dev/dri").glob("renderD128")))
    for pid, memory in ((200, 9), (400, 3)):
        (computing / f"proc/{pid}/fd").mkdir(parents=True)
        link(computing / f"proc/{pid}/fd/4", str(render))
        text = (
            f"drm-driver:\tamdgpu\ndrm-pdev:\t{GPU}\ndrm-client-id:\t{pid}\ndrm-memory-vram:\t{memory} KiB\n"
        )
        put(computing / f"proc/{pid}/fdinfo/4", text.encode())
    put(computing / "proc/400/comm", b"Xorg\n")
    # In this tree, the process 100 has no open files.
    (computing / "proc/100/fd").mkdir()
    whole = stats_of(computing)[GPU, ""]
    assert [(each.pid, each.name, each.memory) for each in whole.processes or ()] == [
        (100, "python3", 3 * GIB),
        (200, "", 9 << 10),
        (400, "Xorg", 3 << 10),
    ]
