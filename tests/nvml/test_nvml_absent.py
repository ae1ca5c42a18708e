"""Without pynvml everything but MIG's names works: its absence is a finding, and no failure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.nvml.standin import Machine, gpu, install, trusted_folder

from cdigen.vendors.nvidia.nvml import ask as parent

REPOSITORY = Path(__file__).resolve().parents[2]
CHILD = Path(parent.__file__).with_name("child")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a Python that has cdigen and nothing else, as a host without pynvml."""
    venv = tmp_path_factory.mktemp("without") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (folder,) = venv.glob("lib/python*/site-packages")
    (folder / "cdigen.pth").write_text(f"{REPOSITORY}\n")
    return str(venv / "bin/python")


def test_the_absence_is_one_finding_that_says_what_is_missed(python: str) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=(gpu(0),)))
        answer = parent.ask(str(library), child=(python, "-I", str(CHILD)))
    assert answer.report is None
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("warning", "nvml-module-missing")
    assert "No module named 'pynvml'" in finding.message
    assert "MIG instances have no numbers and UUIDs" in finding.message
    assert "python3-pynvml" in finding.hint


@pytest.mark.usefixtures("real_nodes")
def test_a_host_with_mig_gets_its_spec_with_names_that_the_kernel_knows(python: str, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    driver_files.debian_13(host)
    write_kernel_side(host, example_gpus(2))
    write_minors(host, 2)
    write_instance(host, 1, 9)
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=(gpu(0), gpu(1))))
        arguments = ("generate", "--root", str(host), "--nvml", str(library), "--strict")
        done = subprocess.run(
            [python, "-I", "-m", "cdigen", *arguments], check=False, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    names = {device["name"] for device in json.loads(done.stdout)["devices"]}
    assert {"0", "1:gi9-ci0", "all"} <= names
    assert "[nvml-module-missing]" in done.stderr
    assert "error:" not in done.stderr
