"""Public reports about Kubernetes nodes: their distributions, kubelets, pods and GPUs."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from support.daemon.host import Host, daemon
from support.daemon.kernel_records import FakeLog, recent
from support.doctor.kubernetes_host import registered
from support.doctor.live_host import live_host
from support.hosts.nvidia import discover
from support.hosts.nvidia_kernel import write_kernel_side
from support.kubelet.host_resources import allocator, made, preferred, state
from support.kubelet.host_resources import put as put_inventory
from support.nvml import standin
from support.reports.kubernetes_nodes import (
    MICROK8S,
    ReportedHost,
    driver,
    gpus,
    handler,
    no_driver,
    put,
)
from support.values.unhealthy_gpus import FELL, example, save, with_causes

from cdigen import page_url
from cdigen.config import KubeletConfig
from cdigen.host.root import Root
from cdigen.kubelet.resources.nvidia_file import with_nvidia_file
from cdigen.value import replace
from cdigen.vendors.context import DiscoveryContext
from cdigen.vendors.nvidia.health.probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.command.fixtures import Run
    from support.doctor.kubernetes_host import KubeNode
    from support.hosts.nvidia_kernel import Gpu

    from cdigen.kubelet.advertised_resources import AdvertisedResources

QUESTIONS = page_url("how-to/kubernetes/troubleshoot")
TEMPLATE = "/var/snap/microk8s/current/args/containerd-template.toml"
RKE2 = "/var/lib/rancher/rke2"
TOOLKIT = "/usr/local/nvidia/toolkit"
TIME_SLICING = """version: v1
flags:
  migStrategy: "none"
  failOnInitError: true
  nvidiaDriverRoot: "/"
  plugin: {passDeviceSpecs: false, deviceListStrategy: envvar, deviceIDStrategy: uuid}
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""
V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
EIGHT = ("07", "0f", "47", "4e", "87", "90", "b7", "bd")


@pytest.fixture
def host(tmp_path: Path, cdigen: Run, real_nodes: None) -> ReportedHost:  # noqa: ARG001 - nodes must be real
    return ReportedHost(tmp_path / "host", cdigen)


@pytest.fixture
def running(tmp_path: Path, real_nodes: None) -> Host:  # noqa: ARG001 - likewise
    """Return a host for the daemon."""
    return Host(tmp_path / "host").prepare()


@pytest.fixture
def log(running: Host) -> Iterator[FakeLog]:
    with closing(FakeLog(running.kernel_log())) as log:
        yield log


def microk8s(host: ReportedHost) -> None:
    host.link("snap/microk8s/current", "2262")


def test_microk8s_on_a_host_without_a_driver(host: ReportedHost) -> None:
    """https://github.com/canonical/microk8s/issues/2352: the pods of NVIDIA's operator stay in Init."""
    host.lay(no_driver(0x1E07, "0000:01:00.0", holder="nouveau"), MICROK8S)
    microk8s(host)
    row = host.failures("--for", "kubelet")[0]
    assert row["check"] == "driver-loaded"
    assert "1 GPU bound to the driver nouveau (0000:01:00.0)" in row["detail"]
    assert "no module for the kernel 5.4.0-74-generic; install the driver again" in row["detail"]
    assert "modprobe nvidia" not in row["detail"]


@pytest.mark.parametrize("runtime", ["containerd", "kubelet"])
def test_microk8s_has_its_own_containerd(host: ReportedHost, cdigen: Run, runtime: str) -> None:
    """https://github.com/canonical/microk8s/issues/2352: with the driver, everything works."""
    host.lay(driver("460.80", *gpus("NVIDIA GeForce RTX 2080 Ti", 0x1E07, "0000:01:00.0")), MICROK8S)
    microk8s(host)
    host.write_specs()
    host.listen("var/lib/kubelet/device-plugins/kubelet.sock")
    rows = host.examined("--for", runtime)
    assert {row["check"] for row in rows if not row["ok"]} <= {"kubelet-directory"}
    (row,) = (row for row in rows if row["check"] == "containerd-config")
    assert row["detail"].startswith(TEMPLATE)
    assert "/etc/containerd" not in str(rows)
    document = cdigen("configure", "containerd", "--json", "--root", host.root).json
    assert [file["path"] for file in document["files"]] == [TEMPLATE]


