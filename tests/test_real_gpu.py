"""`make real-gpu` runs all its steps on a fake host, and finds faults of the host."""

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_gpu.run import Run
from real_gpu.steps import generate, inspect, matrix, prepare
from support.hosts.driver_files import debian_13
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.nvml import standin
from support.processes import captured

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).with_name("real_gpu")
GPUS = example_gpus(2)
# The output of nvidia-smi 550.
LISTED = "".join(f"GPU {gpu.minor}: {gpu.model} (UUID: {gpu.uuid})\n" for gpu in GPUS)
MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tPHB\tSYS\t0-15\t0\t\tN/A\n"
    "GPU1\tPHB\t X \tSYS\t0-15\t0\t\tN/A\n"
    "NIC0\tSYS\tSYS\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n"
)


class RealGpu:
    """A fake host, and the program, which treats the host as a machine with a GPU."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "host"
        self.root.mkdir()
        debian_13(self.root)
        (self.root / "usr/bin").mkdir(exist_ok=True)
        shutil.copy(Path(sys.executable).resolve(), self.root / "usr/bin/python3")
        write_kernel_side(self.root, GPUS)
        shown = tuple(standin.Gpu(address=gpu.bdf, uuid=gpu.uuid, minor=gpu.minor) for gpu in GPUS)
        self.nvml = standin.install(folder / "nvml", standin.Machine(gpus=shown))
        self.smi = folder / "nvidia-smi"
        self.output = folder / "output"
        self.show(LISTED, MATRIX)

    def show(self, listed: str, table: str) -> None:
        """Make nvidia-smi print LISTED for -L and TABLE for topo -m."""
        self.smi.write_text(
            f"#!/bin/sh\ncase $1 in -L) cat <<'E'\n{listed}E\n;; topo) cat <<'E'\n{table}E\nesac\n"
        )
        self.smi.chmod(0o755)

    def run(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """Run the program; return the exit code, and verdict and reason of each step."""
        options = ("--root", self.root, "--nvml", self.nvml, "--nvidia-smi", self.smi)
        command: list[str | Path] = [sys.executable, PROGRAM, "--output", self.output, *options]
        done = captured(command)
        assert not done.stderr
        rows = json.loads((self.output / "summary.json").read_text())
        return done.returncode, {row["name"]: (row["verdict"], row["reason"]) for row in rows}


@pytest.fixture
def real_gpu(real_nodes: None) -> Iterator[RealGpu]:  # noqa: ARG001 - the host has device nodes
    with standin.trusted_folder() as folder:
        yield RealGpu(folder)


def test_each_step_succeeds_or_is_skipped_on_a_fake_host_and_the_output_is_kept(real_gpu: RealGpu) -> None:
    code, steps = real_gpu.run()
    skipped = {name: step for name, step in steps.items() if step[0] != "ok"}
    assert skipped.keys() <= {"loading", "containers"}, skipped
    assert steps["loading"] == ("skipped", "libcuda.so.1 is a stand-in of a test")
    assert steps["containers"][0] == "skipped"
    assert code == 0
    kept = {path.name for path in real_gpu.output.iterdir()}
    texts = {
        "inspect.json",
        "inspect-text.txt",
        "spec-files.json",
        "spec-view.json",
        "health.json",
        "nvml.json",
    }
    assert texts | {"topology.json", "nvidia-smi-topo.txt", "summary.txt", "real-gpu.tar.gz"} <= kept
    assert not [name for name in kept if name.startswith("images-")]


def test_a_fault_fails_its_own_step_and_the_other_steps_run(real_gpu: RealGpu) -> None:
    real_gpu.show(LISTED.replace(GPUS[1].uuid, GPUS[0].uuid), MATRIX.replace("PHB", "NV18"))
    code, steps = real_gpu.run()
    assert code == 1
    failed = {name: reason for name, (verdict, reason) in steps.items() if verdict == "failed"}
    assert failed.keys() == {"nvidia-smi", "topology"}
    assert failed["nvidia-smi"].startswith("UUIDs: cdigen has ")
    assert "{('GPU0', 'GPU1'): 'NV18'}" in failed["topology"]
    assert steps["hook"] == ("ok", "")


def test_a_device_node_with_a_wrong_minor_number_fails_the_step_generate(real_gpu: RealGpu) -> None:
    node = real_gpu.root / "dev/nvidia1"
    node.unlink()
    os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(195, 7))
    folder = real_gpu.output
    folder.mkdir()
    run = Run(output=folder, images=folder, root=real_gpu.root, nvml=real_gpu.nvml, nvidia_smi=None)
    for step in (prepare, inspect, generate):
        run.do(step)
    assert run.steps[-1].verdict == "failed"
    assert run.steps[-1].reason == "/dev/nvidia1 is not in the spec"


def test_a_command_that_does_not_end_is_killed_and_recorded(tmp_path: Path) -> None:
    run = Run(output=tmp_path, images=tmp_path, root=None, nvml=None, nvidia_smi=None)

    def waiting(run: Run) -> None:
        run.call("waiting", "sleep", "1000", timeout_s=0.2)

    run.do(waiting)
    assert run.steps[-1].verdict == "failed"
    assert run.steps[-1].reason.startswith("waiting: no end after 0.")
    assert run.steps[-1].commands[0].exit_code is None


def test_results_of_an_earlier_run_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "summary.json").touch()
    command: list[str | Path] = [sys.executable, PROGRAM, "--output", tmp_path]
    done = captured(command)
    assert done.returncode == 2
    assert f"{tmp_path} is not empty" in done.stderr


def test_the_matrix_of_nvidia_smi_is_read_without_network_cards() -> None:
    assert matrix(MATRIX) == {("GPU0", "GPU1"): "PHB"}
