"""The devices that installed runtimes find on hosts with programs and configurations of runtimes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cdigen.page.device_users import RuntimeResolution

if TYPE_CHECKING:
    from pathlib import Path

GPU = "nvidia.com/gpu"
NAMES = (f"{GPU}=0", f"{GPU}=1")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name in ("podman", "dockerd"):
        program(tmp_path, name)
    spec(tmp_path, "etc/cdi/nvidia.json", "0", "1")
    return tmp_path


def program(host: Path, name: str) -> None:
    path = host / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def spec(host: Path, path: str, *names: str, version: str = "0.5.0") -> None:
    devices = [{"name": name, "containerEdits": {"env": [f"A={name}"]}} for name in names]
    file = host / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"cdiVersion": version, "kind": GPU, "devices": devices}))


def found(host: Path) -> dict[str, tuple[int, int, tuple[tuple[str, str], ...]]]:
    views = RuntimeResolution(str(host)).resolve(NAMES)
    return {one.name: (one.found, one.offered, one.problems) for one in views}


def test_each_runtime_finds_the_devices_that_its_loader_accepts(host: Path) -> None:
    assert found(host) == {"podman": (2, 2, ()), "Docker": (2, 2, ())}


def test_a_file_that_no_loader_accepts_is_named_once(host: Path) -> None:
    spec(host, "etc/cdi/nvidia.json", "0", "1", version="9.9.9")
    views = found(host)["podman"]
    assert views[:2] == (0, 2)
    ((path, why),) = views[2]
    assert path == "/etc/cdi/nvidia.json"
    assert "9.9.9" in why
    assert not why.startswith("/etc")


def test_an_undefined_device_is_named(host: Path) -> None:
    spec(host, "etc/cdi/nvidia.json", "0")
    ((name, why),) = found(host)["podman"][2]
    assert (name, why) == (f"{GPU}=1", f"{GPU} has 0")


def test_docker_with_cdi_switched_off_finds_nothing(host: Path) -> None:
    (host / "etc/docker").mkdir()
    (host / "etc/docker/daemon.json").write_text('{"features": {"cdi": false}}')
    views = found(host)
    assert views["podman"][0] == 2
    assert views["Docker"] == (
        0,
        2,
        (("/usr/bin/dockerd", "CDI is switched off by /etc/docker/daemon.json"),),
    )


def test_added_and_removed_runtimes_and_changed_specs_are_found(host: Path) -> None:
    resolution = RuntimeResolution(str(host))
    assert [one.name for one in resolution.resolve(NAMES)] == ["podman", "Docker"]
    (host / "usr/bin/podman").unlink()
    spec(host, "etc/cdi/nvidia.json", "0")
    assert [(one.name, one.found) for one in resolution.resolve(NAMES)] == [("Docker", 1)]
    program(host, "crio")
    assert [(one.name, one.found) for one in resolution.resolve(NAMES)] == [("Docker", 1), ("CRI-O", 1)]


def test_the_result_for_a_host_without_a_runtime_is_empty(tmp_path: Path) -> None:
    assert found(tmp_path) == {}
