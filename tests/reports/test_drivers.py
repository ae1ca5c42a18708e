"""Hosts of public reports about NVIDIA's driver: modules, nodes, kernels, unified memory, suspension."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.doctor.live_host import live_host
from support.hosts import driver_files
from support.hosts.driver_files import put
from support.hosts.nvidia import discover
from support.kubelet.advertised_resources import counts, offered
from support.kubelet.labels import labels
from support.reports import drivers
from support.reports.amd_and_intel import detail, failures, finish

from cdigen.config import SharedMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command.fixtures import Run
    from support.doctor.kubernetes_host import KubeNode
    from support.hosts.driver_files import Laid

pytestmark = pytest.mark.usefixtures("real_nodes")
OLD, NEW, ARCH = "3.13.0-91-generic", "3.13.0-92-generic", "6.14.4-arch1-2"


@pytest.mark.parametrize("driver", ["", "nouveau"])
@pytest.mark.parametrize("has_source", [False, True])
def test_after_a_reboot_into_a_new_kernel_no_container_restarts(
    cdigen: Run, tmp_path: Path, driver: str, *, has_source: bool
) -> None:
    """The new kernel has no nvidia module, and reinstalling the driver helped.

    https://github.com/NVIDIA/nvidia-docker/issues/139
    """
    drivers.upgraded_kernel(tmp_path, driver_files.ubuntu, "361.42", NEW, driver=driver)
    put(tmp_path / f"lib/modules/{OLD}/modules.dep", b"kernel/drivers/video/nvidia.ko:\n")
    if has_source:
        drivers.install_source(tmp_path, "361.42")
    found = failures(cdigen, finish(tmp_path, "dockerd"))
    text = found["driver-loaded"]["detail"]
    assert f"no module for the kernel {NEW} (only for {OLD})" in text
    assert ("bound to the driver nouveau" in text) == bool(driver)
    assert "node-missing" not in found
    step, _, command = text.partition("; on that host: ")
    if has_source:
        unload = "modprobe -r nouveau && " if driver else ""
        assert command == f"{unload}dkms autoinstall && modprobe nvidia"
    else:
        assert command == ""
        assert "install the driver again, or the package with its module for this kernel" in step


@pytest.mark.parametrize("driver", ["", "nouveau"])
def test_the_legacy_module_is_not_built_for_the_new_kernel_of_arch_linux(
    cdigen: Run, tmp_path: Path, driver: str
) -> None:
    """The driver 470.256.02 does not compile with Linux 6.14, so that another build fails too.

    https://github.com/korvahannu/arch-nvidia-drivers-installation-guide/issues/37
    """
    drivers.upgraded_kernel(tmp_path, driver_files.arch, "470.256.02", ARCH, driver=driver)
    drivers.install_source(tmp_path, "470.256.02", has_failed=True)
    text = failures(cdigen, finish(tmp_path, "dockerd"))["driver-loaded"]["detail"]
    assert f"no module for the kernel {ARCH}" in text
    assert "/var/lib/dkms/nvidia/470.256.02/build/make.log" in text
    assert "boot a kernel that this release supports" in text
    assert "autoinstall" not in text
    assert "modprobe nvidia" not in text


def spark(root: Path) -> Path:
    drivers.loaded(root, driver_files.ubuntu_aarch64, "580.95.05", drivers.GB10)
    put(root / "proc/meminfo", b"MemTotal:       125506464 kB\n")
    return finish(root, "dockerd")


def test_a_gb10_is_identified_with_the_memory_of_the_machine(cdigen: Run, tmp_path: Path) -> None:
    """Software that selects GPUs by their memory finds no GPU on a DGX Spark.

    https://github.com/gpustack/gpustack/issues/3306
    """
    root = spark(tmp_path)
    assert cdigen("generate", "--write", "--root", root).code == 0
    assert failures(cdigen, root, "--for", "docker") == {}
    (gpu,) = cdigen("inspect", "--json", "--root", root).json["vendors"]["nvidia"]["accelerators"]
    assert (gpu["model"], gpu["usable"], gpu["memory_mib"]) == ("NVIDIA GB10", True, 122_564)


def test_a_gb10_whose_memory_nvml_does_not_report_is_advertised(tmp_path: Path) -> None:
    """The DRA driver ends with "GetMemoryInfo: Not Supported" on a DGX Spark.

    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1073
    """
    host = {"nvidia": discover(spark(tmp_path))}
    assert labels(host)["nvidia.com/gpu.memory"] == "122564"
    assert counts(offered(host)) == {"nvidia.com/gpu": 1}
    shared = offered(host, shared_memory=SharedMemory(unit="GiB"))
    assert (counts(shared), shared.findings) == ({"aliyun.com/gpu-mem": 119}, ())


def test_a_dra_driver_beside_cdigen_kubelet_is_a_conflict(node: KubeNode) -> None:
    """Both would give the same GPU of a DGX Spark to different pods.

    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/1073
    """
    node.listen("dra.sock", "var/lib/kubelet/plugins/gpu.nvidia.com")
    node.listen("gpu.nvidia.com-reg.sock", "var/lib/kubelet/plugins_registry")
    assert "DRA (gpu.nvidia.com-reg.sock)" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_docker_finds_no_gpu_with_driver_555_because_nvidia_uvm_is_not_loaded(
    cdigen: Run, tmp_path: Path
) -> None:
    """nvidia-smi works in the container, but CUDA reports an unknown error.

    https://github.com/ollama/ollama/issues/4563
    """
    drivers.loaded(tmp_path, driver_files.ubuntu, "555.42.02")
    drivers.remove_uvm(tmp_path)
    root = finish(tmp_path, "dockerd")
    daemon = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    put(root / "etc/docker/daemon.json", json.dumps(daemon).encode())
    put(root / "etc/nvidia-container-runtime/config.toml", b"[nvidia-container-cli]\nno-cgroups = true\n")
    row = failures(cdigen, root, "--for", "docker")["node-missing"]
    assert row["severity"] == "error"
    assert "/dev/nvidia-uvm does not exist" in row["detail"]
    assert row["remedy"] == f"cdigen create-nodes --root {root}"
    assert cdigen("generate", "--write", "--root", root).code == 3
    put(root / "run.sh", b"docker run --gpus all ollama/ollama\n")
    plan = cdigen("doctor", "--migrate", root / "run.sh", "--root", root).out
    assert "--device nvidia.com/gpu=all" in plan


def test_docker_26_finds_no_gpu_by_cdi_without_its_switch(tmp_path: Path) -> None:
    """Devices of CDI need no setting of NVIDIA's runtime (no-cgroups), but the switch of Docker.

    https://github.com/ollama/ollama/issues/4563
    """
    with live_host(tmp_path / "live") as live:
        live.install("dockerd", "26.1.0")
        live.run("cdigen generate --write --quiet")
        row = live.wrong("--for", "docker")["docker-cdi"]
        assert row["severity"] == "error"
        assert row["detail"] == "CDI is disabled: the default is off"
        assert row["remedy"].startswith("cdigen configure docker")


@pytest.mark.parametrize("is_loaded", [False, True])
def test_cuda_fails_in_podman_without_the_nodes_of_nvidia_uvm(
    cdigen: Run, tmp_path: Path, *, is_loaded: bool
) -> None:
    """A user changed from nvidia-docker, whose helper had made the nodes, to podman.

    https://github.com/pytorch/pytorch/issues/49081
    """
    drivers.loaded(tmp_path, driver_files.red_hat, "455.45.01")
    drivers.remove_uvm(tmp_path, is_loaded=is_loaded)
    root = finish(tmp_path, "podman")
    assert cdigen("generate", "--write", "--root", root).failed(3, "/dev/nvidia-uvm does not exist")
    row = failures(cdigen, root)["node-missing"]
    assert ("mknod -m 0666" if is_loaded else "cdigen create-nodes") in row["remedy"]
    lasting = "enable cdigen-nodes.service, or list nvidia-uvm in /etc/modules-load.d"
    assert lasting in row["detail"]
    put(root / "usr/lib/systemd/system/cdigen-nodes.service", b"[Unit]\n")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "cdigen-nodes.service").symlink_to("/usr/lib/systemd/system/cdigen-nodes.service")
    assert lasting not in failures(cdigen, root)["node-missing"]["detail"]


@pytest.mark.parametrize("scope", ["", "Device"])
def test_cuda_fails_after_a_suspension(cdigen: Run, tmp_path: Path, scope: str) -> None:
    """The notebook suspends, and the driver does not preserve the memory; a battery can be that of a mouse.

    https://github.com/pytorch/pytorch/issues/49081
    """
    drivers.loaded(tmp_path, driver_files.red_hat, "455.45.01")
    root = finish(tmp_path, "podman")
    with (root / "proc/driver/nvidia/params").open("a") as file:
        file.write("PreserveVideoMemoryAllocations: 0\n")
    put(root / "sys/class/power_supply/AC/type", b"Mains\n")
    put(root / "sys/class/power_supply/BAT0/type", b"Battery\n")
    if scope:
        put(root / "sys/class/power_supply/BAT0/scope", f"{scope}\n".encode())
    text = detail(cdigen, root, "driver-diagnostic")
    assert ("PreserveVideoMemoryAllocations is 0" in text) == (not scope)
    assert ("systemctl enable nvidia-suspend.service nvidia-resume.service" in text) == (not scope)
    assert ("modprobe -r nvidia_uvm && modprobe nvidia_uvm" in text) == (not scope)


@pytest.mark.parametrize("layout", [driver_files.ubuntu, driver_files.red_hat])
def test_the_libraries_of_libglvnd_stay_on_the_host(
    cdigen: Run, tmp_path: Path, layout: Callable[[Path, str], Laid]
) -> None:
    """An image with an older glibc cannot load the host's libGLdispatch.

    https://github.com/apptainer/apptainer/issues/1080
    """
    drivers.loaded(tmp_path, layout, "525.78.01")
    folder = next(tmp_path.glob("usr/lib*/**/libGLX_nvidia.so.0")).parent
    stems = {"libGLdispatch": 0, "libGL": 1, "libGLX": 0, "libEGL": 1, "libOpenGL": 0, "libGLESv2": 2}
    for stem, number in stems.items():
        name = f"{stem}.so.{number}"
        driver_files.write_library(folder / f"{name}.9.0", name)
        (folder / name).symlink_to(f"{name}.9.0")
        (folder / f"{stem}.so").symlink_to(name)
    driver_files.write_loader_cache(tmp_path, f"/{folder.relative_to(tmp_path)}")
    root = finish(tmp_path, "podman")
    assert cdigen("generate", "--write", "--root", root).code == 0
    edits = json.loads((root / "run/cdi/nvidia.com-gpu.json").read_bytes())["containerEdits"]
    files = {mount["containerPath"].rpartition("/")[2] for mount in edits["mounts"]}
    assert {"libGLX_nvidia.so.0", "libEGL_nvidia.so.0", "10_nvidia.json"} <= files
    assert not {name for name in files if name.partition(".so")[0] in stems}
    assert failures(cdigen, root) == {}
    put(root / "srv/run.sh", b"apptainer exec --nv image.sif glxgears\n")
    plan = cdigen("doctor", "--migrate", root / "srv/run.sh", "--json", "--root", root).json
    (request,) = plan["legacy_requests"]
    assert request["replacement"].startswith("--device nvidia.com/gpu=all (Apptainer 1.5 or newer")
