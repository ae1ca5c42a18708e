"""Without the Python module pynvml, cdigen works without NVML's values, and reports a finding."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.hosts import driver_files
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.nvml.standin import Machine, gpu, install, trusted_folder

from cdigen.vendors.nvidia.nvml import query as parent

REPOSITORY = Path(__file__).resolve().parents[2]
CHILD = Path(parent.__file__).with_name("child")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a Python interpreter that can import cdigen, but not pynvml."""
    venv = tmp_path_factory.mktemp("without") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (folder,) = venv.glob("lib/python*/site-packages")
    (folder / "cdigen.pth").write_text(f"{REPOSITORY}\n")
    return str(venv / "bin/python")


def test_a_missing_pynvml_is_one_finding_that_lists_the_missing_values(python: str) -> None:
    with trusted_folder() as folder:
        library = install(folder, Machine(gpus=(gpu(0),)))
        answer = parent.query(str(library), child=(python, "-I", str(CHILD)))
    assert answer.report is None
    (finding,) = answer.findings
    assert (finding.severity, finding.rule) == ("warning", "nvml-module-missing")
    assert "No module named 'pynvml'" in finding.message
    for missed in ("memory", "load", "temperature", "NVLink", "numbers and UUIDs of MIG instances"):
        assert missed in finding.message
    assert "python3-pynvml" in finding.hint


def test_a_missing_pynvml_is_detected_even_without_nvidias_library(python: str) -> None:
    finding = parent.module_problem((python, "-I", str(CHILD)))
    assert finding is not None
    assert finding.rule == "nvml-module-missing"
    is_installed = find_spec("pynvml") is not None
    assert (parent.module_problem((sys.executable, "-I", str(CHILD))) is None) == is_installed


def test_a_child_that_cannot_run_is_not_reported_as_a_missing_module() -> None:
    assert parent.module_problem(("/nowhere/python",)) is None
    assert parent.module_problem(("/bin/false",)) is None


@pytest.mark.usefixtures("real_nodes")
def test_without_pynvml_mig_names_in_the_spec_come_from_the_kernel(python: str, tmp_path: Path) -> None:
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
