"""The lock files satisfy pyproject.toml, and installations use only the packages of the lock files.

requirements.lock is for hosts, requirements-build.lock is for building packages, requirements-dev.lock is for
`make test`, `make lint` and `.ci/run`, and requirements-release.lock is for `make release` and `make lock`.
"""

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.installation.installing import done, make
from support.paths import REPOSITORY

HOSTS = "requirements.lock"
BUILD = "requirements-build.lock"
DEV = "requirements-dev.lock"
RELEASE = "requirements-release.lock"
HERE = (f"HOST_PYTHON={sys.executable}", f"HOOK_PYTHON={sys.executable}")


def pinned(lock: str) -> set[tuple[str, str]]:
    """Return each name with each of its releases in the file LOCK."""
    text = (REPOSITORY / lock).read_text()
    return set(re.findall(r"^(\S+)==(\S+)", text, flags=re.MULTILINE))


def pins() -> dict[str, str]:
    """Return the release of each name in requirements.lock, which has one release of each name."""
    return dict(pinned(HOSTS))


def needs(lock: str) -> list[Requirement]:
    """Return the requirements in pyproject.toml that LOCK has to satisfy."""
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project, groups = table["project"], table["dependency-groups"]
    extras = project["optional-dependencies"]
    build = [*table["build-system"]["requires"], *groups["build"]]
    hosts = [*project["dependencies"], *extras["kubelet"]]
    wanted = {
        HOSTS: hosts,
        BUILD: build,
        DEV: [*hosts, *build, *extras["dev"], *groups["hosts"]],
        RELEASE: [*build, *groups["release"]],
    }
    return [Requirement(need) for need in wanted[lock]]


@pytest.mark.parametrize("lock", [HOSTS, BUILD, DEV, RELEASE])
def test_each_lock_satisfies_its_requirements_in_pyproject(lock: str) -> None:
    locked = pinned(lock)
    unfit = []
    for need in needs(lock):
        releases = [release for name, release in locked if name == canonicalize_name(need.name)]
        if not releases or not all(release in need.specifier for release in releases):
            unfit.append((str(need), releases))
    assert unfit == []


def test_every_extra_and_group_of_pyproject_has_its_lock() -> None:
    # A new extra or group needs an option in 'make lock', and an entry in needs() above.
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert set(table["project"]["optional-dependencies"]) == {"kubelet", "dev"}
    assert set(table["dependency-groups"]) == {"build", "hosts", "release"}


def test_the_locks_for_hosts_and_builds_have_only_releases_that_the_tests_use() -> None:
    assert pinned(HOSTS) - pinned(DEV) == set()
    assert pinned(BUILD) - pinned(DEV) == set()
    assert pinned(BUILD) - pinned(RELEASE) == set()


@pytest.mark.parametrize("lock", [HOSTS, BUILD, DEV, RELEASE])
def test_every_pin_is_a_release_with_hashes_and_no_line_names_a_registry(lock: str) -> None:
    text = (REPOSITORY / lock).read_text()
    entry = r"[a-z0-9.-]+==[0-9.]+(?: ; [a-z_]+ [<>=!]+ '[^'\n]+'(?: and [a-z_]+ [<>=!]+ '[^'\n]+')*)?"
    hashes = r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"(?:{entry}{hashes})+", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    assert not re.search(r"://|--index|--find-links|--extra", text)


