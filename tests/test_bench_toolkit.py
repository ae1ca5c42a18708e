"""NVIDIA's toolkit in the benchmarks: the choice of the toolkit, and a fake NVML as the driver's library.

ctk_by_path.c replaces the toolkit: it finds and loads the library as nvidia-ctk 1.20 does.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import start_containers, toolkit
from bench.toolkit import Toolkit
from support.abilities import tool
from support.hosts import driver_files
from support.hosts.nvidia_kernel import example_gpus
from support.processes import captured

BENCHES = Path(__file__).parent / "bench"
SOURCE = BENCHES / "ctk_by_path.c"


@pytest.fixture
def peer(tmp_path: Path) -> Toolkit:
    folder = tmp_path / "toolkit"
    folder.mkdir()
    command = [
        tool("gcc"),
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-o",
        str(folder / "nvidia-ctk"),
        str(SOURCE),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    shutil.copy(folder / "nvidia-ctk", folder / "nvidia-cdi-hook")
    found = toolkit.find(folder)
    assert found == Toolkit(ctk=folder / "nvidia-ctk", hook=folder / "nvidia-cdi-hook")
    return found


def files(root: Path) -> dict[str, tuple[int, str]]:
    """Return the files below ROOT, with their inodes and the targets of links."""
    return {
        str(path): (path.lstat().st_ino, str(path.readlink()) if path.is_symlink() else "")
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("lay", [driver_files.debian_13, driver_files.red_hat, driver_files.ubuntu])
def test_a_fake_nvml_replaces_the_drivers_library_until_the_context_ends(
    tmp_path: Path, peer: Toolkit, lay: Callable[[Path], object]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    lay(root)
    before = files(root)
    gpus = example_gpus(8)
    command = peer.generate(f"--driver-root={root}")
    with toolkit.answering(root, gpus):
        spec = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert [device["name"] for device in spec["devices"]] == [*(gpu.uuid for gpu in gpus), "all"]
    assert files(root) == before


@pytest.mark.e2e
def test_the_toolkit_generates_a_spec_on_a_host_with_the_real_driver(host_root: Path, peer: Toolkit) -> None:
    for program in (peer.ctk, peer.hook):
        shutil.copy(program, host_root / "usr/bin")
    command = ["chroot", str(host_root), "/usr/bin/nvidia-ctk"]
    without_nvml = captured(command)
    assert (without_nvml.returncode, without_nvml.stderr) == (
        1,
        "failed to initialize NVML: Driver Not Loaded\n",
    )
    # The toolkit has made /dev/nvidiactl.
    before = files(host_root)
    spec = json.loads(start_containers.toolkit_spec(host_root, peer))
    assert [device["name"] for device in spec["devices"]] == [
        *(gpu.uuid for gpu in start_containers.GPUS),
        "all",
    ]
    assert files(host_root) == before


def test_no_toolkit_is_found_if_the_path_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolkit.find(None) is None


def test_the_toolkit_in_the_path_is_used(peer: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(peer.ctk.parent))
    assert toolkit.find(None) == peer


@pytest.mark.parametrize("bench", ["cold_generate.py", "start_containers.py"])
def test_a_folder_without_the_toolkit_is_refused_in_one_line(tmp_path: Path, bench: str) -> None:
    (tmp_path / "nvidia-ctk").touch(mode=0o755)
    command = [sys.executable, str(BENCHES / bench), "--toolkit", str(tmp_path)]
    done = captured(command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"--toolkit {tmp_path}: no executable nvidia-cdi-hook\n"