@pytest.mark.parametrize("runtime", ["", "--for=containerd"])
def test_microk8s_reads_neither_the_file_of_docker_nor_that_of_containerd(
    host: ReportedHost, runtime: str
) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/182: NVML is not found in pods, only in Docker."""
    docker = (
        '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}'
    )
    short = "[plugins.cri.containerd]\ndefault_runtime_name = 'nvidia-container-runtime'\n"
    files = {"etc/docker/daemon.json": docker, "etc/containerd/config.toml": short, "usr/bin/containerd": ""}
    cards = gpus("NVIDIA GeForce GTX 1080 Ti", 0x1B06, "0000:01:00.0")
    host.lay(driver("450.80.02", *cards), {**MICROK8S, **files, "usr/bin/dockerd": ""})
    microk8s(host)
    host.write_specs()
    found = {row["check"]: row for row in host.examined("--for", "kubelet")}
    assert found["containerd-config"]["detail"] == f"{TEMPLATE}: readable"
    assert found["containerd-version"]["detail"].startswith("skipped: /snap/microk8s/current/bin/containerd")
    assert "/etc/" not in str([found[check]["detail"] for check in found if check.startswith("containerd-c")])
    rows = [row for row in host.examined(*runtime.split()) if row["check"] == "containerd-config"]
    assert [(row["ok"], row["checked"]) for row in rows] == [(True, True), (True, False)]
    assert rows[0]["detail"] == "/etc/containerd/config.toml: readable"
    assert "pods use the containerd of MicroK8s, which does not read /etc/containerd" in rows[1]["detail"]
    assert "run 'cdigen doctor --for kubelet'" in rows[1]["detail"]


def test_the_toolkit_of_microk8s_searches_the_driver_in_a_folder_without_one(host: ReportedHost) -> None:
    """https://github.com/canonical/microk8s-core-addons/issues/251: libnvidia-ml.so.1 is not loaded."""
    config = f"{TOOLKIT}/.config/nvidia-container-runtime/config.toml"
    program = f"{TOOLKIT}/nvidia-container-runtime"
    files = {
        **MICROK8S,
        TEMPLATE[1:]: V2 + handler("nvidia", program),
        config[1:]: '[nvidia-container-cli]\nroot = "/run/nvidia/driver"\n',
        program[1:]: "",
    }
    host.lay(driver("535.129.03", *gpus("Tesla T4", 0x1EB8, "0000:01:00.0")), files)
    microk8s(host)
    host.write_specs()
    (row,) = host.failures("--for", "containerd")
    assert (row["check"], row["severity"]) == ("toolkit-root", "warning")
    assert f"{config} (root = '/run/nvidia/driver'): the folder has no libnvidia-ml.so.1" in row["detail"]
    assert "Set root = '/' (in the operator: driver.enabled=false)" in row["detail"]
    found = {one["kind"]: one["where"] for one in host.migration()["leftovers"]}
    assert found == {"programs": [program], "runtime": [TEMPLATE]}
    host.put(config[1:], '[nvidia-container-cli]\nroot = "/"\n')
    assert host.failures("--for", "containerd") == []


def test_rke2_does_not_start_after_a_patch_release(tmp_path: Path, real_nodes: None) -> None:  # noqa: ARG001
    """https://github.com/rancher/rke2/issues/4990: RKE2 stops with an error in a template of containerd."""
    with live_host(tmp_path / "live") as live:
        config = f"{RKE2}/agent/etc/containerd/config.toml"
        put(live, config, V2 + "enable_cdi = true\n" + handler("nvidia", "/usr/bin/env"))
        put(live, "/usr/lib/systemd/system/rke2-server.service", "[Service]\nExecStart=/bin/rke2 server")
        put(live, f"{RKE2}/bin/containerd", "#!/bin/sh\necho containerd k3s-io/containerd v1.7.7-k3s1")
        live.run(f"chmod 755 {RKE2}/bin/containerd; mkdir -p /run/systemd/system")
        live.run("cdigen generate --write --quiet")
        for runtime in ("containerd", "kubelet"):
            rows = live.doctor("--for", runtime)
            wrong = {row["check"]: row for row in reversed(rows) if not row["ok"]}
            assert wrong["containerd-running"]["remedy"] == "systemctl start rke2-server"
            details = {row["check"]: row["detail"] for row in rows if row["ok"]}
            assert details["containerd-config"] == f"{config}: readable"
            assert "driver-files" in details
            assert "/etc/containerd" not in str(rows).replace("agent/etc/containerd", "")
        assert wrong["kubelet-running"]["remedy"] == "systemctl restart rke2-server.service"


