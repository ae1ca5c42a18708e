"""Statistics of Intel's GPUs (with the drivers xe and i915), NPUs and Gaudis."""

import os
import threading
import time
from pathlib import Path

import pytest
from support.hosts import intel_tree
from support.hosts.driver_files import link, put
from support.hosts.intel import discover, places
from support.hosts.intel_tree import Device, one_of_each_driver
from support.waiting import by_deadline

from cdigen.model.stats import DeviceStats
from cdigen.vendors.intel.stats import STATS, read_stats
from cdigen.vendors.kernel.device_files_child import APART_S

pytestmark = pytest.mark.usefixtures("real_nodes")

DEVICES = one_of_each_driver()
XE, I915, NPU, GAUDI = (device.address for device in DEVICES)
GIB = 1 << 30
MONITOR = "hwmon/hwmon3"
OF_XE = {
    "tile0/physical_vram_size_bytes": f"{24 * GIB}",
    "tile0/gt0/freq0/act_freq": "2400",
    "tile0/gt0/freq0/rp0_freq": "2850",
    f"{MONITOR}/temp2_input": "49000",
    f"{MONITOR}/temp2_label": "pkg",
    f"{MONITOR}/temp3_input": "62000",
    f"{MONITOR}/temp3_label": "vram",
    f"{MONITOR}/power1_max": "0",
    f"{MONITOR}/power1_rated_max": "190000000",
    "current_link_speed": "2.5 GT/s PCIe",
    "current_link_width": "1",
}


def fill(host: Path, device: Device, files: dict[str, str]) -> None:
    for name, text in files.items():
        put(host / device.folder / name, f"{text}\n".encode())


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Write a host with a device of each driver."""
    intel_tree.lay(tmp_path, *DEVICES)
    return tmp_path


def stats_of(host: Path) -> dict[str, DeviceStats]:
    return {each.address: each for each in STATS(places(host), discover(host))}


def test_devices_that_report_nothing_have_only_unknown_values(host: Path) -> None:
    assert stats_of(host) == {device.address: DeviceStats(address=device.address) for device in DEVICES}


def test_every_value_that_xe_reports_is_read(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE)
    assert stats_of(host)[XE] == DeviceStats(
        address=XE, memory_total=24 * GIB, temperature=49.0, power_limit=190.0, core_clock=2400,
        core_clock_max=2850, pcie_generation=1, pcie_width=1,
    )  # fmt: skip


def test_the_memory_of_a_gpu_is_the_sum_of_its_tiles(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE | {"tile1/physical_vram_size_bytes": f"{24 * GIB}"})
    assert stats_of(host)[XE].memory_total == 48 * GIB
    fill(host, DEVICES[0], {"tile1/physical_vram_size_bytes": "x"})
    assert stats_of(host)[XE].memory_total is None


def test_the_clocks_of_a_gpu_of_i915_are_read_from_the_folder_of_its_card(host: Path) -> None:
    card = {"drm/card0/gt_act_freq_mhz": "600", "drm/card0/gt_RP0_freq_mhz": "1550"}
    fill(host, DEVICES[1], card | {"drm/card0/lmem_total_bytes": "100", "drm/card0/lmem_avail_bytes": "40"})
    found = stats_of(host)[I915]
    assert (found.core_clock, found.core_clock_max) == (600, 1550)
    assert (found.memory_total, found.memory_used) == (100, 60)
    fill(host, DEVICES[1], {"drm/card0/gt_act_freq_mhz": "0"})
    assert stats_of(host)[I915].core_clock is None


def test_an_npu_reports_its_busy_time(host: Path) -> None:
    fill(
        host,
        DEVICES[2],
        {
            "npu_busy_time_us": "5",
            "npu_memory_utilization": "4096",
            "npu_current_frequency_mhz": "950",
            "npu_max_frequency_mhz": "1950",
        },
    )
    found = stats_of(host)[NPU]
    assert (found.utilization, found.memory_used, found.memory_total) == (0.0, 4096, None)
    assert (found.core_clock, found.core_clock_max) == (950, 1950)


def test_the_power_is_calculated_from_the_increase_of_the_energy_counter(host: Path) -> None:
    """The first read of the counter opens a FIFO. Then a file with a value of 20 J replaces the FIFO."""
    fill(host, DEVICES[0], {f"{MONITOR}/energy1_input": "0"})
    file = host / DEVICES[0].folder / MONITOR / "energy1_input"
    file.unlink()
    os.mkfifo(file)

    def count() -> None:
        with file.open("w") as first:
            first.write("0\n")
            second = file.with_name("new")
            second.write_text("20000000\n")
            second.replace(file)

    thread = threading.Thread(target=count)
    thread.start()
    began_s = time.monotonic()
    power = stats_of(host)[XE].power
    most_s = time.monotonic() - began_s
    thread.join()
    assert power is not None
    # The time between the reads is at least APART_S, and at most the time of the whole call.
    assert 20 / most_s <= power <= 20 / APART_S


def test_a_gaudi_reports_its_clock_and_power(host: Path) -> None:
    fill(
        host,
        DEVICES[3],
        {
            "clk_cur_freq_mhz": "1200",
            "clk_max_freq_mhz": "1650",
            f"{MONITOR}/temp1_input": "40000",
            f"{MONITOR}/power1_input": "98000000",
        },
    )
    found = stats_of(host)[GAUDI]
    assert (found.core_clock, found.core_clock_max, found.temperature, found.power) == (
        1200,
        1650,
        40.0,
        98.0,
    )


def test_a_suspended_device_is_not_queried(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE | {"power/runtime_status": "suspended"})
    assert stats_of(host)[XE] == DeviceStats(
        address=XE, problem="the device is suspended, and a query would resume it"
    )


def test_a_device_that_hangs_does_not_delay_other_devices(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE)
    inventory = discover(host)
    folder = host / DEVICES[3].folder
    os.mkfifo(folder / "clk_cur_freq_mhz")
    found = by_deadline(
        lambda deadline_s: {
            each.address: each for each in read_stats(places(host), inventory, deadline_s=deadline_s)
        },
        lambda found: not found[XE].problem,
    )
    assert found[GAUDI] == DeviceStats(address=GAUDI, problem="its driver does not answer")
    assert found[XE].core_clock == 2400


def test_the_processes_of_a_gpu_are_the_processes_with_an_open_node(host: Path) -> None:
    (host / "proc/100/fd").mkdir(parents=True)
    assert stats_of(host)[XE].processes == ()
    link(host / "proc/100/fd/4", str(host / "dev/dri/renderD129"))
    text = f"drm-driver:\txe\ndrm-pdev:\t{XE}\ndrm-client-id:\t1\ndrm-resident-vram0:\t2 MiB\n"
    put(host / "proc/100/fdinfo/4", text.encode())
    put(host / "proc/100/comm", b"python3\n")
    found = stats_of(host)
    assert [(each.pid, each.name, each.memory) for each in found[XE].processes or ()] == [
        (100, "python3", 2 << 20)
    ]
    assert (found[I915].processes, found[NPU].processes) == ((), None)
