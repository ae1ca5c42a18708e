"""Figures of Intel's GPUs of xe and i915, NPUs and Gaudis."""

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

from cdigen.model.figures import DeviceFigures
from cdigen.vendors.intel.health import HEALTH
from cdigen.vendors.intel.health.figures import figures
from cdigen.vendors.kernel.device_files import APART_S

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
    """Lay one device of each driver."""
    intel_tree.lay(tmp_path, *DEVICES)
    return tmp_path


def told(host: Path) -> dict[str, DeviceFigures]:
    return {each.address: each for each in HEALTH.figures(places(host), discover(host))}


def test_devices_that_tell_nothing_are_unknown_in_all(host: Path) -> None:
    assert told(host) == {device.address: DeviceFigures(address=device.address) for device in DEVICES}


def test_every_figure_that_xe_tells_is_there(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE)
    assert told(host)[XE] == DeviceFigures(
        address=XE, memory_total=24 * GIB, temperature=49.0, power_limit=190.0, core_clock=2400,
        core_clock_max=2850, pcie_generation=1, pcie_width=1,
    )  # fmt: skip


def test_the_memory_of_several_tiles_is_that_of_all(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE | {"tile1/physical_vram_size_bytes": f"{24 * GIB}"})
    assert told(host)[XE].memory_total == 48 * GIB
    fill(host, DEVICES[0], {"tile1/physical_vram_size_bytes": "x"})
    assert told(host)[XE].memory_total is None


def test_a_gpu_of_i915_tells_its_clocks_beside_its_card(host: Path) -> None:
    card = {"drm/card0/gt_act_freq_mhz": "600", "drm/card0/gt_RP0_freq_mhz": "1550"}
    fill(host, DEVICES[1], card | {"drm/card0/lmem_total_bytes": "100", "drm/card0/lmem_avail_bytes": "40"})
    found = told(host)[I915]
    assert (found.core_clock, found.core_clock_max) == (600, 1550)
    assert (found.memory_total, found.memory_used) == (100, 60)
    fill(host, DEVICES[1], {"drm/card0/gt_act_freq_mhz": "0"})
    assert told(host)[I915].core_clock is None


def test_an_npu_tells_how_long_it_was_busy(host: Path) -> None:
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
    found = told(host)[NPU]
    assert (found.utilization, found.memory_used, found.memory_total) == (0.0, 4096, None)
    assert (found.core_clock, found.core_clock_max) == (950, 1950)


def test_power_is_how_fast_the_energy_counter_rises(host: Path) -> None:
    """The counter is a FIFO for the first reading, during which a file with 20 J more replaces it."""
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
    power = told(host)[XE].power
    most_s = time.monotonic() - began_s
    thread.join()
    assert power is not None
    # The readings are at least APART_S apart, and no longer than the whole call.
    assert 20 / most_s <= power <= 20 / APART_S


def test_a_gaudi_tells_its_clock_and_power(host: Path) -> None:
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
    found = told(host)[GAUDI]
    assert (found.core_clock, found.core_clock_max, found.temperature, found.power) == (
        1200,
        1650,
        40.0,
        98.0,
    )


def test_a_device_that_sleeps_is_not_asked(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE | {"power/runtime_status": "suspended"})
    assert told(host)[XE] == DeviceFigures(address=XE, problem="it sleeps, and asking would wake it")


def test_a_device_that_hangs_keeps_no_other_from_being_read(host: Path) -> None:
    fill(host, DEVICES[0], OF_XE)
    inventory = discover(host)
    folder = host / DEVICES[3].folder
    os.mkfifo(folder / "clk_cur_freq_mhz")
    found = by_deadline(
        lambda deadline_s: {
            each.address: each for each in figures(places(host).host, inventory, deadline_s=deadline_s)
        },
        lambda found: not found[XE].problem,
    )
    assert found[GAUDI] == DeviceFigures(address=GAUDI, problem="its driver does not answer")
    assert found[XE].core_clock == 2400


def test_a_gpus_processes_are_those_that_have_opened_it(host: Path) -> None:
    (host / "proc/100/fd").mkdir(parents=True)
    assert told(host)[XE].processes == ()
    link(host / "proc/100/fd/4", str(host / "dev/dri/renderD129"))
    text = f"drm-driver:\txe\ndrm-pdev:\t{XE}\ndrm-client-id:\t1\ndrm-resident-vram0:\t2 MiB\n"
    put(host / "proc/100/fdinfo/4", text.encode())
    put(host / "proc/100/comm", b"python3\n")
    found = told(host)
    assert [(each.pid, each.name, each.memory) for each in found[XE].processes or ()] == [
        (100, "python3", 2 << 20)
    ]
    assert (found[I915].processes, found[NPU].processes) == ((), None)
