"""Public reports about files that the container engine in use does not read: configurations and specs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.doctor.live_host import live_host
from support.hosts.driver_files import link
from support.hosts.nvidia_platforms import VIDEO, library, node, release, write_list
from support.reports.engines import ReportHost, gpu
from support.reports.kubernetes_nodes import MICROK8S, ReportedHost, driver, gpus, handler

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
TEMPLATE = "/var/snap/microk8s/current/args/containerd-template.toml"
PROGRAM = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
V2 = "version = 2\n"
TEGRA = "/usr/lib/aarch64-linux-gnu/tegra"
ORIN_NODES = ("nvhost-as-gpu", "nvhost-ctrl", "nvhost-ctrl-gpu", "nvhost-gpu")
NVIDIA_RUNTIME = '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}}'
UNREAD = "oci-runtime-unread"


def microk8s(root: Path, cdigen: Run) -> ReportedHost:
    """Return a notebook with MicroK8s, whose operator has written containerd's usual file."""
    host = ReportedHost(root, cdigen)
    files = {
        **MICROK8S,
        "etc/os-release": 'NAME="Pop!_OS"\nID=pop\nID_LIKE="ubuntu debian"\nVERSION_ID="21.04"\n',
        "etc/containerd/config.toml": V2 + handler("nvidia", PROGRAM),
        PROGRAM[1:]: "",
    }
    card = gpus("NVIDIA GeForce RTX 3060 Laptop GPU", 0x2520, "0000:01:00.0")
    host.lay(driver("470.63.01", *card), files)
    host.link("snap/microk8s/current", "2262")
    host.write_specs()
    return host


def test_the_operator_writes_a_file_that_microk8s_does_not_read(tmp_path: Path, cdigen: Run) -> None:
    """NVIDIA's pods stay in Init, although the driver of the host works.

    https://github.com/canonical/microk8s/issues/2634
    """
    host = microk8s(tmp_path / "host", cdigen)
    for runtime in ("containerd", "kubelet"):
        rows = {row["check"]: row for row in host.failures("--for", runtime)}
        assert rows.keys() <= {UNREAD, "kubelet-directory", "kubelet-socket"}
        detail = rows[UNREAD]["detail"]
        assert detail.startswith("/etc/containerd/config.toml has the runtime nvidia, but the containerd of ")
        assert f"of MicroK8s reads {TEMPLATE}, and not this file" in detail
        assert "CONTAINERD_CONFIG in toolkit.env" in detail
        assert rows[UNREAD]["severity"] == "warning"
    assert "--kubelet-dir /var/snap/microk8s/common/var/lib/kubelet" in rows["kubelet-directory"]["detail"]
    host.put(TEMPLATE[1:], V2 + handler("nvidia", PROGRAM))
    assert host.failures("--for", "containerd") == []


@pytest.mark.parametrize("program", ["usr/bin/containerd", ""])
def test_a_file_with_runc_alone_or_of_another_containerd_is_no_failure(
    tmp_path: Path, cdigen: Run, program: str
) -> None:
    """The same host with a usual file that has nothing of NVIDIA, or with a containerd that reads it.

    https://github.com/canonical/microk8s/issues/2634
    """
    host = microk8s(tmp_path / "host", cdigen)
    if program:
        host.put(program, "", mode=0o755)
    else:
        host.put("etc/containerd/config.toml", V2 + handler("runc"))
    assert UNREAD not in {row["check"] for row in host.failures("--for", "containerd")}


def test_docker_27_finds_no_driver_for_the_option_gpus(tmp_path: Path) -> None:
    """Docker reports: could not select device driver "" with capabilities: [[gpu]].

    https://github.com/NVIDIA/nvidia-container-toolkit/issues/854
    """
    with live_host(tmp_path / "live") as live:
        live.install("dockerd", "27.4.1")
        live.run(f"mkdir -p /etc/docker; printf '%s' '{NVIDIA_RUNTIME}' >/etc/docker/daemon.json")
        live.run("cdigen generate --write --quiet")
        row = live.wrong("--for", "docker")["docker-cdi"]
        assert (row["detail"], row["severity"]) == ("CDI is disabled: the default is off", "error")
        assert row["remedy"].startswith("cdigen configure docker")
        live.run("cdigen configure docker")
        assert live.wrong("--for", "docker").keys() <= {"docker-running"}
        live.run("echo 'docker run --rm --gpus all nvidia/cuda nvidia-smi' >/run.sh")
        plan = live.attempt("cdigen doctor --migrate /run.sh").stdout
        assert "replacement: --device nvidia.com/gpu=all" in plan


