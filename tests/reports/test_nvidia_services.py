"""Public reports about NVIDIA's services, the nodes of the driver, and a lost GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.hosts import driver_files
from support.hosts.nvidia import discover
from support.hosts.nvidia_kernel import Node, control_nodes, make_node
from support.reports.engines import BUS, ReportHost, gpu
from support.values.unhealthy_gpus import FELL, save, with_causes

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

UNIT = "nvidia-fabricmanager.service"
SERVICE = "[Service]\nExecStart=/usr/bin/nv-fabricmanager\n"
FABRIC_MANAGER = "nvidia-fabricmanager is not running"


@pytest.fixture
def report(tmp_path: Path, cdigen: Run, real_nodes: None) -> ReportHost:  # noqa: ARG001 - nodes must be real
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


def enable_fabric_manager(host: ReportHost) -> None:
    host.put(f"usr/lib/systemd/system/{UNIT}", SERVICE)
    host.link(f"etc/systemd/system/multi-user.target.wants/{UNIT}", f"/usr/lib/systemd/system/{UNIT}")
    host.put("usr/bin/nv-fabricmanager", "\x7fELF", 0o755)


def mentions(host: ReportHost, word: str) -> list[str]:
    """Return the details of the doctor that contain WORD."""
    return [row["detail"] for row in host.rows() if word in row["detail"].lower()]


def test_persistence_mode_is_off_in_the_container(report: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-container-toolkit/issues/136

    nvidia-smi in a container queries nvidia-persistenced by its socket, so the spec mounts the socket.
    """
    report.lay(
        "530.41.03", gpu(0, "08", "NVIDIA GeForce RTX 3080", 0x2206), layout=driver_files.arch
    ).program("dockerd")
    path = "/run/nvidia-persistenced/socket"
    report.listen(path.lstrip("/"))
    report.write_specs()
    mounts = report.spec["containerEdits"]["mounts"]
    assert [each["containerPath"] for each in mounts if each["hostPath"] == path] == [path]
    assert report.failures() == {}


def test_the_fabric_manager_does_not_start_on_two_rtx_4090(report: ReportHost) -> None:
    """https://github.com/data-infra/cube-studio/issues/29

    GPUs without an NVSwitch need no fabric manager: both are in the spec, and the doctor requires no unit.
    """
    model = "NVIDIA GeForce RTX 4090"
    report.lay("570.133.20", gpu(0, "01", model, 0x2684), gpu(1, "02", model, 0x2684)).program("podman")
    enable_fabric_manager(report)
    report.write_specs()
    assert [device["name"] for device in report.spec["devices"]][:2] == ["0", "1"]
    assert report.failures() == {}
    assert mentions(report, "fabric") == []


def test_the_fabric_manager_fails_on_rocky_linux(report: ReportHost) -> None:
    """https://github.com/NVIDIA/gpu-operator/issues/356

    The failed unit of a host without an NVSwitch is no failure of the host.
    """
    card = gpu(0, "05", "NVIDIA GeForce GTX 1650", 0x1F82)
    report.lay("510.47.03", card, layout=driver_files.red_hat).program("containerd")
    enable_fabric_manager(report)
    report.put("var/log/fabricmanager.log", "request to query NVSwitch devices failed: nothing to do\n")
    report.write_specs()
    assert report.failures() == {}
    assert mentions(report, "fabric") == []


@pytest.mark.parametrize("is_installed", [True, False])
@pytest.mark.parametrize("is_running", [True, False])
def test_nvswitches_need_a_running_fabric_manager(
    report: ReportHost, *, is_installed: bool, is_running: bool
) -> None:
    """https://github.com/NVIDIA/gpu-operator/issues/356

    The twin of the report: on a host with an NVSwitch, the fabric manager must run.
    """
    model = "NVIDIA A100-SXM4-80GB"
    report.lay("510.47.03", gpu(0, "05", model, 0x20B2), gpu(1, "06", model, 0x20B2)).program("containerd")
    for name, text in (("vendor", "0x10de"), ("device", "0x22a3"), ("class", "0x068000")):
        report.put(f"{BUS}/0000:0a:00.0/{name}", f"{text}\n")
    make_node(report.root, Node(path="/dev/nvidia-nvswitch0", major=508, minor=0))
    if is_installed:
        enable_fabric_manager(report)
    if is_running:
        report.put("run/nvidia-fabricmanager/nv-fabricmanager.pid", "812\n")
    report.write_specs()
    found = report.failures()
    assert list(found) == ([] if is_running else ["driver-diagnostic"])
    if is_running:
        return
    detail = found["driver-diagnostic"]["detail"]
    assert f"1 NVSwitch (0000:0a:00.0), but {FABRIC_MANAGER}" in detail
    start = f"systemctl enable --now {UNIT}"
    assert (f"on that host: {start}" in detail) == is_installed
    assert ("install nvidia-fabricmanager" in detail) != is_installed


