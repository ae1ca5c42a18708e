"""`make install INSTALL_DEPS=no` checks the versions of the distribution's modules before any change.

A floor is the minimum version of a module.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.installation.installing import make
from support.paths import REPOSITORY
from support.processes import captured


class Distribution:
    """A Python installation whose modules consist of metadata only."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin/python3"
        self.modules = next(folder.glob("lib/python3*/site-packages"))

    def has(self, **releases: str) -> None:
        for name, release in releases.items():
            info = self.modules / f"{name}-{release}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {release}\n"
            )

    def has_the_floors(self, **other: str) -> None:
        floors = {need.name.replace("-", "_"): floor(need) for need in needs()}
        self.has(**{name: other.get(name, release) for name, release in floors.items()})


def needs() -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["kubelet"]
    return [Requirement(need) for need in (*project["dependencies"], *extra)]


def floor(need: Requirement) -> str:
    return next(one.version for one in need.specifier if one.operator == ">=")


def floors(distribution: Distribution, *options: str) -> tuple[int, str]:
    command = [str(distribution.python), "-BI", "etc/floors.py", "pyproject.toml", *options]
    message = captured(command, cwd=REPOSITORY)
    return message.returncode, message.stdout + message.stderr


def test_modules_with_the_minimum_versions_are_accepted(tmp_path: Path) -> None:
    distribution = Distribution(tmp_path / "python")
    distribution.has_the_floors()
    assert floors(distribution) == (0, "")


@pytest.mark.parametrize(
    ("name", "release", "message"),
    [
        ("watchdog", "2.1.9", "watchdog is 2.1.9 (>=2.2.1,<8)"),
        ("watchdog", "8", "watchdog is 8 (>=2.2.1,<8)"),
        ("watchdog", "7.10rc1", ""),
        ("pyyaml", "5.4.1", "pyyaml is 5.4.1 (>=6.0)"),
        ("pyyaml", "6.0.0.0", ""),
        ("grpcio", "1.48.4", ""),
        ("grpcio", "1.46.7", "grpcio is 1.46.7 (>=1.48)"),
    ],
)
def test_only_a_version_outside_the_bounds_of_its_requirement_is_reported(
    tmp_path: Path, name: str, release: str, message: str
) -> None:
    distribution = Distribution(tmp_path / "python")
    distribution.has_the_floors(**{name: release})
    assert floors(distribution) == (1 if message else 0, message)


def test_optional_modules_may_be_missing_and_a_package_checks_only_installed_modules(tmp_path: Path) -> None:
    distribution = Distribution(tmp_path / "python")
    distribution.has(structlog="21.5")
    code, message = floors(distribution)
    assert (code, "watchdog is missing" in message, "nvidia-ml-py" in message, "grpcio" in message) == (
        1, True, False, False,
    )  # fmt: skip
    assert floors(distribution, "--of-a-package") == (1, "structlog is 21.5 (>=22.3)")


def test_modules_that_are_too_old_stop_the_installation_before_any_change(tmp_path: Path) -> None:
    distribution = Distribution(tmp_path / "python")
    distribution.has_the_floors(watchdog="2.1.9", tomlkit="0.5")
    destination = tmp_path / "host"
    result = make("install", destination, "INSTALL_DEPS=no", f"HOST_PYTHON={distribution.python}")
    assert result.returncode != 0
    assert "do not fit: tomlkit is 0.5 (>=0.11.7); watchdog is 2.1.9 (>=2.2.1,<8)" in result.stderr
    assert not destination.exists()


def test_the_debian_packages_need_the_same_minimum_versions() -> None:
    control = (REPOSITORY / "packaging/debian/control").read_text()
    found = dict(re.findall(r"python3-([a-z]+(?:-[a-z]+)*) \(>= ([0-9.]+)\)", control))
    # Debian's names of pyyaml and nvidia-ml-py are other names, and the package only suggests nvidia-ml-py.
    wanted = {{"pyyaml": "yaml"}.get(need.name, need.name): floor(need) for need in needs()}
    del wanted["nvidia-ml-py"]
    assert {name: found[name] for name in wanted} == wanted
