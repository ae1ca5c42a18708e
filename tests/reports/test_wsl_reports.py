"""Public reports from WSL2, rebuilt: a machine without a GPU of Windows, kind, and a driver for Linux."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.live_host import live_host
from support.hosts.driver_files import debian_13, put
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.hosts.nvidia_platforms import PROGRAM, STORE, STORES, node
from support.reports import wsl
from support.reports.report_host import ReportHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("real_nodes")

X86_64 = "/usr/lib/x86_64-linux-gnu"
# Commands that do not help in WSL, where Windows has the driver.
USELESS = ("modprobe", "mknod", "apt-get install", "--reinstall", "pass a GPU through")


@pytest.fixture
def host(tmp_path: Path) -> ReportHost:
    return ReportHost(tmp_path / "host")


def texts(rows: list[dict[str, Any]]) -> str:
    """Return all failures and remedies as one text."""
    return "\n".join(f"{row['detail']} {row['remedy']}" for row in rows if not row["ok"])


def without_gpu(root: Path) -> None:
    wsl.microsoft_kernel(root, "4.19.104-microsoft-standard")


def with_cuda_drivers(root: Path) -> None:
    without_gpu(root)
    wsl.linux_driver(root, "libnvidia-compute-455", "455.45.01")


@pytest.mark.parametrize("write", [without_gpu, with_cuda_drivers])
@pytest.mark.parametrize("options", ["", "--vendor nvidia", "--for docker"])
def test_wsl_without_a_gpu_needs_a_driver_in_windows(
    host: ReportHost, write: Callable[[Path], object], options: str
) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/219

    Every container ended with "nvml error: driver not loaded", because the WSL had no /dev/dxg.
    """
    host.lay(write, "docker")
    host.generate(code=3)
    row = host.diagnosis(*options.split())
    assert (row["check"], row["severity"], row["remedy"]) == ("node-missing", "error", "")
    assert "WSL has no GPU of Windows: /dev/dxg does not exist" in row["detail"]
    assert "in Windows (11, or 10 from 21H2), update NVIDIA's driver" in row["detail"]
    assert "install no driver in Linux" in row["detail"]
    assert not any(word in texts(host.results(*options.split())) for word in USELESS)


def test_wsl_1_has_no_gpu_and_is_converted(host: ReportHost) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/219

    The first version of WSL has the same symptom and another remedy.
    """
    host.lay(lambda root: wsl.microsoft_kernel(root, "4.4.0-19041-Microsoft"))
    detail = host.diagnosis()["detail"]
    assert "WSL 1 has no GPUs: /dev/dxg does not exist" in detail
    assert "wsl --set-version NAME 2" in detail


def test_wsl_without_the_files_of_windows_needs_an_update_of_wsl(host: ReportHost) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/219

    The other half of the cause: /dev/dxg exists, and /usr/lib/wsl/lib does not.
    """
    host.lay(with_cuda_drivers)
    node(host.root, "/dev/dxg", 10, 125)
    row = host.diagnosis()
    assert (row["check"], row["remedy"]) == ("driver-files", "")
    assert "/usr/lib/wsl/lib/libdxcore.so cannot be used" in row["detail"]
    assert "wsl --update" in row["detail"]
    assert not any(word in texts(host.results()) for word in USELESS)


def driver_and_gpus(root: Path) -> None:
    debian_13(root)
    write_kernel_side(root, example_gpus(2))


def test_wsl_with_the_module_of_a_real_gpu_is_an_ordinary_host(host: ReportHost) -> None:
    """https://github.com/NVIDIA/k8s-device-plugin/issues/219

    The kernel's name alone is no reason to ask for Windows' driver: here the nvidia module is loaded.
    """
    host.lay(driver_and_gpus, "docker")
    host.generate()
    put(host.root / "proc/sys/kernel/osrelease", b"5.15.90.1-microsoft-standard-WSL2\n")
    host.doctor(wrong=False)
    assert host.document()["devices"][0]["name"] == "0"


