"""Public reports from Bottlerocket, CoreOS, GKE, NixOS, Bazzite and Jetson boards, rebuilt."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.doctor.kubernetes_host import KubeNode
from support.doctor.live_host import live_host
from support.hosts.access_list import set_access_list
from support.hosts.nvidia_platforms import VIDEO
from support.reports import distributions
from support.reports.distributions import RENDER, TEGRA, TESLA, XAVIER_NODES
from support.reports.report_host import ReportHost

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

AARCH64 = "/usr/lib/aarch64-linux-gnu"
X86_64 = "/usr/lib/x86_64-linux-gnu"


@pytest.fixture
def host(tmp_path: Path) -> ReportHost:
    return ReportHost(tmp_path / "host")


def test_bottlerockets_driver_is_found_by_the_loader_cache(host: ReportHost) -> None:
    """https://github.com/bottlerocket-os/bottlerocket-core-kit/pull/480

    generate-cdi-specs.service failed at boot: libcuda.so.535.247.01 was not found.
    """
    host.lay(distributions.bottlerocket_ecs, "docker")
    host.generate()
    host.doctor("--for docker", wrong=False)
    sources = host.sources()
    for name in ("libcuda.so.1", "libcuda.so.535.247.01"):
        assert sources[f"{AARCH64}/{name}"] == f"{TESLA}/libcuda.so.535.247.01"
    assert sources[f"{AARCH64}/libnvidia-ml.so.1"] == f"{TESLA}/libnvidia-ml.so.535.247.01"
    assert "29 libraries" in host.result("driver-files")["detail"]


def test_a_driver_that_the_loader_cache_lacks_is_named_with_folders_and_key(host: ReportHost) -> None:
    """https://github.com/bottlerocket-os/bottlerocket-core-kit/pull/480

    The twin: the cache does not list the driver's folder, and the key of the configuration does.
    """
    host.lay(partial(distributions.bottlerocket_ecs, in_cache=False), "docker")
    host.generate(code=3)
    row = host.diagnosis()
    assert (row["check"], row["severity"]) == ("driver-files", "error")
    assert "no library of the driver 535.247.01 was found" in row["detail"]
    assert "none of libcuda, libnvidia-ml," in row["detail"]
    assert "in /usr/lib64, /usr/lib" in row["detail"]
    assert "library_search_paths: [FOLDER]" in row["detail"]
    host.put("etc/cdigen/config.yaml", f"library_search_paths: [{TESLA}]\n")
    host.generate()
    assert host.sources()[f"{AARCH64}/libcuda.so.1"] == f"{TESLA}/libcuda.so.535.247.01"
    host.doctor("--for docker", wrong=False)


def test_coreos_driver_in_opt_needs_one_key(host: ReportHost) -> None:
    """https://github.com/shelmangroup/coreos-gpu-installer/issues/1

    Pods had the device without libraries, because the plugin mounted another folder than /opt/nvidia.
    """
    host.lay(distributions.coreos, "docker")
    row = host.diagnosis()
    assert row["check"] == "driver-files"
    assert "library_search_paths: [FOLDER]" in row["detail"]
    host.put("etc/cdigen/config.yaml", "library_search_paths: [/opt/nvidia/lib64]\n")
    host.generate()
    sources = host.sources()
    assert sources[f"{X86_64}/libcuda.so.1"] == "/opt/nvidia/lib64/libcuda.so.390.46"
    assert sources["/usr/bin/nvidia-smi"] == "/opt/nvidia/bin/nvidia-smi"


def test_the_device_plugin_of_gke_conflicts_with_cdigen_kubelet(tmp_path: Path) -> None:
    """https://github.com/shelmangroup/coreos-gpu-installer/issues/1

    Google's device plugin advertises nvidia.com/gpu at nvidiaGPU-1523400000.sock.
    """
    node = KubeNode(tmp_path / "host").make_node()
    node.listen("nvidiaGPU-1523400000.sock")
    detail = node.wrong()["kubelet-plugin-conflict"]["detail"]
    assert "another device plugin serves nvidia.com/gpu (nvidiaGPU-1523400000.sock)" in detail


def test_gkes_driver_below_home_kubernetes_is_found_without_a_setting(host: ReportHost) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/621

    The plugin did not find libcuda.so.535.129.03 in /home/kubernetes/bin/nvidia/lib64.
    """
    host.lay(distributions.gke_node, "containerd")
    host.generate()
    host.doctor("--for containerd", wrong=False)
    sources, folder = host.sources(), "/home/kubernetes/bin/nvidia"
    assert sources[f"{X86_64}/libcuda.so.1"] == f"{folder}/lib64/libcuda.so.535.129.03"
    assert sources["/usr/bin/nvidia-smi"] == f"{folder}/bin/nvidia-smi"
    (gpu,) = [device for device in host.document()["devices"] if device["name"] == "0"]
    assert [each["path"] for each in gpu["containerEdits"]["deviceNodes"]] == ["/dev/nvidia0"]
    assert "/var/run/cdi" in host.result("containerd-directories", "--for", "containerd")["detail"]


def test_nixos_mounts_the_files_of_the_store(host: ReportHost) -> None:
    """https://github.com/NixOS/nixpkgs/issues/173953

    The legacy hook failed in images without a loader cache; the spec has no hook and the store's files.
    """
    host.lay(distributions.nixos_desktop, "podman", "docker")
    host.generate()
    host.doctor(wrong=False)
    spec, sources = host.document(), host.sources()
    assert all(source.startswith(("/nix/store/", "/run/nvidia")) for source in sources.values())
    assert sources[f"{X86_64}/libcuda.so.1"].endswith("-nvidia-x11-550.78-6.12.30/lib/libcuda.so.550.78")
    assert "hooks" not in spec["containerEdits"]


