"""``cdigen configure docker`` and ``cdigen doctor`` on a host with Docker from Canonical's snap."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

FILE = "var/snap/docker/3505/config/daemon.json"
UNIT = "etc/systemd/system/snap.docker.dockerd.service"
CONTENT = '{\n    "log-level":        "error"\n}\n'
DEVICE = "example.com/gpu=0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a host with the snap as snapd lays it, and without a GPU."""
    files = {
        "snap/docker/3505/bin/dockerd": "",
        FILE: CONTENT,
        UNIT: "[Service]\nExecStart=/usr/bin/snap run docker.dockerd\n",
        "run/systemd/system/.keep": "",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "snap/docker/current").symlink_to("3505")
    (tmp_path / "var/snap/docker/current").symlink_to("3505")
    (tmp_path / "var/run").symlink_to("/run")
    return tmp_path


def result(cdigen: Run, root: Path, *paths: str, hook: str = "") -> dict[str, Any]:
    """Return the doctor's result for a spec that mounts PATHS and runs HOOK."""
    edits: dict[str, Any] = {
        "env": ["A=b"],
        "mounts": [{"hostPath": path, "containerPath": path, "options": ["ro", "bind"]} for path in paths],
    }
    if hook:
        edits["hooks"] = [{"hookName": "createContainer", "path": hook}]
    device = {"name": "0", "containerEdits": edits}
    (root / "run/cdi").mkdir(exist_ok=True)
    document = {"cdiVersion": "0.5.0", "kind": DEVICE.partition("=")[0], "devices": [device]}
    (root / "run/cdi/example.json").write_text(json.dumps(document))
    rows = cdigen("doctor", "--json", "--for", "docker", "--device", DEVICE, "--root", root).json
    (row,) = (row for row in rows if row["check"] == "docker-snap")
    found: dict[str, Any] = row
    return found


def test_configure_changes_the_file_of_the_snap_and_names_its_unit(cdigen: Run, root: Path) -> None:
    document = cdigen("configure", "docker", "--json", "--root", root).json
    assert [file["path"] for file in document["files"]] == ["/var/snap/docker/current/config/daemon.json"]
    assert document["restart"] == "systemctl restart snap.docker.dockerd"
    assert json.loads((root / FILE).read_bytes())["cdi-spec-dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert not (root / "etc/docker").exists()
    assert cdigen("configure", "docker", "--undo", "--root", root).code == 0
    assert (root / FILE).read_text() == CONTENT


@pytest.mark.parametrize(
    ("paths", "hook", "lost"),
    [
        (("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06",), "", "/usr/lib/x86_64-linux-gnu/libcuda.so"),
        (("/etc/vulkan/icd.d/nvidia_icd.json", "/opt/driver/libcuda.so"), "", "/opt/driver/libcuda.so"),
        (("/var/lib/cdigen/views/1/libcuda.so",), "", "/var/lib/cdigen/views/1/libcuda.so"),
        ((), "/usr/libexec/cdigen/cdigen-hook", "/usr/libexec/cdigen/cdigen-hook"),
    ],
)
def test_files_that_the_snap_does_not_find_are_an_error(
    cdigen: Run, root: Path, paths: tuple[str, ...], hook: str, lost: str
) -> None:
    row = result(cdigen, root, *paths, hook=hook)
    assert (row["ok"], row["severity"], row["remedy"]) == (False, "error", "")
    assert f"dockerd from the snap does not find {lost}" in row["detail"]
    assert "replace the snap by a package" in row["detail"]


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("/etc/vulkan/icd.d/nvidia_icd.json", "/run/x", "/var/run/y"),
        ("/var/lib/snapd/hostfs/usr/lib/libcuda.so",),
    ],
)
def test_files_below_the_folders_of_the_host_are_found_by_the_snap(
    cdigen: Run, root: Path, paths: tuple[str, ...]
) -> None:
    assert result(cdigen, root, *paths)["ok"]


def test_docker_from_a_package_has_no_result_for_the_snap(cdigen: Run, root: Path) -> None:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/dockerd").touch(0o755)
    rows = cdigen("doctor", "--json", "--for", "docker", "--device", DEVICE, "--root", root).json
    assert "docker-snap" not in {row["check"] for row in rows}
