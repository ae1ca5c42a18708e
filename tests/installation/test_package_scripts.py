"""The scripts of packages search for specs that name the hook. They follow links, and open no FIFO."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.paths import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

HOOK = "/usr/libexec/cdigen/cdigen-hook"


@pytest.mark.parametrize("script", ["debian/cdigen.prerm", "rpm/cdigen.spec"])
def test_a_fifo_in_a_spec_directory_does_not_block_a_removal(tmp_path: Path, script: str) -> None:
    folders = [tmp_path / "etc-cdi", tmp_path / "run-cdi"]
    text = (REPOSITORY / "packaging" / script).read_text()
    (condition,) = re.findall(r'\[ -n "\$\(find -L /etc/cdi .*?\)" \]', text, re.DOTALL)
    condition = condition.replace("/etc/cdi /run/cdi", " ".join(map(str, folders)))

    def is_used() -> bool:
        command = ["sh", "-euc", f"hook={HOOK}\n{condition}"]
        return subprocess.run(command, check=False, timeout=60).returncode == 0

    assert not is_used()
    for folder in folders:
        folder.mkdir()
        os.mkfifo(folder / "fifo.json")
    (folders[0] / "other.json").write_text("{}")
    assert not is_used()
    (tmp_path / "elsewhere").write_text(f'{{"path": "{HOOK}"}}')
    (folders[1] / "own.yaml").symlink_to(tmp_path / "elsewhere")
    assert is_used()


def build_deb(tmp_path: Path, deb_root: str) -> subprocess.CompletedProcess[str]:
    command = [REPOSITORY / "packaging/build-deb", tmp_path / "out"]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "DEB_ROOT": deb_root}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)


def test_a_build_of_packages_without_its_tools_prints_the_command_that_installs_them(tmp_path: Path) -> None:
    control = REPOSITORY / "packaging/debian/control"
    try:
        result = subprocess.run(
            ["dpkg-checkbuilddeps", control], check=False, capture_output=True, text=True, timeout=60
        )
        unmet = result.stderr.partition("Unmet build dependencies: ")[2].strip()
    except FileNotFoundError:
        unmet = "build-essential"
    if not unmet:
        cannot_run("this machine has all build dependencies")
    done = build_deb(tmp_path, "")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    names = {"debhelper-compat": "debhelper", "dh-sequence-python3": "dh-python"}
    packages = [names.get(name, name) for name in re.sub(r" \([^)]*\)", "", unmet).split()]
    assert f"build dependencies are missing: apt-get install {' '.join(packages)}; " in line
    assert not (tmp_path / "out").exists()


@pytest.mark.needs_root
def test_a_root_without_debian_is_an_error_with_its_path(tmp_path: Path) -> None:
    done = build_deb(tmp_path, str(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"DEB_ROOT={tmp_path} is not a root of Debian" in line


def test_the_package_of_the_module_has_only_the_files_of_etc_that_place_the_hook(tmp_path: Path) -> None:
    rules = (REPOSITORY / "packaging/debian/rules").read_text().replace("\\\n", "")
    finds = re.findall(r"^\t(find debian/python3-cdigen.*)$", rules, re.MULTILINE)
    assert len(finds) == 2
    code = tmp_path / "debian/python3-cdigen/usr/lib/python3/dist-packages/cdigen"
    shutil.copytree(REPOSITORY / "etc", code / "etc")
    for command in finds:
        text = command.replace("$(CODE)", "/usr/lib/python3/dist-packages")
        subprocess.run(["sh", "-euc", text], check=True, cwd=tmp_path, timeout=60)
    left = {str(path.relative_to(code)) for path in code.rglob("*")}
    scripts = {"etc/install", "etc/exchange.py", "etc/libexec/cdigen-hook"}
    assert left == {"etc", "etc/libexec", *scripts}
    place = (REPOSITORY / "packaging/debian/place-hook").read_text()
    compiled = (REPOSITORY / "packaging/rpm/cdigen.spec").read_text()
    assert "$code/etc/install" in place
    assert all(name in compiled for name in scripts)


def test_install_service_of_a_package_names_the_package_manager(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "cdigen", tmp_path / "cdigen", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cdigen/etc").mkdir()
    for options in ((), ("--remove",), ("--destdir", str(tmp_path / "root"))):
        done = subprocess.run(
            [sys.executable, "-m", "cdigen", "install-service", *options],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert "belongs to a package, which installs and removes its own files" in line
