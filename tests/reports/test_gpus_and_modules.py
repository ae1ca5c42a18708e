"""Public reports about GPUs that the kernel module loses or rejects, their numbers, and virtual GPUs."""

from __future__ import annotations

import lzma
import shutil
from typing import TYPE_CHECKING

import pytest
from support.daemon.kernel_records import FakeLog, record
from support.hosts import driver_files
from support.hosts.nvidia_kernel import write_driver
from support.reports.engines import BUS, ReportHost, gpu

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

EGPU = gpu(0, "3e", "NVIDIA GeForce RTX 3060", 0x2503)
LISTED = "proc/driver/nvidia/gpus"
FELL = (
    "NVRM: The NVIDIA GPU 0000:3e:00.0 (PCI ID: 10de:2503)\\x0aNVRM: installed in this system has fallen off "
    "the bus and is not\\x0aNVRM: responding to commands."
)
OF_FEDORA = "6.10.3-200.fc40.x86_64"
ALIASES = (
    "alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia\nalias pci:v000010DEd*sv*sd*bc03sc00i00* nvidia\n"
    "alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\n"
)
LICENCES = {"open": b"Dual MIT/GPL", "proprietary": b"NVIDIA"}


@pytest.fixture
def report(tmp_path: Path, cdigen: Run, real_nodes: None) -> ReportHost:  # noqa: ARG001 - nodes must be real
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


def external_gpu(report: ReportHost) -> Path:
    """Write a notebook with a GPU in a Thunderbolt case, and return the GPU's folder in /sys."""
    report.lay("570.144", EGPU, layout=driver_files.arch).program("dockerd")
    write_driver(report.root / "proc/driver/nvidia", "570.144", open_module=True)
    report.put("etc/os-release", "ID=cachyos\nID_LIKE=arch\n")
    report.put(f"{BUS}/0000:00:02.0/vendor", "0x8086\n")
    report.write_specs()
    assert report.failures() == {}
    folder = next((report.root / "sys/devices").glob(f"*/{EGPU.bdf}"))
    (folder / "removable").write_text("removable\n")
    return folder


def test_an_external_gpu_that_was_unplugged_is_gone(report: ReportHost) -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/842

    NVIDIA's driver can still list a GPU that is no longer on the PCI bus.
    """
    external_gpu(report)
    (report.root / BUS / EGPU.bdf).unlink()
    row = report.failures()["device-health"]
    assert f"({EGPU.bdf}): pci-gone" in row["detail"]
    assert "reboot the host" in row["detail"]


@pytest.mark.parametrize("is_listed", [False, True])
@pytest.mark.parametrize("is_logged", [False, True])
def test_an_external_gpu_does_not_come_back_after_it_was_reconnected(
    report: ReportHost, *, is_listed: bool, is_logged: bool
) -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/842

    The driver still removes the old device (is_listed) or rejects the new device: no container gets the GPU,
    the next step is a reboot, and the loaded module is not loaded again.
    """
    folder = external_gpu(report)
    link = (folder / "driver").readlink()
    (folder / "driver").unlink()
    if not is_listed:
        shutil.rmtree(report.root / LISTED)
    log = FakeLog(report.root / "dev/kmsg")
    if is_logged:
        log.write(record(FELL, 1))
    row = report.failures()["gpus"]
    log.close()
    assert row["severity"] == "error"
    assert f"{EGPU.bdf}" in row["detail"]
    assert ("the driver is removing it" in row["detail"]) == is_listed
    assert ("fallen off the bus" in row["detail"]) == is_logged
    assert "reboot the host" in row["detail"]
    assert "modprobe" not in row["detail"] + row["remedy"]
    assert report.command("generate", "--write").code == 3
    (folder / "driver").symlink_to(link)
    write_again = report.root / LISTED / EGPU.bdf / "information"
    if not is_listed:
        text = f"Model: \t {EGPU.model}\nGPU UUID: \t {EGPU.uuid}\nDevice Minor: \t 0\n"
        report.put(str(write_again.relative_to(report.root)), text)
    assert report.failures() == {}


def test_the_other_gpus_stay_usable_while_the_driver_removes_one(report: ReportHost) -> None:
    """https://github.com/NVIDIA/open-gpu-kernel-modules/issues/842

    The twin of the report: a GPU without a driver is not in the spec, and keeps its number.
    """
    cards = (gpu(number, bus, "Tesla V100-SXM2-32GB", 0x1DB5) for number, bus in enumerate(("1b", "41")))
    report.lay("570.144", *cards).program("podman")
    (next((report.root / "sys/devices").glob("*/0000:1b:00.0")) / "driver").unlink()
    report.write_specs()
    assert [device["name"] for device in report.spec["devices"]][:1] == ["1"]
    row = report.failures()["gpus"]
    assert row["detail"].startswith("GPU 0 (0000:1b:00.0) gets no CDI device")


def module_of_fedora(report: ReportHost, device_id: int, licence: str) -> None:
    """Write a Fedora with the packages of negativo17, whose module has LICENCE and is not loaded."""
    card = gpu(0, "09", "", device_id)
    report.lay("560.31.02", card, layout=driver_files.red_hat, loaded=False).program("dockerd", "akmods")
    driver_files.red_hat(report.root, "560.31.02")
    alias = f"pci:v000010DEd{device_id:08X}sv00001043sd000085F4bc03sc02i00\n"
    (next((report.root / "sys/devices").glob(f"*/{card.bdf}")) / "modalias").write_text(alias)
    report.put("proc/sys/kernel/osrelease", f"{OF_FEDORA}\n")
    report.put(f"lib/modules/{OF_FEDORA}/modules.dep", "extra/nvidia/nvidia.ko.xz:\n")
    report.put(f"lib/modules/{OF_FEDORA}/modules.alias", ALIASES)
    if licence:
        packed = lzma.compress(bytes(1 << 21) + b"license=" + LICENCES[licence] + bytes(4096))
        report.put(f"lib/modules/{OF_FEDORA}/extra/nvidia/nvidia.ko.xz").write_bytes(packed)


