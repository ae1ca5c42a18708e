"""The example vendor of another package, really installed, for the tests of vendors."""

import shutil
from pathlib import Path

import pytest
from support.hosts.added_vendors import EXAMPLE, install, lay_npus


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the example was installed into. Shared: not to be changed."""
    target = tmp_path_factory.mktemp("acme") / "packages"
    install(EXAMPLE, target)
    return target


@pytest.fixture
def guests(acme: Path, tmp_path: Path) -> Path:
    """Return a folder with the example installed, into which a test may put more."""
    return Path(shutil.copytree(acme, tmp_path / "guests"))


@pytest.fixture
def mixed(host: Path) -> Path:
    """Return a host with NVIDIA's GPUs and Acme's NPUs."""
    lay_npus(host)
    return host