def test_docker_from_the_snap_does_not_read_the_file_with_the_runtime(tmp_path: Path, cdigen: Run) -> None:
    """The same message if Docker is the snap, which has a file of its own.

    https://github.com/NVIDIA/nvidia-container-toolkit/issues/854
    """
    report = ReportHost(tmp_path / "host", cdigen).lay("550.120", gpu(0, "01", "RTX 4090", 0x2684))
    report.put("etc/docker/daemon.json", NVIDIA_RUNTIME)
    report.put("snap/docker/2963/bin/dockerd", mode=0o755)
    report.put("var/snap/docker/2963/config/daemon.json", '{"log-level": "error"}')
    for folder in ("snap/docker", "var/snap/docker"):
        report.link(f"{folder}/current", "2963")
    report.write_specs()
    found = report.failures("--for", "docker")
    assert list(found) == ["docker-snap", UNREAD]
    assert "replace the snap by a package of the distribution" in found["docker-snap"]["detail"]
    detail = found[UNREAD]["detail"]
    assert detail.startswith("/etc/docker/daemon.json has the runtime nvidia, but the docker from the snap ")
    assert "reads /var/snap/docker/current/config/daemon.json" in detail
    report.put("var/snap/docker/2963/config/daemon.json", NVIDIA_RUNTIME)
    assert UNREAD not in report.failures("--for", "docker")
    report.put("var/snap/docker/2963/config/daemon.json", "{}")
    report.program("dockerd")
    assert report.failures("--for", "docker") == {}


def orin(root: Path) -> None:
    """Write a Jetson AGX Orin with JetPack 5.1.1; one node of the list does not exist."""
    release(root, 35, "3.1")
    for minor, name in enumerate(ORIN_NODES):
        node(root, f"/dev/{name}", 505, minor + 1, 0o660, gid=VIDEO)
    node(root, "/dev/nvmap", 10, 61, 0o660, gid=VIDEO)
    library(root, f"{TEGRA}/libcuda.so.1.1", "libcuda.so.1")
    library(root, f"{TEGRA}/libvulkansc.so.1", "libvulkansc.so.1")
    link(root / f"{TEGRA}/libcuda.so"[1:], "libcuda.so.1.1")
    rows = [f"dev, /dev/{name}" for name in (*ORIN_NODES, "nvmap", "nvhost-vic")]
    rows += [f"lib, {TEGRA}/libcuda.so.1.1", f"lib, {TEGRA}/libvulkansc.so.1", f"sym, {TEGRA}/libcuda.so"]
    write_list(root, "l4t.csv", "\n".join(rows) + "\n")


def test_singularity_gets_a_jetson_orin_by_a_spec(tmp_path: Path, cdigen: Run) -> None:
    """nvidia-container-cli lists nothing on JetPack 5, so that --nvccli fails at /dev/nvhost-as-gpu.

    https://github.com/sylabs/singularity/issues/1850
    """
    host = ReportedHost(tmp_path / "host", cdigen).lay(
        orin, {"run.sh": "singularity run --nv --nvccli e.sif"}
    )
    host.write_specs()
    assert host.failures() == []
    (device,) = (one for one in host.document()["devices"] if one["name"] == "0")
    nodes = [one["path"] for one in device["containerEdits"]["deviceNodes"]]
    assert nodes == [f"/dev/{name}" for name in (*ORIN_NODES, "nvmap")]
    plan = cdigen("doctor", "--json", "--migrate", host.root / "run.sh", "--root", host.root).json
    (row,) = plan["legacy_requests"]
    assert row["request"] == "singularity run --nv --nvccli"
    assert row["replacement"].startswith("--oci --device nvidia.com/gpu=NAME for each GPU of NVIDIA_VISIBLE_")
    assert row["replacement"].endswith("(SingularityCE 4.0 or newer)")
