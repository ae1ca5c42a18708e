"""`cdigen inspect`: what was looked for, found, and not found."""

import os
import pty
import subprocess
import sys
from pathlib import Path

from command import GPUS, Run


def test_it_shows_the_driver_the_gpus_and_their_nodes(cdigen: Run, host: Path) -> None:
    text = cdigen("inspect", "--root", host).out
    assert "driver 550.163.01 (proprietary kernel module), x86_64" in text
    assert all(gpu.uuid in text and gpu.bdf in text for gpu in GPUS)
    assert "/dev/nvidia1 /dev/dri/card2 /dev/dri/renderD130" in text


def test_it_explains_the_numbering(cdigen: Run, host: Path) -> None:
    assert "The index counts" in cdigen("inspect", "--root", host).out


def test_it_says_what_was_not_found_and_why(cdigen: Run, host: Path) -> None:
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


def test_strict_fails_where_something_is_missing(cdigen: Run, host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    assert cdigen("inspect", "--root", host, "--strict").failed(3, "/dev/nvidia0")


def test_colour_is_for_terminals_and_no_color_is_respected(host: Path) -> None:
    def shown(**environment: str) -> bytes:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "cdigen", "inspect", "--root", str(host)]
        process = subprocess.Popen(command, stdout=theirs, env={"PATH": os.environ["PATH"], **environment})
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:  # Linux reports the end of a terminal so
            pass
        process.wait(10)
        os.close(ours)
        return text

    assert b"\033[1m" in shown()
    assert b"\033[" not in shown(NO_COLOR="1")
