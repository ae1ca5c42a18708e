"""Docker from Canonical's snap: its file, its unit, and its order after Docker from a package."""

from __future__ import annotations

import json

import pytest
from support.hosts.runtime_config import ALICE, BOTH, Tree

from cdigen.runtimes.edits.plan import DesiredConfig

FILE = "/var/snap/docker/current/config/daemon.json"
UNIT = "/etc/systemd/system/snap.docker.dockerd.service"
SNAP = "[Service]\nExecStart=/usr/bin/snap run docker.dockerd\n"
RELEASE = (29, 3, 1)


@pytest.fixture(params=["snap", "var/lib/snapd/snap"])
def snap(tree: Tree, request: pytest.FixtureRequest) -> Tree:
    """Return a host with the files of the snap, as snapd lays them."""
    tree.put(f"{request.param}/docker/3505/bin/dockerd", "", mode=0o755)
    (tree.folder / request.param / "docker/current").symlink_to("3505")
    tree.put("var/snap/docker/3505/config/daemon.json", '{\n    "log-level":        "error"\n}\n')
    (tree.folder / "var/snap/docker/current").symlink_to("3505")
    tree.put(UNIT, SNAP)
    return tree


def test_the_file_of_the_snap_is_read(snap: Tree) -> None:
    snap.put("etc/docker/daemon.json", '{"cdi-spec-dirs": ["/of/the/package"]}')
    settings = snap.read("docker", RELEASE)
    assert (settings.edited_file, settings.files, settings.spec_dirs) == (FILE, (FILE,), BOTH)
    snap.put("var/snap/docker/3505/config/daemon.json", '{"features": {"cdi": false}}')
    settings = snap.read("docker", RELEASE)
    assert (settings.cdi_enabled, settings.source("cdi")) == (False, FILE)


def test_the_file_of_the_snap_is_changed(snap: Tree) -> None:
    desired = DesiredConfig(spec_dirs=BOTH)
    (change,) = snap.plan("docker", RELEASE, desired).changes
    assert change.path == FILE
    assert json.loads(change.after or b"") == {"log-level": "error", "cdi-spec-dirs": list(BOTH)}
    snap.apply(snap.plan("docker", RELEASE, desired))
    assert snap.plan("docker", RELEASE, desired).changes == ()


def test_a_drop_in_of_the_snaps_unit_applies(snap: Tree) -> None:
    line = "ExecStart=/usr/bin/snap run docker.dockerd --config-file /srv/daemon.json"
    snap.put(f"{UNIT}.d/own.conf", f"[Service]\nExecStart=\n{line}\n")
    snap.put("srv/daemon.json", "{}")
    assert snap.read("docker", RELEASE).edited_file == "/srv/daemon.json"


def test_docker_from_a_package_is_preferred(snap: Tree) -> None:
    snap.put("usr/bin/dockerd", "", mode=0o755)
    assert snap.read("docker", RELEASE).edited_file == "/etc/docker/daemon.json"


def test_the_rootless_docker_of_a_user_has_its_own_file(snap: Tree) -> None:
    assert snap.read("docker", RELEASE, ALICE).edited_file == "/home/alice/.config/docker/daemon.json"