@pytest.mark.parametrize("has_setting", [False, True])
@pytest.mark.parametrize("licence", ["", "open"])
def test_driver_560_does_not_work_with_a_gpu_before_turing(
    report: ReportHost, licence: str, *, has_setting: bool
) -> None:
    """https://github.com/negativo17/nvidia-driver/issues/158

    Also without the kernel log, the licence of the module or the setting of its package shows the open
    module, which a GT 1030 cannot use: another modprobe does not help.
    """
    module_of_fedora(report, 0x1D01, licence)
    if has_setting:
        report.put("etc/nvidia/kernel.conf", "MODULE_VARIANT=kernel-open\n")
    row = report.failures()["driver-loaded"]
    is_known = bool(licence or has_setting)
    reason = "0000:09:00.0: the open kernel module does not support GPUs before Turing"
    assert (f"{reason}: install the proprietary module" in row["detail"]) == is_known
    assert ("modprobe nvidia" in row["detail"]) != is_known
    setting = "set MODULE_VARIANT=kernel in /etc/nvidia/kernel.conf, run 'akmods --rebuild' and reboot"
    assert (setting in row["detail"]) == has_setting


@pytest.mark.parametrize(
    ("device_id", "licence", "part"),
    [
        (0x1D01, "proprietary", ""),
        (0x1F82, "open", ""),
        (0x2684, "proprietary", ""),
        (0x2B85, "open", ""),
        (0x2B85, "proprietary", "does not support GPUs from Blackwell on: install the open module"),
    ],
)
def test_each_module_is_compared_with_the_gpus_that_it_supports(
    report: ReportHost, device_id: int, licence: str, part: str
) -> None:
    """https://github.com/negativo17/nvidia-driver/issues/158

    The twins of the report: a module that supports the GPU is loaded, and Blackwell needs the open module.
    """
    module_of_fedora(report, device_id, licence)
    row = report.failures()["driver-loaded"]
    assert (row["detail"].endswith("modprobe nvidia")) == (not part)
    assert part in row["detail"]
    assert ("does not support" in row["detail"]) == bool(part)


def test_the_index_of_a_gpu_is_not_the_minor_of_its_node(report: ReportHost) -> None:
    """https://github.com/google/gvisor/issues/9389

    On this A100 host, nvidia-smi's GPU 0 is /dev/nvidia2, so that the device 0 has this node and no other.
    """
    minors, buses = (2, 3, 0, 1, 6, 7, 4, 5), ("0f", "15", "51", "54", "8d", "92", "d6", "da")
    cards = [
        gpu(minor, bus, "NVIDIA A100-SXM4-40GB", 0x20B0) for minor, bus in zip(minors, buses, strict=True)
    ]
    report.lay("525.60.13", *cards).program("dockerd").write_specs()
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"].get("deviceNodes", [])]
        for device in report.spec["devices"]
    }
    for index, card in enumerate(cards):
        assert nodes[str(index)] == nodes[card.uuid] == [f"/dev/nvidia{card.minor}"]
    assert report.failures() == {}
    option = "--gpus '\"device=0\"'"
    assert set(report.requests(f"docker run {option} image\n").values()) == {"--device nvidia.com/gpu=0"}


@pytest.mark.parametrize(
    ("model", "is_virtual"),
    [
        ("GRID P40-24Q", True),
        ("NVIDIA A100-1-5C", True),
        ("GRID T4-2B4", True),
        ("NVIDIA A100-SXM4-40GB", False),
        ("Tesla P40", False),
    ],
)
def test_the_docker_container_of_a_guest_does_not_find_its_virtual_gpu(
    report: ReportHost, model: str, *, is_virtual: bool
) -> None:
    """https://github.com/ollama/ollama/issues/6364

    The spec of a guest with a vGPU is complete, the compose file gets the device, and the doctor names the
    settings of the hypervisor without which CUDA reports error 801.
    """
    report.lay("535.161.08", gpu(0, "01", model, 0x1B38)).program("dockerd").write_specs()
    report.put("etc/docker/daemon.json", {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}})
    assert report.failures() == {}
    targets = {mount["containerPath"].rpartition("/")[2] for mount in report.spec["containerEdits"]["mounts"]}
    assert {"libcuda.so.535.161.08", "libnvidia-ml.so.535.161.08", "nvidia-smi"} <= targets
    shared = {node["path"] for node in report.spec["containerEdits"]["deviceNodes"]}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= shared
    text = " ".join(row["detail"] for row in report.rows() if row["check"] == "driver-diagnostic")
    assert (f"is a virtual GPU ({model})" in text) == is_virtual
    assert ("error 801" in text) == ("enable_uvm=1" in text) == is_virtual
    file = report.put(
        "srv/docker-compose.yml",
        "services:\n  ollama:\n    image: ollama/ollama:latest\n    deploy:\n      resources:\n"
        "        reservations:\n          devices:\n            - driver: nvidia\n"
        "              count: 1\n              capabilities: [gpu]\n",
    )
    plan = report.command("doctor", "--migrate", str(file)).out
    assert 'device_ids: ["nvidia.com/gpu=0"]' in plan
