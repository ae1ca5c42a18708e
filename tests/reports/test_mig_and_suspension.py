"""Public reports about MIG in a driver container, a driver in a folder of its own, and suspensions."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.hosts import driver_files, mig
from support.hosts.nvidia_kernel import Gpu
from support.reports import drivers
from support.reports.amd_and_intel import finish
from support.reports.engines import ReportHost

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
CONTAINER = "/run/nvidia/driver"
GB200 = Gpu(
    minor=0, bdf="0008:01:00.0", uuid="GPU-7277883e-ce1e-3b6e-6cc1-6d52e80cdb86", model="NVIDIA GB200",
    device_id=0x2941,
)  # fmt: skip
L4 = Gpu(
    minor=0, bdf="0000:00:04.0", uuid="GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0000", model="NVIDIA L4",
    device_id=0x27B8, card=0, render=128,
)  # fmt: skip
GTX_1070 = Gpu(
    minor=0, bdf="0000:01:00.0", uuid="GPU-5a1c7e42-8f0e-4d3b-9c52-7b6d1e0f0001", model="GeForce GTX 1070",
    device_id=0x1BE1, pci_class=0x030000, card=0, render=128,
)  # fmt: skip


@pytest.fixture
def report(tmp_path: Path, cdigen: Run) -> ReportHost:
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


def nodes_of(document: dict[str, Any], name: str) -> set[str]:
    """Return the paths of the nodes of the device NAME."""
    (device,) = (one for one in document["devices"] if one["name"] == name)
    return {node["path"] for node in device["containerEdits"]["deviceNodes"]}


@pytest.mark.parametrize("is_in_container", [False, True])
def test_a_mig_device_has_no_spec_without_its_capability_nodes(
    report: ReportHost, cdigen: Run, *, is_in_container: bool
) -> None:
    """A spec with the node of the GPU alone starts a container that sees no MIG device.

    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/787
    """
    drivers.loaded(report.root, driver_files.ubuntu_aarch64, "580.95.05", GB200)
    mig.write_minors(report.root, 1)
    mig.write_instance(report.root, 0, 7, nodes=False)
    options: tuple[str, ...] = ()
    if is_in_container:
        folder = report.root / CONTAINER.lstrip("/")
        folder.mkdir(parents=True)
        for name in ("usr", "dev"):
            shutil.move(report.root / name, folder / name)
        options = ("--driver-root", CONTAINER)
    finish(report.root)
    done = report.command("generate", *options)
    missing = f"{CONTAINER * is_in_container}/dev/nvidia-caps/nvidia-cap66 does not exist"
    assert done.failed(3, f"it is in MIG mode and has no usable MIG instance: {missing}")
    # The printed command makes the nodes that the same command then finds.
    command = done.err.rpartition("; ")[2].strip()
    assert command.startswith("cdigen create-nodes")
    assert cdigen(*shlex.split(command)[1:]).code == 0
    document = report.command("generate", *options).json
    caps = {"/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"}
    assert nodes_of(document, "0:gi7-ci0") == {"/dev/nvidia0", *caps}


@pytest.mark.parametrize("has_cache", [True, False])
def test_the_libraries_of_the_driver_are_found_in_a_folder_of_their_own(
    report: ReportHost, *, has_cache: bool
) -> None:
    """libcuda.so is in /var/lib/nvidia/lib64, which the loader's cache lists.

    https://github.com/NVIDIA/nvidia-container-toolkit/issues/735
    """
    folder = "/var/lib/nvidia"
    report.lay("535.183.06", L4, layout=lambda root, v: driver_files.own_folder(root, v, folder=folder))
    cache = report.root / "etc/ld.so.cache"
    cache.unlink(missing_ok=True)
    if has_cache:
        driver_files.write_loader_cache(report.root, f"{folder}/lib64")
    report.program("containerd").write_specs()
    mounts = {one["containerPath"]: one["hostPath"] for one in report.spec["containerEdits"]["mounts"]}
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        library = f"{folder}/lib64/{name.removesuffix('1')}535.183.06"
        assert mounts[f"/usr/lib/x86_64-linux-gnu/{name}"] == library
    assert mounts["/usr/bin/nvidia-smi"] == f"{folder}/bin/nvidia-smi"
    assert {"/dev/dri/card0", "/dev/dri/renderD128"} <= nodes_of(report.spec, "0")
    assert report.failures("--for", "containerd") == {}


@pytest.mark.parametrize("is_notebook", [True, False])
def test_cuda_fails_after_a_suspension_with_a_driver_that_preserves_no_memory(
    report: ReportHost, *, is_notebook: bool
) -> None:
    """The driver 384.111 of the notebook has neither the parameter nor the units.

    https://github.com/mumax/3/issues/167
    """
    report.lay("384.111", GTX_1070).program("dockerd").write_specs()
    report.put("sys/class/dmi/id/chassis_type", "10\n" if is_notebook else "3\n")
    found = report.failures("--for", "docker")
    assert list(found) == ["driver-diagnostic"] * is_notebook
    for row in found.values():
        assert row["severity"] == "warning"
        assert row["detail"].startswith("the driver has no parameter PreserveVideoMemoryAllocations")
        assert "'modprobe -r nvidia_uvm && modprobe nvidia_uvm'" in row["detail"]
        assert "NVreg" not in row["detail"]
        assert "nvidia-suspend" not in row["detail"]
