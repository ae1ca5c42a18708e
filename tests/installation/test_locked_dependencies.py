"""requirements.lock, by which `make install` fetches: what is in it, and that nothing else gets in."""

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
from installation.installing import REPOSITORY, done, make
from packaging.requirements import Requirement

LOCK = REPOSITORY / "requirements.lock"
HERE = (f"HOST_PYTHON={sys.executable}", f"HOOK_PYTHON={sys.executable}")


def pins() -> dict[str, str]:
    text = LOCK.read_text()
    pin = re.compile(r"^(\S+)==(\S+)", re.MULTILINE)
    return dict(pin.findall(text))


def needs() -> list[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["kubelet"]
    return [Requirement(need) for need in (*project["dependencies"], *extra)]


def test_the_lock_fits_what_pyproject_asks_for() -> None:
    there = pins()
    unfit = [str(need) for need in needs() if there.get(need.name, "") not in need.specifier]
    assert unfit == []


def test_every_pin_is_a_release_with_its_hashes_and_nothing_names_a_registry() -> None:
    text = re.sub(r"^#.*\n", "", LOCK.read_text(), flags=re.MULTILINE)
    entry = r"[a-z0-9.-]+==[0-9.]+(?: ; python_full_version < '3\.[0-9]+')?"
    hashes = r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"(?:{entry}{hashes})+", text)
    assert not re.search(r"://|--index|--find-links|--extra", LOCK.read_text())


def wheel(folder: Path, name: str, release: str) -> Path:
    """Put a wheel of NAME there, which is not the one that the lock means."""
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
    """Put a source archive of NAME there whose setup.py leaves PROOF that it was run."""
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
    """Return a folder with a wheel of everything in the lock, none of them the real one."""
    folder = tmp_path / "registry"
    folder.mkdir()
    for name, release in pins().items():
        wheel(folder, name, release)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources, whose lock a test can change."""
    copy = tmp_path / "sources"
    copy.mkdir()
    for name in ("cdigen", "etc", "schemas"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(REPOSITORY / name, copy / name)
    return copy


def install(tree: Path, registry: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    """Install from TREE with what REGISTRY has and nothing else."""
    script = destination.parent / "pip"
    script.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pip --isolated "$@" --no-cache-dir --no-index '
        f"--find-links {registry}\n"
    )
    script.chmod(0o755)
    return make("install", destination, *HERE, f"PIP={script}", tree=tree)


def test_what_is_not_the_file_that_was_pinned_is_refused(tree: Path, registry: Path, tmp_path: Path) -> None:
    destination = tmp_path / "host"
    result = install(tree, registry, destination)
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert list(destination.rglob("*")) == []


def test_a_lock_that_has_the_hashes_of_other_files_gets_those(
    tree: Path, registry: Path, tmp_path: Path
) -> None:
    # The same as above but for the hashes: it is they that decide.
    lines = [
        f"{name}=={release} --hash=sha256:{digest(wheel(registry, name, release))}\n"
        for name, release in pins().items()
    ]
    (tree / "requirements.lock").write_text("".join(lines))
    destination = tmp_path / "host"
    done(install(tree, registry, destination))
    assert (destination / "usr/lib/cdigen/watchdog.py").read_text() == "print('planted')\n"
    # One hash of one of them is another.
    tampered = "".join(lines).replace(re.findall(r"sha256:(\w+)", lines[3])[0], "0" * 64)
    (tree / "requirements.lock").write_text(tampered)
    result = install(tree, registry, tmp_path / "other")
    assert result.returncode != 0
    assert "DO NOT MATCH THE HASHES" in result.stderr


def test_no_source_is_ever_built(tree: Path, registry: Path, tmp_path: Path) -> None:
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


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