def test_a_privileged_pod_has_two_of_eight_gpus(host: ReportedHost, cdigen: Run) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1686: Docker in a pod stops at a GPU of another pod."""
    cards = gpus("NVIDIA A100-SXM4-40GB", 0x20B0, *(f"0000:{bus}:00.0" for bus in EIGHT))
    host.lay(driver("520.61.05", *cards), {})
    for card in cards[2:]:
        shutil.rmtree(host.root / "proc/driver/nvidia/gpus" / card.bdf)
    # The same on a host is a loss of six GPUs.
    assert {row["check"] for row in host.failures()} >= {"gpus"}
    host.put("run/.containerenv", "")
    host.write_specs()
    assert host.failures() == []
    document = host.document()
    names = {one["name"] for one in document["devices"] if not one["name"].startswith("GPU-")}
    assert names == {"0", "1", "all", "none"}
    assert "/dev/nvidia2" not in str(document)
    (row,) = (row for row in host.examined() if row["check"] == "in-container")
    assert "this is a container, which has 2 of the 8 devices of its host" in row["detail"]
    assert "mknod" not in cdigen("doctor", "--root", host.root, "--verbose").out


def lay(host: Host, version: str, cards: tuple[Gpu, ...]) -> None:
    host.install(version)
    write_kernel_side(host.root, cards, driver_version=version)
    host.boot()
    host.configure()


def unhealthy(advertised: AdvertisedResources, host: Host) -> list[bool]:
    """Return whether each unit for the kubelet is unhealthy."""
    found = advertised.resources(state(host.root)) or ()
    return [unit.health == "unhealthy" for resource, _ in found for unit in resource.units]


@pytest.mark.process
def test_a_gpu_that_fell_off_the_bus_leaves_the_other_gpus(running: Host, log: FakeLog, cdigen: Run) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1553: the container of a lost GPU cannot be killed."""
    cards = gpus("Tesla V100-SXM2-32GB", 0x1DB5, *(f"0000:{bus}:00.0" for bus in ("1a", "41", "88", "b1")))
    lay(running, "460.73.01", cards)
    with daemon(running) as process:
        process.rests()
        spec = running.document()
        log.write(recent("NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus.", 1))
        (running.root / "sys/bus/pci/devices/0000:41:00.0/config").write_bytes(b"\xff" * 64)
        process.sees(lambda: len(running.accelerators()[1]["causes"]) == 2)
        (row,) = (row for row in cdigen("doctor", "--json", "--root", running.root).json if not row["ok"])
        assert row["detail"].startswith("nvidia.com/gpu=1 (0000:41:00.0, GPU-")
        assert "GPU has fallen off the bus.), until a reboot, a reset" in row["detail"]
        assert "unhealthy: 1 of 4" in cdigen("list", "--root", running.root).out
        assert unhealthy(made(), running) == [False, True, False, False]
        assert running.document() == spec


