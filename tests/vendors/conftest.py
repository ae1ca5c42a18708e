"""Fixtures for the tests of vendors: packages that add a vendor, and hosts."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command.fixtures import Run
from support.hosts import intel_tree
from support.hosts.added_vendors import EXAMPLE, install, lay_npus

from cdigen.vendors import registry


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed example vendor. All tests use the folder and must not change it."""
    target = tmp_path_factory.mktemp("acme") / "packages"
    install(EXAMPLE, target)
    return target


@pytest.fixture
def guests(acme: Path, tmp_path: Path) -> Path:
    """Return a folder with the installed example vendor. A test can install further packages into it."""
    return Path(shutil.copytree(acme, tmp_path / "guests"))


@pytest.fixture
def mixed(host: Path) -> Path:
    """Return a host with NVIDIA's GPUs and Acme's NPUs."""
    lay_npus(host)
    return host


@pytest.fixture
def with_acme(cdigen_process: Run, mixed: Path, acme: Path) -> Run:
    """Return a function that runs cdigen on the host `mixed` in a process with the packages in `acme`."""
    return lambda name, *arguments: cdigen_process(name, "--root", mixed, *arguments, PYTHONPATH=str(acme))


@pytest.fixture
def with_guests(cdigen_process: Run, mixed: Path, guests: Path) -> Run:
    """Return a function that runs cdigen on the host `mixed` in a process with the packages in `guests`."""
    return lambda name, *arguments: cdigen_process(name, "--root", mixed, *arguments, PYTHONPATH=str(guests))


@pytest.fixture
def root(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - nodes must be real
    """Return an empty root in which device nodes can be created."""
    return tmp_path


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder in which a vendor `added` can be installed for this process."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    forget_added()
    yield folder
    forget_added()


def forget_added() -> None:
    sys.modules.pop("cdigen_added", None)
    for cached in (registry.load, registry._entry_point, registry.visible_devices):
        cached.cache_clear()


@pytest.fixture
def laptop(tmp_path: Path, real_nodes: None) -> Path:  # noqa: ARG001 - nodes must be real
    """Return a host with one GPU and one NPU of Intel."""
    root = tmp_path / "laptop"
    intel_tree.lay(root, *intel_tree.laptop())
    return root