@pytest.mark.parametrize("has_links", [False, True])
def test_nvml_reports_an_unknown_error_after_daemon_reload(report: ReportHost, *, has_links: bool) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1671

    runc finds the nodes for systemd in /dev/char, so a node without a link there is a warning.
    """
    report.lay("510.68.02", gpu(0, "01", "NVIDIA GeForce RTX 3090", 0x2204)).program("dockerd")
    report.put("etc/docker/daemon.json", {"exec-opts": ["native.cgroupdriver=systemd"]})
    (report.root / "run/systemd/system").mkdir(parents=True)
    nodes = (Node(path="/dev/nvidia0", major=195, minor=0), *control_nodes())
    for node in nodes if has_links else ():
        report.link(f"dev/char/{node.major}:{node.minor}", f"../{node.path.removeprefix('/dev/')}")
    report.write_specs()
    found = report.failures()
    assert list(found) == ([] if has_links else ["node-links"])
    if has_links:
        return
    row = found["node-links"]
    assert row["severity"] == "warning"
    assert "lose access at the next 'systemctl daemon-reload'" in row["detail"]
    assert "to repeat this at each boot, enable cdigen-nodes.service" in row["detail"]
    linked = {argv[-1] for argv in (one["argv"] for one in row["commands"]) if argv[0] == "ln"}
    assert linked == {f"{report.root}/dev/char/{node.major}:{node.minor}" for node in nodes}


def four_v100(report: ReportHost) -> ReportHost:
    buses = ("1b", "41", "61", "81")
    cards = (gpu(number, bus, "Tesla V100-SXM2-32GB", 0x1DB5) for number, bus in enumerate(buses))
    return report.lay("460.91.03", *cards).program("dockerd").write_specs()


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize(
    ("name", "severity"), [("", "warning"), ("nvidia.com/gpu=1", "error"), ("nvidia.com/gpu=0", "warning")]
)
def test_the_container_of_a_gpu_that_fell_off_the_bus_cannot_be_killed(
    report: ReportHost, name: str, severity: str, *, is_gone: bool
) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1553

    Without the daemon too, the doctor finds the lost GPU; its programs hang until a reboot.
    """
    four_v100(report)
    folder = report.root / BUS / "0000:41:00.0"
    if is_gone:
        folder.unlink()
    else:
        (folder / "config").write_bytes(b"\xff" * 64)
    row = report.failures(*(("--device", name) if name else ()))["device-health"]
    assert row["severity"] == severity
    cause = "pci-gone" if is_gone else "pci-off-bus"
    for part in (f"gpu 1 (0000:41:00.0): {cause}", "cannot be killed", "reboot the host", "other devices"):
        assert part in row["detail"]
    assert row["remedy"] == ""
    assert [found["check"] for found in report.rows() if found["severity"] == "error"] == []


def test_a_gpu_with_xid_79_is_unhealthy_and_the_others_are_not(report: ReportHost) -> None:
    """https://github.com/NVIDIA/nvidia-docker/issues/1553

    With the daemon, the lost GPU has the cause xid-79 in each command, and the other GPUs stay healthy.
    """
    four_v100(report)
    save(report.root, with_causes({"nvidia": discover(report.root)}, 1, FELL))
    row = report.failures()["device-health"]
    assert row["detail"].startswith("nvidia.com/gpu=1 ")
    assert ": unhealthy: xid-79" in row["detail"]
    assert "the host is rebooted" in row["detail"]
    listed = report.command("health", "--json").json
    assert [row["device"] for row in listed if row["health"] == "unhealthy"] == ["nvidia.com/gpu=1"]


@pytest.mark.parametrize(
    "line", ["", "#ConstrainDevices=yes\n", "ConstrainDevices=no\n", "constraindevices = YES\n"]
)
@pytest.mark.parametrize("folder", ["etc/slurm", "etc/slurm-llnl"])
def test_slurm_gives_a_container_the_number_of_a_gpu_that_it_lacks(
    report: ReportHost, line: str, folder: str
) -> None:
    """https://github.com/NVIDIA/pyxis/issues/47

    With one GPU of eight, CUDA found no device, because Slurm did not constrain the devices of its jobs.
    """
    report.lay(
        "460.73.01", *(gpu(number, f"{number:02x}", "A100-SXM4-40GB", 0x20B0) for number in range(1, 9))
    )
    report.put("etc/enroot/hooks.d/98-nvidia.sh", "#!/bin/bash\n", 0o755)
    report.write_specs()
    report.put(f"{folder}/slurm.conf", "ClusterName=a\nGresTypes=gpu\nNodeName=n1 Gres=gpu:A100:8\n")
    report.put(f"{folder}/cgroup.conf", f"CgroupAutomount=yes\nConstrainCores=yes\n{line}")
    found = report.failures()
    if "YES" in line:
        assert found == {}
        return
    assert list(found) == ["slurm-devices"]
    row = found["slurm-devices"]
    assert row["severity"] == "warning"
    assert row["detail"].startswith(f"/{folder}/cgroup.conf: ConstrainDevices=yes is missing")
    for part in ("jobs can use the GPUs of other jobs", "CUDA_VISIBLE_DEVICES", "restart slurmd"):
        assert part in row["detail"]


@pytest.mark.parametrize(
    ("main", "rows", "is_wrong"),
    [
        ("GresTypes=license,gpu\n", "", True),
        ("", "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\n", True),
        ("", "AutoDetect=nvml\n", True),
        ("GresTypes=license\n", "# Name=gpu File=/dev/nvidia0\n", False),
        ("#GresTypes=gpu\n", "AutoDetect=off\n", False),
    ],
)
def test_only_a_slurm_that_schedules_gpus_is_examined(
    report: ReportHost, main: str, rows: str, *, is_wrong: bool
) -> None:
    """https://github.com/NVIDIA/pyxis/issues/47

    The twin of the report: a cluster without GPUs as resources, and one without cgroup.conf.
    """
    report.lay("460.73.01", gpu(0, "07", "A100-SXM4-40GB", 0x20B0)).write_specs()
    report.put("etc/slurm/slurm.conf", f"ClusterName=a\n{main}")
    report.put("etc/slurm/gres.conf", rows)
    assert ("slurm-devices" in report.failures()) == is_wrong