def test_bazzites_socket_of_persistenced_stays_in_the_spec(host: ReportHost) -> None:
    """https://github.com/ublue-os/bazzite/issues/1787

    An old toolbox could not make the mount point of the socket; host and spec are right.
    """
    host.lay(distributions.bazzite, "podman")
    host.generate()
    host.doctor("--for podman", wrong=False)
    socket = "/run/nvidia-persistenced/socket"
    assert host.sources()[socket] == socket


def test_an_image_based_system_gets_packages_by_rpm_ostree(host: ReportHost) -> None:
    """https://github.com/ublue-os/bazzite/issues/1787

    Bazzite has dnf, which installs nothing there.
    """
    host.lay(distributions.bazzite, "podman")
    host.generate()
    row = host.result("docker-installed", "--for", "docker")
    assert host.remedy_on_host(row) == "rpm-ostree install --assumeyes --apply-live moby-engine"
    (host.root / "run/ostree-booted").unlink()
    row = host.result("docker-installed", "--for", "docker")
    assert host.remedy_on_host(row) == "dnf install --assumeyes moby-engine"


def test_rootless_podman_with_runc_loses_the_group_of_a_jetsons_nodes(host: ReportHost) -> None:
    """https://github.com/podman-container-tools/podman/issues/10166

    Rootless containers could not open the nodes, with keep-groups too: podman used runc.
    """
    host.lay(distributions.xavier, "podman")
    host.generate()
    (gpu,) = [device for device in host.document()["devices"] if device["name"] == "0"]
    nodes = {each["path"]: each.get("gid") for each in gpu["containerEdits"]["deviceNodes"]}
    assert nodes == {f"/dev/{name}": VIDEO for name in (*XAVIER_NODES, "nvmap")}
    assert host.sources()[f"{AARCH64}/libcuda.so.1"] == f"{TEGRA}/libcuda.so.1.1"
    options = ("--user", "alice", "--for", "podman")
    row = host.result("node-groups", *options)
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert "only the groups video may open the nodes" in row["detail"]
    assert "podman uses runc: install crun, set 'runtime = \"crun\"'" in row["detail"]
    host.put("usr/bin/crun", "", mode=0o755)
    host.put("etc/containers/containers.conf", '[engine]\nruntime = "crun"\n')
    row = host.result("node-groups", *options)
    assert row["ok"]
    assert "keep groups with crun and 'podman run --group-add keep-groups'" in row["detail"]
    host.put("home/alice/.config/containers/containers.conf", '[engine]\nruntime = "/usr/bin/runc"\n')
    assert "podman uses /usr/bin/runc" in host.result("node-groups", *options)["detail"]


def test_podman_of_2021_reads_no_specs(tmp_path: Path) -> None:
    """https://github.com/podman-container-tools/podman/issues/10166

    The report's podman 3.1 reads no CDI specs; podman 4.9 does.
    """
    with live_host(tmp_path / "live") as live:
        live.install("podman", "3.1.2")
        row = live.wrong("--for", "podman")["podman-version"]
        assert row["severity"] == "error"
        assert "podman 3.1.2 reads no CDI specs" in row["detail"]
        assert "4.3" in row["detail"]
        live.install("podman", "4.9.4")
        assert "podman-version" not in live.wrong("--for", "podman")


def test_a_jetsons_user_over_ssh_joins_the_missing_group(host: ReportHost) -> None:
    """https://github.com/dusty-nv/jetson-containers/issues/763

    Over SSH, an ordinary user had no GPU: the node of the group render, and nvmap, which is read-only (0440).
    """
    host.lay(distributions.orin_over_ssh, "podman")
    host.generate()
    row = host.result("node-access", "--user", "jet")
    assert not row["ok"]
    assert "jet may not open /dev/dri/renderD128, /dev/dri/renderD129, but" in row["detail"]
    assert host.remedy_on_host(row) == "usermod --append --groups render jet"
    row = host.result("node-access", "--user", "both")
    assert (row["ok"], row["detail"]) == (True, "both may open all 12 nodes")
    row = host.result("node-access", "--user", "seat")
    assert host.remedy_on_host(row) == "usermod --append --groups video,render seat"


def test_a_jetsons_spec_has_the_numbers_of_both_groups(host: ReportHost) -> None:
    """https://github.com/dusty-nv/jetson-containers/issues/763

    The spec gives the container's process the groups of the nodes, independently of a login.
    """
    host.lay(distributions.orin_over_ssh, "podman")
    host.generate("--target", "podman-5.4")
    for device in host.document()["devices"]:
        if device["name"] != "none":
            assert device["containerEdits"]["additionalGids"] == [VIDEO, RENDER]
            nodes = {each["path"]: each for each in device["containerEdits"]["deviceNodes"]}
            assert (nodes["/dev/nvmap"]["fileMode"], nodes["/dev/nvmap"]["gid"]) == (0o440, VIDEO)
            assert nodes["/dev/dri/renderD128"]["gid"] == RENDER


def test_access_by_a_login_at_the_display_ends_with_the_session(host: ReportHost) -> None:
    """https://github.com/dusty-nv/jetson-containers/issues/763

    With a user at the display, everything worked: logind adds the user to the access lists.
    """
    host.lay(distributions.orin_over_ssh, "podman")
    for path in (host.root / "dev").rglob("*"):
        if path.is_char_device() and path.stat().st_gid:
            owner = "r--" if path.name == "nvmap" else "rw-"
            set_access_list(path, f"user::{owner},user:1002:rw-,group::{owner},mask::rw-,other::---")
    host.generate()
    row = host.result("node-access", "--user", "seat")
    assert row["ok"]
    assert "which systemd-logind removes at the end of a local session" in row["detail"]