def wheel(folder: Path, name: str, release: str) -> Path:
    """Write a wheel of NAME with other contents than the wheel of the lock; return its path."""
    stem = f"{name.replace('-', '_')}-{release}"
    parts = {
        f"{name.replace('-', '_')}.py": "print('planted')\n",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{stem}.dist-info/RECORD"
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in parts.items():
            archive.writestr(path, content)
        archive.writestr(record, "".join(f"{path},,\n" for path in (*parts, record)))
    return file


def source(folder: Path, name: str, release: str, proof: Path) -> Path:
    """Write a source archive of NAME whose setup.py creates PROOF when it runs; return its path."""
    stem = f"{name}-{release}"
    file = folder / f"{stem}.tar.gz"
    code = f"open({str(proof)!r}, 'w')\nfrom setuptools import setup\nsetup(name={name!r})\n"
    with tarfile.open(file, "w:gz") as archive:
        for path, content in ((f"{stem}/setup.py", code), (f"{stem}/PKG-INFO", f"Name: {name}\n")):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    return file


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """Return a folder with a fake wheel of every package in requirements.lock."""
    folder = tmp_path / "registry"
    folder.mkdir()
    for name, release in pins().items():
        wheel(folder, name, release)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources; tests can change its locks."""
    copy = tmp_path / "sources"
    copy.mkdir()
    for name in ("cdigen", "etc", "schemas"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", HOSTS, BUILD, DEV, RELEASE):
        shutil.copy(REPOSITORY / name, copy / name)
    return copy


def pip_with(registry: Path, *options: str) -> str:
    """Return a script that runs pip with only the files of REGISTRY."""
    command = (
        f'exec {sys.executable} -m pip --isolated "$@" --no-cache-dir --no-index --find-links {registry}'
    )
    return f"#!/bin/sh\n{command} {' '.join(options)}\n"


def install(tree: Path, registry: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    """Install from TREE with only the files of REGISTRY."""
    script = destination.parent / "pip"
    script.write_text(pip_with(registry))
    script.chmod(0o755)
    return make("install", destination, *HERE, f"PIP={script}", tree=tree)


def test_a_wheel_whose_hash_is_not_in_the_lock_is_refused(tree: Path, registry: Path, tmp_path: Path) -> None:
    destination = tmp_path / "host"
    result = install(tree, registry, destination)
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert list(destination.rglob("*")) == []


def test_wheels_are_installed_if_the_lock_has_their_hashes(
    tree: Path, registry: Path, tmp_path: Path
) -> None:
    # The lock has the hashes of the fake wheels, so pip installs them.
    lines = [
        f"{name}=={release} --hash=sha256:{digest(wheel(registry, name, release))}\n"
        for name, release in pins().items()
    ]
    (tree / "requirements.lock").write_text("".join(lines))
    destination = tmp_path / "host"
    done(install(tree, registry, destination))
    assert (destination / "usr/lib/cdigen/watchdog.py").read_text() == "print('planted')\n"
    # One hash differs.
    tampered = "".join(lines).replace(re.findall(r"sha256:(\w+)", lines[3])[0], "0" * 64)
    (tree / "requirements.lock").write_text(tampered)
    result = install(tree, registry, tmp_path / "other")
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr


def test_no_source_archive_is_built(tree: Path, registry: Path, tmp_path: Path) -> None:
    name, release = "pyudev", pins()["pyudev"]
    for file in registry.glob(f"{name}-*"):
        file.unlink()
    proof = tmp_path / "proof"
    file = source(registry, name, release, proof)
    (tree / "requirements.lock").write_text(f"{name}=={release} --hash=sha256:{digest(file)}\n")
    destination = tmp_path / "host"
    result = install(tree, registry, destination)
    assert result.returncode != 0
    assert f"No matching distribution found for {name}=={release}" in result.stderr
    assert (proof.exists(), list(destination.rglob("*"))) == (False, [])


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a virtual environment whose pip finds wheels with the names in the locks, but other contents."""
    folder = tmp_path / "planted"
    folder.mkdir()
    for name, release in pinned(DEV) | pinned(RELEASE):
        wheel(folder, name, release)
    environment = tmp_path / "venv"
    (environment / "bin").mkdir(parents=True)
    script = environment / "bin/pip"
    script.write_text(pip_with(folder, "--target", str(tmp_path / "target")))
    script.chmod(0o755)
    return environment


@pytest.mark.parametrize("stamp", ["run.stamp", "dev.stamp", "release.stamp"])
def test_the_virtual_environment_gets_no_file_whose_hash_is_not_in_the_lock(
    tree: Path, planted: Path, tmp_path: Path, stamp: str
) -> None:
    if stamp == "dev.stamp":
        (planted / "run.stamp").touch()
    result = make(str(planted / stamp), tmp_path / "unused", f"VENV={planted}", tree=tree)
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert not (planted / stamp).exists()
    assert not (tmp_path / "target").exists()


def test_the_error_for_a_python_without_venv_names_the_package_to_install(tree: Path, tmp_path: Path) -> None:
    # Debian's python3 fails like this without the package python3-venv.
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError('ensurepip')\n")
    result = make(
        f"{tmp_path}/venv/bin/pip",
        tmp_path / "unused",
        f"VENV={tmp_path}/venv",
        tree=tree,
        environment={"PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode != 0
    line = f"{sys.executable}: no module venv or ensurepip: apt-get install python3-venv"
    assert result.stderr.splitlines()[0] == line
    assert not (tmp_path / "venv").exists()


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
