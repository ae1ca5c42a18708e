"""Fixtures of the end-to-end tests: provisioned parts, and a host root that a test may change.

A test that cannot run on this machine is skipped with the reason. If CI is set, the test fails instead.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.abilities import cannot_run
from support.containers.chroot_host import running_host
from support.containers.gpu_hosts import WAYS, Driven, HostOf, gpu_root
from support.containers.image_archive import build as build_image
from support.own_trees import copied_tree
from support.paths import TESTS

E2E = TESTS / "e2e"


@pytest.fixture(scope="session")
def cache(own_mounts: None) -> Path:  # noqa: ARG001 - hosts run in mount namespaces
    """Return the folder that `provision` filled; the test cannot run if the folder is not complete."""
    unshare = ["unshare", "--pid", "--fork", "true"]
    if subprocess.run(unshare, check=False, capture_output=True).returncode != 0:
        cannot_run("process namespaces cannot be made: run as root")
    check_provisioned()
    return Path(os.environ.get("CDIGEN_E2E_CACHE") or E2E.parents[1] / ".e2e").resolve()


@pytest.fixture(scope="session")
def kubernetes_tree(cache: Path) -> Path:
    """Return the folder with the programs of Kubernetes, which is an optional part."""
    check_provisioned("--part", "kubernetes")
    return cache / "kubernetes"


@pytest.fixture(scope="session")
def kubectl(cache: Path) -> Path:
    """Return a kubectl whose kustomize supports components, unlike the kubectl of Kubernetes 1.20."""
    check_provisioned("--part", "kubectl")
    return cache / "kubectl"


def check_provisioned(*options: str) -> None:
    """Check that `provision` has made the parts of OPTIONS; if not, the test cannot run."""
    check = subprocess.run(
        [E2E / "provision", "--check", *options], check=False, capture_output=True, text=True
    )
    if check.returncode != 0:
        cannot_run(check.stdout.strip() or check.stderr.strip())


@pytest.fixture(scope="session")
def driver_tree(cache: Path) -> Path:
    """Return the root of a Debian 13 GPU host, without the kernel's files. A test must not change it."""
    return cache / "driver-trixie"


@pytest.fixture(scope="session")
def upgrade_tree(cache: Path) -> Path:
    """Return the root of a Debian 12 GPU host with two driver versions. A test must not change it."""
    return cache / "driver-bookworm"


@pytest.fixture(scope="session")
def images(cache: Path) -> Path:
    """Return podman's store of the images (the names are in containers/chroot_host.py)."""
    return cache / "images"


@pytest.fixture(scope="session")
def image_archive(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive with the image of cdigen, built from this tree (image_archive.IMAGE)."""
    return build_image(cache, tmp_path_factory.mktemp("image") / "cdigen.tar.zst")


@pytest.fixture
def host_root(cache: Path, driver_tree: Path) -> Iterator[Path]:
    """Yield a copy of the driver tree, into which a test may write the kernel's files and specs."""
    with copied_tree(driver_tree, cache) as root:
        yield root


@pytest.fixture(scope="session")
def driven(cache: Path, driver_tree: Path, images: Path) -> Iterator[HostOf]:
    """Return a function that starts and returns the GPU host for a name in gpu_hosts.WAYS."""
    hosts: dict[str, Driven] = {}
    with tempfile.TemporaryDirectory(prefix="hosts-", dir=cache) as folder, ExitStack() as running:

        def of(way: str) -> Driven:
            if way not in hosts:
                root = Path(folder) / way
                gpu_root(root, driver_tree, WAYS[way])
                hosts[way] = Driven(host=running.enter_context(running_host(root, images=images)))
            return hosts[way]

        yield of
