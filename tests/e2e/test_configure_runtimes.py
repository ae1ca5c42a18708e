"""Real runtimes accept the files of ``cdigen configure`` and start containers with them."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host, running_host
from support.containers.doctor_host import copy_packages
from support.containers.forky_host import running_daemons
from support.own_trees import copied_tree, copy_tree
from support.processes import succeeded

pytestmark = pytest.mark.e2e

FOLDER = "/srv/cdi"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/thing",
    "devices": [{"name": "a", "containerEdits": {"env": ["CDIGEN=here"]}}],
}
DEVICE = "--device example.com/thing=a"
IMPORTING = 'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
OLD_CRI = 'plugins."io.containerd.grpc.v1.cri"'
NEW_CRI = 'plugins."io.containerd.cri.v1.runtime"'


@pytest.fixture(scope="module")
def host(cache: Path, images: Path) -> Iterator[Host]:
    """Run a host with the newest runtimes and with the cdigen of this repository."""
    with copied_tree(cache / "runtimes-forky", cache) as root:
        copy_packages(root, "tomlkit")
        with running_host(root, images=images) as running:
            running.put(f"{FOLDER}/thing.json", json.dumps(SPEC))
            yield running


def cdigen_on(host: Host, arguments: str) -> str:
    return host.run(f"PYTHONPATH=/opt/cdigen python3 -m cdigen configure {arguments}")


def dumped(host: Host) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of containerd's CRI and NRI plugins, as containerd prints it."""
    plugins = tomllib.loads(host.run("containerd config dump 2>/dev/null"))["plugins"]
    return plugins["io.containerd.cri.v1.runtime"], plugins["io.containerd.nri.v1.nri"]


@pytest.fixture
def containerd(host: Host) -> Iterator[str]:
    """Return the config.toml of the containerd package, and restore all files after the test."""
    host.run("cp -a /etc/containerd /tmp/containerd")
    yield host.run("cat /etc/containerd/config.toml")
    host.run("rm -rf /etc/containerd /var/lib/cdigen/configure && mv /tmp/containerd /etc/containerd")


def test_containerd_merges_the_drop_in_into_the_configuration_of_the_package(
    host: Host, containerd: str
) -> None:
    before, _ = dumped(host)
    cdigen_on(host, f"containerd --nri --spec-dir {FOLDER}")
    cri, nri = dumped(host)
    assert cri["cdi_spec_dirs"] == ["/etc/cdi", "/var/run/cdi", FOLDER]
    assert (cri["enable_cdi"], nri["disable"]) == (True, False)
    assert {**cri, "cdi_spec_dirs": 0} == {**before, "cdi_spec_dirs": 0}
    cdigen_on(host, "containerd --undo")
    assert host.run("cat /etc/containerd/config.toml") == containerd
    assert dumped(host)[0] == before


@pytest.mark.usefixtures("containerd")
@pytest.mark.parametrize(("version", "plugin"), [(2, OLD_CRI), (3, NEW_CRI)])
def test_containerd_reads_the_drop_in_and_all_of_the_main_file(host: Host, version: int, plugin: str) -> None:
    # If the drop-in had another `version` than the main file, containerd 2.1 would ignore this section.
    main = (
        IMPORTING.format(version=version)
        + f"[{plugin}]\nenable_cdi = false\nmax_container_log_line_size = 77\n"
    )
    host.put("/etc/containerd/config.toml", main)
    cdigen_on(host, f"containerd --spec-dir {FOLDER}")
    cri, _ = dumped(host)
    assert (cri["enable_cdi"], cri["max_container_log_line_size"]) == (True, 77)
    assert cri["cdi_spec_dirs"][-1] == FOLDER
    assert host.run("cat /etc/containerd/config.toml") == main
    cdigen_on(host, "containerd --undo")
    assert dumped(host)[0]["enable_cdi"] is False
    assert host.attempt("ls /etc/containerd/conf.d").returncode != 0


def test_configure_rejects_nri_required_and_changes_no_file_if_containerd_has_no_validator(
    host: Host, containerd: str
) -> None:
    done = host.attempt("PYTHONPATH=/opt/cdigen python3 -m cdigen configure containerd --nri-required")
    assert done.returncode == 2
    assert "has no validator for NRI plugins" in done.stderr
    assert host.run("cat /etc/containerd/config.toml") == containerd


@pytest.mark.usefixtures("containerd")
def test_containerd_merges_the_keys_of_a_subtable_from_main_file_and_drop_in(host: Host) -> None:
    # --nri-required writes a subtable for NRI's validator. containerd 2.1 has no validator, so the test uses
    # another subtable of a plugin (cni).
    runtime = NEW_CRI
    host.put(
        "/etc/containerd/config.toml", IMPORTING.format(version=3) + f"[{runtime}.cni]\nbin_dir = '/a'\n"
    )
    host.put("/etc/containerd/conf.d/z.toml", f"version = 3\n[{runtime}.cni]\nconf_dir = '/b'\n")
    cni = dumped(host)[0]["cni"]
    assert (cni["bin_dir"], cni["conf_dir"]) == ("/a", "/b")


