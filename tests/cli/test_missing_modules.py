"""Commands without a Python module that they need: grpcio, which is optional, and required modules."""

import json
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import REPOSITORY

from cdigen.cli.shared import python_modules

START = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]\nfrom cdigen.cli.main import run; run()"

Without = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def without(tmp_path: Path) -> Without:
    """Return a function that runs the command with all modules of this Python except one."""

    def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "modules"
        folder.mkdir()
        for path in [path for place in site.getsitepackages() for path in Path(place).glob("*")]:
            if not path.name.startswith(module) and path.suffix != ".pth":
                (folder / path.name).symlink_to(path)
        command = [sys.executable, "-BIS", "-c", START, str(REPOSITORY), str(folder), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    return run


def test_the_error_line_has_the_missing_module_and_the_command_that_installs_it(
    without: Without, tmp_path: Path
) -> None:
    result = without("grpc", "kubelet", "--root", str(tmp_path))
    # With exit code 2, the unit does not restart the process, because a restart does not install the module.
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "needs the Python module grpcio, 1.48 or newer" in line
    assert "apt install python3-grpcio (Debian, Ubuntu)" in line


@pytest.mark.parametrize(
    ("module", "package", "command"),
    [
        ("yaml", "python3-yaml", ("doctor",)),
        ("yaml", "python3-yaml", ("config", "check")),
        ("tomlkit", "python3-tomlkit", ("configure", "containerd", "--dry-run")),
        ("structlog", "python3-structlog", ("run", "--run-dir", "run")),
        ("google", "python3-protobuf", ("nri",)),
    ],
)
def test_a_command_names_a_missing_required_module_and_its_packages(
    without: Without, tmp_path: Path, module: str, package: str, command: tuple[str, ...]
) -> None:
    host = tmp_path / "host"
    (host / "etc/cdigen").mkdir(parents=True)
    (host / "etc/cdigen/config.yaml").write_text("nvml: false\n")
    (host / "etc/containerd").mkdir()
    (host / "etc/containerd/config.toml").write_text("version = 2\n")
    result = without(module, *command, "--root", str(host))
    assert (result.returncode, result.stdout) == (2, "")
    line = result.stderr.splitlines()[-1]
    assert f"needs the Python module {module}, which is not installed; apt install {package} (" in line
    assert "internal error" not in result.stderr


def test_json_has_the_kind_of_the_error(without: Without, tmp_path: Path) -> None:
    result = without("grpc", "kubelet", "--root", str(tmp_path), "--json")
    assert json.loads(result.stdout)["error"]["kind"] == "module-missing"
    assert result.returncode == 2


def test_every_dependency_without_an_own_message_has_its_packages() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["kubelet"]]
    # Without nvidia-ml-py or pyudev, a finding or a source of the daemon names the module.
    packages = {need.partition(">=")[0] for need in needs} - {"nvidia-ml-py", "pyudev"}
    assert {package for package, _ in python_modules._PACKAGES.values()} == packages
    control = (REPOSITORY / "packaging/debian/control").read_text()
    assert [name for _, name in python_modules._PACKAGES.values() if name not in control] == []