@pytest.mark.process
def test_an_unhealthy_gpu_is_named_and_becomes_healthy_after_a_reboot(
    running: Host, log: FakeLog, cdigen: Run
) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/75: a node has 3 GPUs, and 2 are allocatable."""
    cards = gpus("GeForce GTX 1080 Ti", 0x1B06, "0000:61:00.0", "0000:da:00.0", "0000:db:00.0")
    lay(running, "410.57", cards)
    advertised = made()
    with daemon(running) as process:
        process.rests()
        log.write(recent("NVRM: Xid (PCI:0000:da:00): 31, Ch 00000010, engmask 00000101", 1))
        process.rests()
        assert unhealthy(advertised, running) == [False] * 3
        log.write(recent("NVRM: Xid (PCI:0000:da:00): 79, GPU has fallen off the bus.", 2))
        process.sees(lambda: running.accelerators()[1]["causes"])
        (row,) = (row for row in cdigen("doctor", "--json", "--root", running.root).json if not row["ok"])
        assert row["detail"].startswith(
            f"nvidia.com/gpu=1 (0000:da:00.0, {cards[1].uuid}): unhealthy: xid-79"
        )
        assert "since 20" in row["detail"]
        assert "until a reboot" in row["detail"]
        assert unhealthy(advertised, running) == [False, True, False]
        process.stop()
    running.boot(2)
    with daemon(running) as process:
        process.sees(lambda: not running.accelerators()[1]["causes"])
        process.rests()
        assert unhealthy(advertised, running) == [False] * 3


def test_nvml_returns_an_unknown_error_for_one_gpu(host: ReportedHost) -> None:
    """https://github.com/Project-HAMi/volcano-vgpu-device-plugin/issues/123: no container starts."""
    cards = gpus("NVIDIA A100-SXM4-80GB", 0x20B2, *(f"0000:{bus}:00.0" for bus in ("1b", "41", "61", "81")))
    host.lay(driver("550.90.07", *cards), {"usr/bin/containerd": ""})
    host.write_specs()
    present = (
        standin.gpu(
            card.minor,
            address=f"0000{card.bdf.upper()}",
            faults=("nvmlDeviceGetHandleByPciBusId_v2 error 999",) * (card.minor == 2),
        )
        for card in cards
    )
    with standin.trusted_folder() as folder:
        library = standin.install(folder, standin.Machine(driver="550.90.07", gpus=tuple(present)))
        root = Root(str(host.root))
        context = DiscoveryContext(host=root, driver=root, dev=root, nvml=str(library))
        found = probe(context, discover(host.root)).symptoms
    # The nodes of this tree have no driver, which is a symptom, too.
    (lost,) = (one for one in found if one.cause != "node-unusable")
    assert (lost.cause, lost.address) == ("nvml-gpu-lost", "0000:61:00.0")
    assert "NVML_ERROR_UNKNOWN" in lost.detail
    cause = replace(FELL, cause=lost.cause, detail=lost.detail)
    save(host.root, with_causes({"nvidia": discover(host.root)}, 2, cause))
    (row,) = host.failures()
    where = f"nvidia.com/gpu=2 (0000:61:00.0, {cards[2].uuid})"
    assert row["detail"].startswith(f"{where}: unhealthy: nvml-gpu-lost")
    (resource,) = (one for one, _ in made().resources(state(host.root)) or ())
    assert [unit.health == "unhealthy" for unit in resource.units] == [False, False, True, False]
    names = {device["name"] for device in host.document()["devices"]}
    assert {"0", "1", "2", "3", "all"} <= names


def test_time_slicing_computes_only_as_many_pods_as_gpus(tmp_path: Path, node: KubeNode) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/461: further pods have no memory left."""
    node.put("etc/plugin.yaml", TIME_SLICING)
    settings, _ = with_nvidia_file(Root(str(node.root)), KubeletConfig(nvidia_config="/etc/plugin.yaml"))
    found = allocator(made(settings), put_inventory(tmp_path, example()))
    free = tuple(unit.id for unit in found.resource.units)
    assert len(free) == 4 * 8
    used: list[str] = []
    for _ in range(10):
        (one,) = preferred(found, free, (), 1)
        used.append(one.partition("::")[0])
        free = tuple(id_ for id_ in free if id_ != one)
    assert max(Counter(used).values()) == 2
    node.write_status(registered(*(f"GPU-{gpu}::{number}" for gpu in "ab" for number in range(4))))
    row = node.result("kubelet-devices", "--for kubelet")
    assert row["ok"]
    limit = "replicas in nvidia.com/gpu: cdigen does not limit the memory of their containers"
    assert row["detail"] == f"advertised to the kubelet: 8 of nvidia.com/gpu; {limit} ({QUESTIONS})"
    node.write_status(registered("GPU-a", "GPU-b"))
    assert "limit" not in node.result("kubelet-devices", "--for kubelet")["detail"]