def test_containerd_1_7_enables_nri_with_the_written_configuration(cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    copy_tree(cache / "containerd-trixie", root, own=("etc",))
    (root / "etc/containerd").mkdir(parents=True, exist_ok=True)
    main = root / "etc/containerd/config.toml"
    main.write_text(f"version = 2\n[{OLD_CRI}]\nmax_container_log_line_size = 77\n")
    assert dumped_of(root)["io.containerd.nri.v1.nri"]["disable"] is True
    subprocess.run(
        [sys.executable, "-m", "cdigen", "configure", "containerd", "--nri", "--root", root], check=True
    )
    plugins = dumped_of(root)
    assert plugins["io.containerd.nri.v1.nri"]["disable"] is False
    cri = plugins["io.containerd.grpc.v1.cri"]
    assert (cri["enable_cdi"], cri["max_container_log_line_size"]) == (True, 77)


def dumped_of(root: Path) -> dict[str, Any]:
    """Return the plugin configuration that the containerd in the tree ROOT prints; no daemon is started."""
    command = f"{root}/usr/bin/containerd --config {root}/etc/containerd/config.toml config dump"
    output = succeeded(command.split())
    plugins: dict[str, Any] = tomllib.loads(output)["plugins"]
    return plugins


def test_daemon_json_is_unchanged_if_dockerd_rejects_the_new_file(host: Host) -> None:
    broken = '{"nonsense": 1}\n'
    host.put("/etc/docker/daemon.json", broken)
    done = host.attempt("PYTHONPATH=/opt/cdigen python3 -m cdigen configure docker")
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert host.run("cat /etc/docker/daemon.json") == broken
    assert host.run("ls -A /etc/docker") == "daemon.json\n"
    host.run("rm /etc/docker/daemon.json")


def test_podman_starts_a_container_with_the_new_configuration(host: Host) -> None:
    run = f"podman run --rm {DEVICE} {DEBIAN_IMAGE} printenv CDIGEN"
    assert "unresolvable CDI devices" in host.attempt(run).stderr
    cdigen_on(host, f"podman --spec-dir {FOLDER}")
    assert host.run(run) == "here\n"
    cdigen_on(host, "podman --undo")
    assert "unresolvable CDI devices" in host.attempt(run).stderr


@pytest.fixture
def systemctl(host: Host) -> Iterator[str]:
    """Install a systemctl that only records its calls; return the path of the record."""
    host.put("/usr/bin/systemctl", '#!/bin/sh\necho "$@" >>/run/calls\ntest ! -e /run/fails || exit 4\n')
    # cdigen restarts only an installed runtime. This fake runtime prints no version.
    host.put("/usr/bin/crio", "#!/bin/sh\n")
    host.run("chmod 0755 /usr/bin/systemctl /usr/bin/crio")
    # cdigen restarts a service only if systemd runs and has the unit of the service.
    host.run("mkdir -p /run/systemd/system")
    host.put("/etc/systemd/system/crio.service", "[Service]\nExecStart=/usr/bin/crio\n")
    yield "/run/calls"
    host.run(
        "rm -rf /usr/bin/systemctl /usr/bin/crio /run/calls /run/fails /etc/crio /var/lib/cdigen/configure "
        "/run/systemd/system /etc/systemd/system/crio.service"
    )


def test_a_service_is_restarted_only_after_a_change_with_option_restart(host: Host, systemctl: str) -> None:
    cdigen_on(host, "crio")
    cdigen_on(host, "crio --restart")  # no change is necessary
    assert host.attempt(f"cat {systemctl}").returncode != 0
    cdigen_on(host, "crio --undo --restart")
    assert host.run(f"cat {systemctl}") == "restart crio\n"


@pytest.mark.usefixtures("systemctl")
def test_a_failed_restart_is_reported_and_the_configuration_stays(host: Host) -> None:
    host.run("touch /run/fails")
    done = host.attempt("PYTHONPATH=/opt/cdigen python3 -m cdigen configure crio --restart")
    assert done.returncode == 1
    assert "systemctl restart crio" in done.stderr
    assert "cdi_spec_dirs" in host.run("cat /etc/crio/crio.conf.d/*")


def test_docker_starts_a_container_with_the_new_configuration(host: Host) -> None:
    run = f"docker run --network none --rm {DEVICE} {DEBIAN_IMAGE} printenv CDIGEN"
    with running_daemons(host):
        before = host.run("cat /etc/docker/daemon.json")
        assert host.attempt(run).returncode != 0
        cdigen_on(host, f"docker --spec-dir {FOLDER}")
        restart_dockerd(host)
        assert FOLDER in host.run("docker info --format '{{json .CDISpecDirs}}'")
        assert host.run(run) == "here\n"
        cdigen_on(host, "docker --undo")
        assert host.run("cat /etc/docker/daemon.json") == before


def restart_dockerd(host: Host) -> None:
    host.run(
        "pid=$(cat /run/docker.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done\n"
        "setsid dockerd </dev/null >/run/dockerd.log 2>&1 &\n"
        "for _ in $(seq 300); do if docker version >/dev/null 2>&1; then exit; fi; sleep 0.1; done\n"
        "tail --lines 20 /run/dockerd.log >&2; exit 1"
    )
