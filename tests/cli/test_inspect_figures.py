"""`cdigen inspect --figures`: what the devices do, as a real NVML child reads it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import GPUS, Run
from standin import Machine, gpu, install, trusted_folder

GIB = 1 << 30
BUSY = (
    f"memory-used 0 {10 * GIB}",
    "nvmlDeviceGetTemperature 0 56",
    "nvmlDeviceGetPowerUsage 0 346120",
    "nvmlDeviceGetEnforcedPowerLimit 0 700000",
    "nvmlDeviceGetUtilizationRates 0 97 31",
    "nvmlDeviceGetClockInfo 1 1755",
    "nvmlDeviceGetCurrPcieLinkGeneration 0 4",
    "nvmlDeviceGetMaxPcieLinkGeneration 0 5",
    "nvmlDeviceGetCurrPcieLinkWidth 0 16",
    "nvmlDeviceGetMaxPcieLinkWidth 0 16",
    "nvmlDeviceGetEccMode 0 1 1",
    "nvmlDeviceGetTotalEccErrors 0 12",
    "nvmlDeviceGetTotalEccErrors 1 3",
)


@contextmanager
def busy(*, faults: tuple[str, ...] = ()) -> Iterator[Path]:
    """Give an NVML whose first GPU is at work for this process, and whose second tells little."""
    first, second = (gpu(each.minor, address=f"0000{each.bdf.upper()}", uuid=each.uuid) for each in GPUS[:2])
    at_work = gpu(
        first.minor or 0,
        address=first.address,
        uuid=first.uuid,
        figures=BUSY,
        processes=((os.getpid(), 9 * GIB),),
    )
    with trusted_folder() as folder:
        yield install(folder, Machine(gpus=(at_work, second), faults=faults))


def test_each_device_has_a_row_and_each_process(cdigen: Run, host: Path) -> None:
    (host / f"proc/{os.getpid()}").mkdir()
    (host / f"proc/{os.getpid()}/comm").write_text("train\x1b[31m\n")
    with busy() as library:
        text = cdigen("inspect", "--root", host, "--figures", "--nvml", library).out
    head, first, second, *others = (line for line in text.splitlines() if line)
    assert head.split()[:2] == ["DEVICE", "MEMORY"]
    assert first.split("  ")[0] == "nvidia.com/gpu=0"
    for cell in ("10.0 of 79.6 GiB", "97%", "56 C", "346 of 700 W", "1755 MHz", "gen 4 x16 of gen 5 x16"):
        assert cell in first
    assert "3 uncorrected, 12 corrected" in first
    assert [cell.strip() for cell in second.split("  ") if cell.strip()] == [
        "nvidia.com/gpu=1",
        "0.0 of 79.6 GiB",
        *["-"] * 6,
    ]
    assert [line.split() for line in others] == [
        ["DEVICE", "PID", "PROCESS", "MEMORY"],
        ["nvidia.com/gpu=0", str(os.getpid()), "train?[31m", "9216", "MiB"],
    ]


def test_json_has_every_figure_of_every_device(cdigen: Run, host: Path) -> None:
    with busy() as library:
        first, second = cdigen("inspect", "--root", host, "--figures", "--nvml", library, "--json").json
    assert (first["device"], first["uuid"], first["power"]) == ("nvidia.com/gpu=0", GPUS[0].uuid, 346.12)
    assert (first["compute_capability"], second["compute_capability"]) == ("9.0", "9.0")
    assert (second["power"], second["processes"], second["problem"]) == (None, [], "")


def test_nvml_that_crashes_is_told_beside_the_devices(cdigen: Run, host: Path) -> None:
    with busy(faults=("nvmlInitWithFlags crash",)) as library:
        done = cdigen("inspect", "--root", host, "--figures", "--nvml", library)
    assert done.code == 0
    assert done.out.count("NVML crashed: its process was ended by SIGSEGV") == 2


def test_without_nvml_the_reason_is_told(cdigen: Run, host: Path) -> None:
    text = cdigen("inspect", "--root", host, "--figures").out
    assert text.count("nvml: off, or the driver is not this machine's own") == 2


def test_an_inventory_has_no_figures(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.write_text(cdigen("inspect", "--root", host, "--json").out)
    assert cdigen("inspect", "--figures", "--inventory", file).failed(2, "--figures", "--inventory")


def test_strict_prints_one_document(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    done = cdigen("inspect", "--root", host, "--figures", "--strict", "--json")
    assert done.json["error"]["kind"] == "incomplete"
