"""'cdigen kubelet' without grpcio, an optional dependency of the Python package and of distributions."""

import json
import site
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import REPOSITORY

START = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]\nfrom cdigen.cli.main import run; run()"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Return a folder with all modules of this Python except grpcio."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for path in [path for place in site.getsitepackages() for path in Path(place).glob("*")]:
        if not path.name.startswith("grpc") and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


def kubelet(modules: Path, root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    places = (str(REPOSITORY), str(modules))
    command = [sys.executable, "-BIS", "-c", START, *places, "kubelet", "--root", str(root), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_the_error_line_has_the_missing_module_and_the_command_that_installs_it(
    modules: Path, tmp_path: Path
) -> None:
    result = kubelet(modules, tmp_path)
    # With exit code 2, the unit does not restart the process, because a restart does not install the module.
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "needs the Python module grpcio, 1.48 or newer" in line
    assert "apt install python3-grpcio (Debian, Ubuntu)" in line


def test_json_has_the_kind_of_the_error(modules: Path, tmp_path: Path) -> None:
    result = kubelet(modules, tmp_path, "--json")
    assert json.loads(result.stdout)["error"]["kind"] == "module-missing"
    assert result.returncode == 2
