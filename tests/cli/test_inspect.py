"""`cdigen inspect`: the found and the missing files and devices."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from support.command.fixtures import GPUS, Run
from support.command.specs import add_family
from support.hosts.mig import cap_paths, write_instance, write_minors


def test_inspect_shows_the_driver_the_gpus_and_their_nodes(cdigen: Run, host: Path) -> None:
    text = cdigen("inspect", "--root", host).out
    assert "driver 550.163.01 (proprietary kernel module), CUDA 12.4, x86_64" in text
    assert all(gpu.uuid in text and gpu.bdf in text for gpu in GPUS)
    assert "/dev/nvidia1 /dev/dri/card2 /dev/dri/renderD130" in text


def test_inspect_shows_the_form_of_device_names(cdigen: Run, host: Path) -> None:
    assert "CDI names: nvidia.com/gpu=INDEX (" in cdigen("inspect", "--root", host).out


def test_inspect_shows_missing_files_with_the_reason(cdigen: Run, host: Path) -> None:
    (host / "usr/bin/nvidia-smi").unlink()
    lines = cdigen("inspect", "--root", host).out.splitlines()
    row = next(line.split() for line in lines if line.startswith("binary") and " nvidia-smi " in line)
    assert row[2:] == ["optional", "nvidia-smi", "no", "such", "file"]


def test_a_gpu_that_is_left_out_is_shown_with_the_reason(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    row = next(line for line in cdigen("inspect", "--root", host).out.splitlines() if GPUS[0].bdf in line)
    assert "left out: its device node is missing" in row


def test_json_is_one_document_of_schema_1(cdigen: Run, host: Path) -> None:
    document = cdigen("inspect", "--root", host, "--json").json
    assert document["schema"] == 1
    assert document["vendors"]["nvidia"]["driver"]["version"] == "550.163.01"


def test_strict_fails_if_something_is_missing(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    assert cdigen("inspect", "--root", host, "--strict").failed(3, "/dev/nvidia0")


def test_the_output_on_a_terminal_has_colours_unless_the_environment_disables_them(host: Path) -> None:
    def shown(**environment: str) -> bytes:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cdigen", "inspect", "--root", str(host)]
        process = subprocess.Popen(command, stdout=theirs, env={"PATH": os.environ["PATH"], **environment})
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:  # Linux reports the end of a terminal in this way
            pass
        process.wait(60)
        os.close(ours)
        return text

    assert b"\033[1m" in shown()
    assert b"\033[1m" in shown(TERM="xterm")
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\033[" not in shown(**variables)


def test_inspect_with_strict_and_json_prints_one_error_document(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    done = cdigen("inspect", "--root", host, "--strict", "--json")
    assert (done.code, set(done.json)) == (3, {"error"})


def test_options_of_generate_are_accepted_and_do_not_change_the_inventory(cdigen: Run, host: Path) -> None:
    arguments = (
        "--kind",
        "nvidia.com/gpu",
        "--profile",
        "default",
        "--naming",
        "uuid",
        "--target",
        "podman-4.3",
    )
    more = ("--spec-dir", "/nowhere", "--container-driver-root", "/driver")
    done = cdigen("inspect", "--root", host, "--json", *arguments, *more)
    assert (done.code, done.out) == (0, cdigen("inspect", "--root", host, "--json").out)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kind", "gpu"),
        ("--profile", "none"),
        ("--naming", "none"),
        ("--target", "none"),
        ("--spec-dir", ""),
    ],
)
def test_inspect_rejects_the_options_that_generate_rejects(
    cdigen: Run, host: Path, arguments: tuple[str, str]
) -> None:
    assert cdigen("inspect", "--root", host, *arguments).failed(2)


def test_partitions_are_shown_with_profile_and_nodes(cdigen: Run, host: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7)
    text = cdigen("inspect", "--root", host).out
    row = next(line.split() for line in text.splitlines() if line.startswith("0:gi7-ci0 "))
    assert cap_paths(0, 7) <= set(row)
    assert "gi7/ci0" in row
    assert "offered as its partitions" in text


def test_a_partition_that_is_left_out_is_shown_with_the_reason(cdigen: Run, host: Path) -> None:
    write_minors(host, 2)
    write_instance(host, 0, 7, nodes=False)
    text = cdigen("inspect", "--root", host).out
    row = next(line for line in text.splitlines() if line.startswith("0:gi7-ci0 "))
    assert "left out: " in row


def test_device_families_are_shown_and_empty_tables_are_omitted(cdigen: Run, host: Path) -> None:
    assert "CLASS " not in cdigen("inspect", "--root", host).out
    assert "PARTITION " not in cdigen("inspect", "--root", host).out
    add_family(host)
    rows = [line.split() for line in cdigen("inspect", "--root", host).out.splitlines()]
    assert any(row[:1] == ["mofed"] and "/dev/infiniband/uverbs0" in row for row in rows)
