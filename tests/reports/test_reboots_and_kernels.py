"""Public reports about hosts after a reboot or an upgrade: modules, kernels, initramfs and device numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, driver_files
from support.hosts.amd_tree import AmdGpu
from support.hosts.driver_files import put
from support.hosts.nvidia_kernel import write_kernel_side
from support.reports import drivers
from support.reports.amd_and_intel import failures, finish, unbind
from support.reports.engines import ReportHost, gpu

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
NVIDIA_RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}}
OLD, NEW = "3.13.0-88-generic", "3.13.0-92-generic"
AMAZON, OF_IMAGE = "5.10.184-175.731.amzn2.x86_64", "5.10.178-162.673.amzn2.x86_64"
V520 = AmdGpu(bdf="0000:00:1e.0", render=128, card=0, device_id=0x7362, pci_class=0x030000)


def test_cuda_fails_after_an_upgrade_and_a_reboot(cdigen: Run, tmp_path: Path) -> None:
    """The image's program names the GPU, and CUDA reports an unknown error: nvidia_uvm is not loaded.

    https://github.com/AbdBarho/stable-diffusion-webui-docker/issues/388
    """
    drivers.loaded(tmp_path, driver_files.ubuntu, "525.105.17")
    drivers.remove_uvm(tmp_path)
    root = finish(tmp_path, "dockerd")
    put(root / "etc/docker/daemon.json", json.dumps(NVIDIA_RUNTIME).encode())
    row = failures(cdigen, root, "--for", "docker")["node-missing"]
    assert row["severity"] == "error"
    assert row["detail"].startswith("/dev/nvidia-uvm does not exist")
    assert "enable cdigen-nodes.service, or list nvidia-uvm in /etc/modules-load.d" in row["detail"]
    assert row["remedy"] == f"cdigen create-nodes --root {root}"
    assert cdigen("generate", "--write", "--root", root).failed(3, "/dev/nvidia-uvm does not exist")


@pytest.mark.parametrize("major", [510, 508])
def test_a_spec_has_the_numbers_of_nvidia_uvm_before_the_reboot(
    cdigen: Run, tmp_path: Path, major: int
) -> None:
    """The container starts, and only CUDA fails: the kernel gave nvidia_uvm another number.

    https://github.com/AbdBarho/stable-diffusion-webui-docker/issues/388
    """
    drivers.loaded(tmp_path, driver_files.ubuntu, "525.105.17")
    root = finish(tmp_path, "dockerd")
    nodes = [{"path": "/dev/nvidia-uvm", "type": "c", "major": major, "minor": 0}]
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": nodes}}],
    }
    put(root / "etc/cdi/nvidia.yaml", json.dumps(document).encode())
    found = failures(cdigen, root, "--for", "docker", "--device", "nvidia.com/gpu=all")
    assert list(found) == ["spec-files"] * (major != 510)
    if found:
        detail = found["spec-files"]["detail"]
        assert detail.startswith("/etc/cdi/nvidia.yaml: other device numbers than on the host")
        assert "/dev/nvidia-uvm on the host has the numbers 510:0, not 508:0" in detail
        assert detail.endswith("containers start without these devices")
        assert "cdigen generate --write" in found["spec-files"]["remedy"]


def test_the_driver_and_its_libraries_have_different_versions_until_a_reboot(
    cdigen: Run, tmp_path: Path
) -> None:
    """NVIDIA's hook ends with "driver/library version mismatch" after an upgrade of the driver.

    https://github.com/NVIDIA/nvidia-container-toolkit/issues/394
    """
    card = gpu(0, "81", "NVIDIA GeForce RTX 3060", 0x2504)
    report = ReportHost(tmp_path / "host", cdigen).lay("550.54.14", card).program("dockerd")
    report.put("etc/docker/daemon.json", NVIDIA_RUNTIME)
    write_kernel_side(report.root, (card,), driver_version="535.161.07")
    row = next(iter(report.failures("--for", "docker").values()))
    assert row["check"] == "driver-version"
    versions = "the kernel module has version 535.161.07, but the installed libraries have version 550.54.14"
    assert row["detail"].startswith(f"{versions}; stop the programs that use the GPUs")
    assert "or reboot" in row["detail"]
    done = report.command("generate", "--write")
    assert done.failed(3, versions), done.err
    write_kernel_side(report.root, (card,), driver_version="550.54.14")
    report.write_specs()
    assert report.failures("--for", "docker") == {}


@pytest.mark.parametrize("tool", ["", "usr/sbin/update-initramfs", "usr/bin/dracut"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_nouveau_of_the_initramfs_has_the_gpu_after_a_restart(
    cdigen: Run, tmp_path: Path, tool: str, *, is_listed: bool
) -> None:
    """An instance of EC2 starts with a newer kernel, which has no module nvidia.

    https://github.com/NVIDIA/nvidia-docker/issues/137
    """
    drivers.upgraded_kernel(tmp_path, driver_files.ubuntu, "361.42", NEW, driver="nouveau")
    put(tmp_path / f"lib/modules/{OLD}/modules.dep", b"kernel/drivers/video/nvidia.ko:\n")
    root = finish(tmp_path, "dockerd")
    if is_listed:
        put(root / "etc/modprobe.d/blacklist-nouveau.conf", b"blacklist nouveau\n")
    if tool:
        put(root / tool, b"", 0o755)
    row = failures(cdigen, root)["driver-loaded"]
    assert "1 GPU bound to the driver nouveau (0000:01:00.0)" in row["detail"]
    assert f"no module for the kernel {NEW} (only for {OLD}); install the driver again" in row["detail"]
    place = "/etc/modprobe.d/blacklist-nouveau.conf:1 excludes nouveau, but an older initramfs can load it"
    step = place if is_listed else "the line 'blacklist nouveau' in /etc/modprobe.d/*.conf keeps it unloaded"
    assert step in row["detail"]
    command = {"": "", "usr/sbin/update-initramfs": " ('update-initramfs -u')"}.get(
        tool, " ('dracut --force')"
    )
    verb = "make the initramfs again" if is_listed else "the initramfs is made again"
    assert f"{verb}{command}{' and reboot' if is_listed else ';'}" in row["detail"]
    assert "modprobe nvidia" not in row["detail"]


def g4ad(root: Path, *, modules: str) -> Path:
    """Write a node of EKS on a g4ad, whose GPU has no driver; the kernel has MODULES."""
    amd_tree.write(root, (V520,))
    unbind(root, V520.bdf, "amdgpu", AMAZON, "v00001002d00007362")
    (root / "dev/kfd").unlink()
    put(root / "proc/sys/kernel/osrelease", f"{AMAZON}\n".encode())
    if "amdgpu" not in modules:
        put(root / f"lib/modules/{AMAZON}/modules.alias", b"")
    put(root / f"lib/modules/{AMAZON}/modules.dep", f"{modules}\n".encode())
    return finish(root, "containerd")


@pytest.mark.parametrize("built", ["", OF_IMAGE])
def test_a_node_of_eks_has_no_amdgpu_for_its_kernel(cdigen: Run, tmp_path: Path, built: str) -> None:
    """AMD's device plugin waits, because /sys/class/kfd does not exist; lshw reports the GPU as unclaimed.

    https://github.com/ROCm/k8s-device-plugin/issues/40
    """
    root = g4ad(tmp_path, modules="kernel/drivers/net/ena.ko:")
    if built:
        put(root / f"lib/modules/{built}/modules.dep", b"extra/amdgpu.ko:\n")
    found = failures(cdigen, root)
    assert list(found) == ["spec-missing", "driver-loaded"]
    detail = found["driver-loaded"]["detail"]
    others = f" (only for {built})" if built else ""
    assert f"no module for the kernel {AMAZON}{others}; install the driver again" in detail
    assert "modprobe" not in str(found)
    assert "install the driver for this kernel" in cdigen("generate", "--root", root).err


def test_a_node_of_eks_builds_amdgpu_and_loads_it(cdigen: Run, tmp_path: Path) -> None:
    """The packages of AMDGPU-PRO are installed, and dkms has not built the module for this kernel.

    https://github.com/ROCm/k8s-device-plugin/issues/40
    """
    root = g4ad(tmp_path, modules="kernel/drivers/net/ena.ko:")
    put(root / "usr/sbin/dkms", b"", 0o755)
    put(root / "usr/src/amdgpu-5.6.0.13/dkms.conf")
    (root / "var/lib/dkms/amdgpu/5.6.0.13").mkdir(parents=True)
    (root / "var/lib/dkms/amdgpu/5.6.0.13/source").symlink_to("/usr/src/amdgpu-5.6.0.13")
    detail = failures(cdigen, root)["driver-loaded"]["detail"]
    assert detail.endswith("on that host: dkms autoinstall && modprobe amdgpu")


def test_a_node_of_eks_has_not_loaded_amdgpu(cdigen: Run, tmp_path: Path) -> None:
    """The kernel has the module. With the module, the GPU is a device.

    https://github.com/ROCm/k8s-device-plugin/issues/40
    """
    root = g4ad(tmp_path / "idle", modules="kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko:")
    assert failures(cdigen, root)["driver-loaded"]["detail"].endswith("on that host: modprobe amdgpu")
    amd_tree.write(tmp_path / "bound", (V520,))
    root = finish(tmp_path / "bound", "containerd")
    assert cdigen("generate", "--write", "--root", root).code == 0
    names = [row["device"] for row in cdigen("list", "--json", "--root", root).json]
    assert "amd.com/gpu=0" in names
    assert failures(cdigen, root, "--for", "containerd") == {}
