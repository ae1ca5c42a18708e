"""Hosts of public reports with devices of AMD and Intel: drivers, groups, Docker Desktop, WSL2, NPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.daemon.kernel_records import FakeLog, record
from support.doctor.broken_host import BrokenHost
from support.hosts import amd_tree, intel_tree, nvidia_platforms
from support.hosts.driver_files import X86_64, link, put
from support.reports.amd_and_intel import (
    HASWELL,
    MI100S,
    RADEON_780M,
    RX_6700_XT,
    detail,
    failures,
    finish,
    install_desktop,
    unbind,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
MICROK8S = "var/snap/microk8s/common/var/lib/kubelet"
FIRMWARE = "amdxdna 0000:c5:00.1: [drm] *ERROR* aie2_check_protocol: "


def test_microk8s_does_not_advertise_the_gpu_of_a_haswell(cdigen: Run, tmp_path: Path) -> None:
    """The GPU is a device, and the kubelet of MicroK8s has its folder below /var/snap.

    https://github.com/intel/intel-device-plugins-for-kubernetes/issues/791
    """
    intel_tree.lay(tmp_path, HASWELL)
    root = finish(tmp_path)
    unit = "etc/systemd/system/snap.microk8s.daemon-kubelite.service"
    put(root / unit, b"[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n")
    put(root / "var/snap/microk8s/4/args/kubelet", b"--root-dir=${SNAP_COMMON}/var/lib/kubelet\n")
    link(root / "var/snap/microk8s/current", "4")
    (root / MICROK8S / "device-plugins").mkdir(parents=True)
    assert cdigen("generate", "--write", "--root", root).code == 0
    names = [row["device"] for row in cdigen("list", "--json", "--root", root).json]
    assert "intel.com/gpu=0" in names
    assert (
        f"--kubelet-dir /{MICROK8S}"
        in failures(cdigen, root, "--for", "kubelet")["kubelet-directory"]["detail"]
    )


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("parameters", ["ro quiet", "ro nomodeset quiet"])
def test_the_gpu_of_a_haswell_has_no_driver(
    cdigen: Run, tmp_path: Path, parameters: str, *, is_loaded: bool
) -> None:
    """i915 binds to no GPU with nomodeset, whether the module is loaded or not.

    https://github.com/intel/intel-device-plugins-for-kubernetes/issues/791
    """
    intel_tree.lay(tmp_path, HASWELL)
    unbind(tmp_path, intel_tree.IGPU, "i915", intel_tree.RELEASE, "v00008086d0000041A")
    put(tmp_path / "proc/cmdline", f"{parameters}\n".encode())
    root = finish(tmp_path)
    if is_loaded:
        (root / "sys/module/i915").mkdir(parents=True)
    text = failures(cdigen, root)["driver-loaded"]["detail"]
    hint = cdigen("generate", "--root", root).err
    assert intel_tree.IGPU in text
    if "nomodeset" in parameters:
        assert "nomodeset on the kernel command line prevents i915: remove it and reboot" in text
        assert "modprobe" not in text
        assert "remove nomodeset from the kernel command line" in hint
    elif not is_loaded:
        assert text.endswith("on that host: modprobe i915")


def test_the_only_docker_is_docker_desktop(cdigen: Run, tmp_path: Path) -> None:
    """The container has another kernel, without amdgpu and without /dev/kfd.

    https://github.com/ROCm/ROCm-docker/issues/107
    """
    amd_tree.write(tmp_path, (RX_6700_XT,))
    root = finish(tmp_path)
    install_desktop(root)
    assert cdigen("generate", "--write", "--root", root).code == 0
    for options, severity in (((), "warning"), (("--for", "docker"), "error")):
        found = failures(cdigen, root, *options)
        assert list(found) == ["docker-desktop"]
        assert found["docker-desktop"]["severity"] == severity
        assert "virtual machine without the host's devices" in found["docker-desktop"]["detail"]
        assert "Docker Engine is not installed" in found["docker-desktop"]["detail"]
    assert failures(cdigen, root, "--for", "podman").keys() == {"podman-installed"}


@pytest.mark.parametrize("context", ["desktop-linux", "default"])
def test_the_context_of_a_user_leads_to_docker_desktop(cdigen: Run, tmp_path: Path, context: str) -> None:
    """Docker Engine is installed too, but the user's containers run in the virtual machine.

    https://github.com/l1na-forever/stable-diffusion-rocm-docker/issues/8
    """
    amd_tree.write(tmp_path, (RX_6700_XT,))
    root = finish(tmp_path, "dockerd")
    install_desktop(root, context)
    assert cdigen("generate", "--write", "--root", root).code == 0
    found = failures(cdigen, root, "--for", "docker")
    assert list(found) == ["docker-desktop"] * (context != "default")
    if found:
        assert "the current context of alice is desktop-linux" in found["docker-desktop"]["detail"]
        assert "'docker context use default'" in found["docker-desktop"]["detail"]


def test_docker_from_the_snap_gives_the_nodes_of_amd(cdigen: Run, tmp_path: Path) -> None:
    """The specs of AMD have no files that the snap could not find.

    https://github.com/ROCm/ROCm-docker/issues/107
    """
    amd_tree.write(tmp_path, (RX_6700_XT,))
    root = finish(tmp_path)
    put(root / "snap/docker/3505/bin/dockerd")
    put(root / "var/snap/docker/3505/config/daemon.json", b"{}")
    for folder in ("snap/docker", "var/snap/docker"):
        link(root / folder / "current", "3505")
    assert cdigen("generate", "--write", "--root", root).code == 0
    assert failures(cdigen, root, "--for", "docker") == {}


@pytest.mark.parametrize(
    ("driver", "vendor", "node"),
    [
        ("u0393000.inf_amd64_0011223344556677", "AMD", "/dev/kfd"),
        ("iigd_dch.inf_amd64_73655f941b1dd71f", "Intel", "/dev/dri"),
    ],
)
def test_wsl2_has_no_kfd(cdigen: Run, tmp_path: Path, driver: str, vendor: str, node: str) -> None:
    """WSL2 has only /dev/dxg, and AMD's SDK for Windows does not change that.

    https://github.com/hydrian/stable-diffusion-webui-rocm/issues/17
    """
    nvidia_platforms.node(tmp_path, "/dev/dxg", 10, 125)
    for name in ("libdxcore.so", "libd3d12.so", "libd3d12core.so"):
        nvidia_platforms.library(tmp_path, f"/usr/lib/wsl/lib/{name}", name, X86_64)
    put(tmp_path / f"usr/lib/wsl/drivers/{driver}/driver.dll")
    put(tmp_path / "proc/sys/kernel/osrelease", b"5.15.90.1-microsoft-standard-WSL2\n")
    root = finish(tmp_path, "dockerd")
    text = failures(cdigen, root)["gpus"]["detail"]
    assert f"cdigen does not support GPUs of {vendor} in WSL2: {node} does not exist there" in text
    assert "/dev/dxg" in text
    assert not any(word in text for word in ("modprobe", "libcuda"))
    assert cdigen("generate", "--root", root).failed(3, f"GPUs of {vendor} in WSL2")


def test_jellyfin_cannot_open_the_render_node_of_a_radeon_780m(cdigen: Run, tmp_path: Path) -> None:
    """The membership of the user in /etc/group does not reach the container, which needs the number 107.

    https://github.com/jellyfin/jellyfin/issues/17144
    """
    amd_tree.write(tmp_path, (RADEON_780M,))
    root = finish(tmp_path, "dockerd", group=(107,), members="apps")
    assert cdigen("generate", "--write", "--root", root).code == 0
    rows = {row["device"]: row["usable"] for row in cdigen("list", "--json", "--root", root).json}
    assert rows["amd.com/gpu=0"]
    text = detail(cdigen, root, "node-groups", "--for", "docker", "--user", "apps")
    assert text.startswith("/dev/dri/renderD128, /dev/kfd: only the groups render may open the nodes")
    assert "rootful engines need '--group-add 107'" in text
    text = detail(cdigen, root, "node-groups", "--for", "docker")
    assert "processes of other users in containers need '--group-add 44 --group-add 107'" in text
    assert "--group-add=107" in cdigen("docker-args", "--form", "classic", "--root", root).out


def test_rocminfo_may_not_open_kfd_with_the_group_video(cdigen: Run, tmp_path: Path) -> None:
    """The image's user is not root, and /dev/kfd belongs to the group render.

    https://github.com/ROCm/ROCm-docker/issues/116
    """
    amd_tree.write(tmp_path, MI100S)
    root = finish(tmp_path, "dockerd", group=(109,))
    made = cdigen("generate", "--target", "docker-29.5", "--write", "--root", root)
    assert made.code == 0
    document = cdigen("generate", "--target", "docker-29.5", "--root", root).json
    edits = next(one for one in document["devices"] if one["name"] == "0")["containerEdits"]
    assert {node["path"]: node["gid"] for node in edits["deviceNodes"]}["/dev/kfd"] == 109
    assert edits["additionalGids"] == [44, 109]
    # The groups in the spec need no options.
    rows = cdigen("doctor", "--json", "--for", "docker", "--root", root).json
    assert "node-groups" not in {row["check"] for row in rows}
    assert cdigen("generate", "--write", "--root", root).code == 0
    assert "--group-add 109" in detail(cdigen, root, "node-groups", "--for", "docker")
    row = failures(cdigen, root, "--for", "docker", "--user", "alice")["node-access"]
    assert "usermod --append --groups video,render alice" in row["detail"]


@pytest.mark.parametrize("members", ["", "alice"])
def test_rootless_docker_does_not_open_the_npu_for_an_unprivileged_image(
    cdigen: Run, tmp_path: Path, members: str
) -> None:
    """The number of the group render is not mapped into the user namespace.

    https://github.com/lemonade-sdk/lemonade/issues/2742
    """
    amd_tree.write(tmp_path, (RADEON_780M,))
    amd_tree.write_npu(tmp_path, bdf="0000:c6:00.1")
    root = finish(tmp_path, "dockerd", group=(992,), members=members)
    put(root / "home/alice/.config/docker/daemon.json", b"{}")
    assert cdigen("generate", "--write", "--root", root).code == 0
    found = failures(cdigen, root, "--for", "docker", "--user", "alice")
    row = found["node-groups" if members else "node-access"]
    assert "/dev/accel/accel0" in row["detail"]
    assert "rootless Docker's containers lose the additional groups of the user" in row["detail"]
    assert "a udev rule that sets OWNER" in row["detail"]
    assert "group-add" not in row["detail"] + row["remedy"]
    drafts = cdigen("generate", "--target", "docker-29.5", "--kind", "amd.com/npu", "--root", root).json
    (npu,) = (one for one in drafts["devices"] if one["name"] == "0")
    assert npu["containerEdits"]["additionalGids"] == [992]


@pytest.mark.parametrize("is_bound", [True, False])
def test_amdxdna_rejects_the_firmware_of_the_npu(cdigen: Run, tmp_path: Path, *, is_bound: bool) -> None:
    """The kernel's driver and the firmware are not of the same release; the container is not the cause.

    https://github.com/hpenedones/fastflowlm-docker/issues/4
    """
    amd_tree.write(tmp_path, (RADEON_780M,))
    folder = amd_tree.write_npu(tmp_path)
    link(tmp_path / "sys/bus/pci/devices/0000:c5:00.1", "../../../devices/pci0000:00/0000:c5:00.1")
    put(tmp_path / "lib/firmware/amdnpu/17f0_10/npu.sbin.zst")
    if not is_bound:
        (folder / "driver").unlink()
        (tmp_path / "sys/bus/pci/drivers/amdxdna/0000:c5:00.1").unlink()
        (tmp_path / "dev/accel/accel0").unlink()
    root = finish(tmp_path, "dockerd")
    assert cdigen("generate", "--write", "--root", root).code == 0
    names = [row["device"] for row in cdigen("list", "--json", "--root", root).json]
    assert ("amd.com/npu=0" in names) == is_bound
    log = FakeLog(root / "dev/kmsg")
    log.write(record(f"{FIRMWARE}Incompatible firmware protocol major 7 minor 2", 1, level=3))
    log.write(record("amdxdna 0000:c5:00.1: [drm] *ERROR* firmware is not alive", 2, level=3))
    rows = cdigen("doctor", "--json", "--root", root).json
    log.close()
    wrong = [row["detail"] for row in rows if not row["ok"]]
    assert len(wrong) == (1 if is_bound else 2)
    assert "amdxdna rejected the firmware of the NPU" in wrong[0]
    assert "major 7 minor 2" in wrong[0]
    assert all("linux-firmware of the same release" in text for text in wrong)
    assert is_bound or "NPU 0000:c5:00.1 gets no CDI device" in wrong[1]
    assert not any(word in text for text in wrong for word in ("group", "chmod", "features.cdi"))


def test_an_npu_whose_module_is_not_loaded_is_reported(cdigen: Run, tmp_path: Path) -> None:
    """The same host before amdxdna is loaded.

    https://github.com/hpenedones/fastflowlm-docker/issues/4
    """
    amd_tree.write(tmp_path, (RADEON_780M,))
    folder = tmp_path / "sys/bus/pci/devices/0000:c5:00.1"
    for name, text in (("vendor", "0x1022"), ("device", "0x17f0"), ("class", "0x118000")):
        put(folder / name, f"{text}\n".encode())
    text = failures(cdigen, finish(tmp_path))["driver-diagnostic"]["detail"]
    assert text.startswith("NPU 0000:c5:00.1 gets no CDI device: the module amdxdna is not loaded")
    assert "modprobe amdxdna" in text


def test_docker_finds_no_kfd_because_amdgpu_is_blacklisted(cdigen: Run, tmp_path: Path) -> None:
    """ROCm's programs are installed, but the kernel's module is not loaded.

    https://github.com/l1na-forever/stable-diffusion-rocm-docker/issues/8
    """
    amd_tree.write(tmp_path, (RX_6700_XT,))
    unbind(tmp_path, RX_6700_XT.bdf, "amdgpu", "6.8.0-60-generic", "v00001002d000073DF")
    (tmp_path / "dev/kfd").unlink()
    put(tmp_path / "etc/modprobe.d/blacklist-amdgpu.conf", b"blacklist amdgpu\n")
    text = failures(cdigen, finish(tmp_path, "dockerd"))["driver-loaded"]["detail"]
    assert "/etc/modprobe.d/blacklist-amdgpu.conf:1 prevents the automatic loading of amdgpu" in text
    assert text.endswith("on that host: modprobe amdgpu")


def test_docker_finds_no_kfd_because_the_kernel_does_not_know_the_gpu(cdigen: Run, tmp_path: Path) -> None:
    """amdgpu is loaded, but the kernel has no KFD for the GPU.

    https://github.com/l1na-forever/stable-diffusion-rocm-docker/issues/8
    """
    amd_tree.write(tmp_path, (replace(RX_6700_XT, kfd=False),))
    root = finish(tmp_path, "dockerd")
    assert cdigen("generate", "--write", "--root", root).code == 0
    row = failures(cdigen, root)["gpus"]
    assert "0000:03:00.0 can be used for graphics only" in row["detail"]
    assert "HSA_AMD" in row["detail"]


def test_docker_finds_no_kfd_because_the_node_is_missing(cdigen: Run, tmp_path: Path) -> None:
    """KFD lists the GPU, but the node does not exist.

    https://github.com/l1na-forever/stable-diffusion-rocm-docker/issues/8
    """
    amd_tree.write(tmp_path, (RX_6700_XT,))
    (tmp_path / "dev/kfd").unlink()
    row = failures(cdigen, finish(tmp_path, "dockerd"))["node-missing"]
    assert row["severity"] == "error"
    assert row["detail"].startswith("/dev/kfd: missing device node")
    assert row["remedy"].startswith("mknod -m 0660 ")


@pytest.mark.parametrize("enforce", ["0", "1"])
def test_selinux_denies_nodes_of_a_spec_only_to_containers_with_a_user_namespace(
    tmp_path: Path, enforce: str
) -> None:
    """A device plugin mounted /dev/dri/by-path into pods, so that they needed container_use_devices.

    https://github.com/intel/intel-technology-enabling-for-openshift/issues/107
    """
    flex = intel_tree.gpu(0, "0000:37:00.0", "0x56c0", "i915")
    host = BrokenHost(tmp_path / "host").make("crio", lay=lambda root: intel_tree.lay(root, flex))
    for name, text in (("enforce", enforce), ("booleans/container_use_devices", "0 0")):
        host.put(f"sys/fs/selinux/{name}", text)
    host.set_label("dri_device_t", "dev/dri/card0", "dev/dri/renderD128")
    spec = json.loads((host.root / "run/cdi/intel.com-gpu.json").read_bytes())
    edits = next(one["containerEdits"] for one in spec["devices"] if one["name"] == "0")
    name = "/dev/dri/by-path/pci-0000:37:00.0-render"
    assert {"/dev/dri/renderD128", name} <= {node["path"] for node in edits["deviceNodes"]}
    assert "/dev/dri" not in str(edits.get("mounts"))
    row = host.result("selinux-boolean", "--for crio")
    if enforce == "0":
        assert (row["ok"], row["remedy"]) == (True, "")
        return
    assert (row["ok"], row["severity"]) == (False, "warning")
    assert row["detail"].startswith("SELinux denies rootless containers, and others with a user namespace,")