def test_a_node_of_kind_in_wsl_needs_no_proc_driver_nvidia(host: ReportHost) -> None:
    """https://github.com/NVIDIA/nvkind/issues/5

    The creation of the cluster ended with "umount /proc/driver/nvidia: not found": WSL has /dev/dxg instead.
    """
    host.lay(
        lambda root: wsl.with_gpu(root, "5.15.153.1-microsoft-standard-WSL2", os_release=wsl.DEBIAN_12),
        "docker",
    )
    host.generate()
    host.doctor("--for docker", wrong=False)
    host.doctor("--vendor nvidia", wrong=False)
    spec = host.document()
    (gpus,) = [device for device in spec["devices"] if device["name"] == "all"]
    assert [node["path"] for node in gpus["containerEdits"]["deviceNodes"]] == ["/dev/dxg"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in spec["containerEdits"]["mounts"]}
    assert mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] == "/usr/lib/wsl/lib/libcuda.so.1"
    assert mounts["/usr/lib/x86_64-linux-gnu/libdxcore.so"] == "/usr/lib/wsl/lib/libdxcore.so"
    for name in ("libcuda.so.1.1", "libcuda_loader.so", "libnvidia-ml.so.1", "nvcubins.bin"):
        assert mounts[f"{STORES}/{STORE}/{name}"] == f"{STORES}/{STORE}/{name}"
    assert mounts[f"/usr/bin/{PROGRAM}"] == f"{STORES}/{STORE}/{PROGRAM}"
    assert host.result("gpus")["detail"] == "nvidia: the GPUs of the host as the device all"


def with_linux_driver(root: Path) -> None:
    wsl.with_gpu(root, "5.10.102.1-microsoft-standard-WSL2")
    wsl.linux_driver(root, "libnvidia-compute-460", "460.91.03")


def test_a_driver_for_linux_in_wsl_is_not_in_containers_and_is_to_be_removed(host: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/289

    The container did not start ("libnvidia-ml.so.1: file exists"): the distribution had a driver for Linux.
    """
    host.lay(with_linux_driver, "docker")
    host.generate()
    sources = {mount["hostPath"] for mount in host.document()["containerEdits"]["mounts"]}
    assert all(source.startswith("/usr/lib/wsl/") for source in sources)
    assert "460.91.03" not in json.dumps(host.document())
    (row,) = [row for row in host.results("--for", "docker") if not row["ok"]]
    assert (row["check"], row["severity"]) == ("driver-files", "warning")
    assert "libnvidia-ml.so.460.91.03" in row["detail"] or "libcuda.so.460.91.03" in row["detail"]
    assert host.remedy_on_host(row) == "apt-get remove --yes libnvidia-compute-460"
    assert not any(word in texts(host.results()) for word in USELESS)


def test_a_missing_file_of_windows_does_not_reinstall_a_driver_for_linux(host: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/289

    The driver of Windows lacks a library that the packages of the driver for Linux also have.
    """
    host.lay(with_linux_driver, "docker")
    (host.root / f"{STORES}/{STORE}/libnvidia-ml.so.1".lstrip("/")).unlink()
    (row, *_) = [row for row in host.results() if "libnvidia-ml.so.1 was not found" in row["detail"]]
    assert not row["ok"]
    assert not any(word in texts(host.results()) for word in USELESS)


def test_podman_in_wsl_uses_the_gpu_of_windows(host: ReportHost) -> None:
    """https://github.com/microsoft/WSL/issues/8666

    Without /dev/dxg and the libraries of Windows, nvidia-smi had no NVML, or no access to the GPU.
    """
    host.lay(lambda root: wsl.with_gpu(root, "5.15.90.1-microsoft-standard-WSL2"), "podman")
    host.generate("--target podman-4.1")
    host.doctor("--for podman", wrong=False)
    (gpu,) = [device for device in host.document()["devices"] if device["name"] == "all"]
    assert [each["path"] for each in gpu["containerEdits"]["deviceNodes"]] == ["/dev/dxg"]
    sources = host.sources()
    assert sources["/usr/bin/nvidia-smi"].startswith("/usr/lib/wsl/")
    for name in ("libnvidia-ml.so.1", "libcuda.so.1", "libdxcore.so"):
        assert sources[f"{X86_64}/{name}"] == f"/usr/lib/wsl/lib/{name}"
    mount = "--mount type=bind,source=/usr/lib/wsl,target=/usr/lib/wsl"
    host.put("srv/run.sh", f"podman run --gpus all {mount} nvcr.io/nvidia/cuda nvidia-smi\n")
    text = host.shell(f"cdigen doctor --migrate {host.root}/srv/run.sh --root {host.root}", 1)
    assert "replacement: --device nvidia.com/gpu=all" in text


def test_podman_of_ubuntu_22_reads_no_specs(tmp_path: Path) -> None:
    """https://github.com/microsoft/WSL/issues/8666

    podman 3.4.4 ignores --gpus and reads no specs, so only a newer podman helps.
    """
    with live_host(tmp_path / "live") as live:
        live.install("podman", "3.4.4")
        live.run("cdigen generate --write --quiet")
        (row,) = (row for row in live.doctor("--for podman") if not row["ok"])
        assert (row["check"], row["severity"]) == ("podman-version", "error")
        assert row["detail"] == "podman 3.4.4 reads no CDI specs; install podman 4.3 or newer"
