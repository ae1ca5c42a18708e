"""`cdigen inspect --stats`: statistics of the devices, which a real child process reads from NVML."""

import os
from pathlib import Path

from support.command.fixtures import GPUS, Run
from support.nvml.busy_gpu import busy


def test_each_device_and_each_process_has_a_row(cdigen: Run, host: Path) -> None:
    (host / f"proc/{os.getpid()}").mkdir()
    (host / f"proc/{os.getpid()}/comm").write_text("train\x1b[31m\n")
    with busy() as library:
        text = cdigen("inspect", "--root", host, "--stats", "--nvml", library).out
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


def test_json_has_every_value_of_every_device(cdigen: Run, host: Path) -> None:
    with busy() as library:
        first, second = cdigen("inspect", "--root", host, "--stats", "--nvml", library, "--json").json
    assert (first["device"], first["uuid"], first["power"]) == ("nvidia.com/gpu=0", GPUS[0].uuid, 346.12)
    assert (first["compute_capability"], second["compute_capability"]) == ("9.0", "9.0")
    assert (second["power"], second["processes"], second["problem"]) == (None, [], "")


def test_a_crash_of_nvml_is_shown_for_each_device(cdigen: Run, host: Path) -> None:
    with busy(faults=("nvmlInitWithFlags crash",)) as library:
        done = cdigen("inspect", "--root", host, "--stats", "--nvml", library)
    assert done.code == 0
    assert done.out.count("NVML crashed: its child process was ended by SIGSEGV") == 2


def test_without_nvml_the_reason_is_shown(cdigen: Run, host: Path) -> None:
    text = cdigen("inspect", "--root", host, "--stats").out
    assert text.count("nvml: off, or the driver is not this machine's own") == 2


def test_an_inventory_has_no_statistics(cdigen: Run, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.write_text(cdigen("inspect", "--root", host, "--json").out)
    assert cdigen("inspect", "--stats", "--inventory", file).failed(2, "--stats", "--inventory")


def test_inspect_with_stats_strict_and_json_prints_one_error_document(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    done = cdigen("inspect", "--root", host, "--stats", "--strict", "--json")
    assert done.json["error"]["kind"] == "incomplete"
