"""Public reports about Gaudis with Habana's runtime, and about an MI300X in a container."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.hosts import amd_tree, intel_tree
from support.hosts.nvidia_kernel import Node, make_node
from support.reports.amd_and_intel import finish
from support.reports.engines import ReportHost

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
# The command of the documentation that both users followed.
GAUDI_COMMAND = (
    "docker run -it --runtime=habana -e HABANA_VISIBLE_DEVICES={} --cap-add=sys_nice --net=host "
    "vault.habana.ai/gaudi-docker/1.7.1/ubuntu18.04/habanalabs/pytorch-installer-1.13.0:latest\n"
)
DL1 = tuple(replace(one, device_id="0x1000") for one in intel_tree.gaudi_3(8))


@pytest.fixture
def report(tmp_path: Path, cdigen: Run) -> ReportHost:
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


def gaudis(report: ReportHost) -> ReportHost:
    """Write eight Gaudis and Docker."""
    intel_tree.lay(report.root, *DL1)
    finish(report.root, "dockerd")
    return report.write_specs()


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("all", "--device intel.com/gaudi=all"),
        ("0,3", "--device intel.com/gaudi=accel0 --device intel.com/gaudi=accel3"),
    ],
)
def test_docker_does_not_know_the_runtime_habana(report: ReportHost, value: str, options: str) -> None:
    """Docker stops with "Unknown runtime specified habana"; the device of CDI needs no runtime.

    https://github.com/HabanaAI/Model-References/issues/7
    """
    gaudis(report)
    found = report.requests(GAUDI_COMMAND.format(value))
    assert found["--runtime=habana"] == "remove it, and name the device with --device"
    assert found[f"HABANA_VISIBLE_DEVICES={value}"].startswith(f"{options}; in a compose file")
    names = {row["device"] for row in report.command("list", "--json").json if row["usable"]}
    assert {word for word in options.split() if "=" in word} <= names
    assert report.failures("--for", "docker") == {}
    found = report.requests("services:\n  train:\n    runtime: habana\n")
    assert found["runtime: habana"].startswith(
        "remove it, and add devices: [intel.com/gaudi=NAME] for each device of HABANA_VISIBLE_DEVICES"
    )


def test_the_runtime_habana_is_a_leftover_where_it_is_registered(report: ReportHost) -> None:
    """The same host after the installation of Habana's runtime.

    https://github.com/HabanaAI/Model-References/issues/7
    """
    gaudis(report).program("habana-container-runtime")
    runtime = {"habana": {"path": "/usr/bin/habana-container-runtime", "runtimeArgs": []}}
    report.put("etc/docker/daemon.json", {"runtimes": runtime, "default-runtime": "habana"})
    plan = report.command("doctor", "--migrate", "--json").json
    found = {one["kind"]: (one["tool"], one["where"]) for one in plan["leftovers"]}
    assert found["runtime"] == ("Habana Container Runtime", ["/etc/docker/daemon.json"])
    texts = {one["step"]: one["by_hand"] for one in plan["steps"]}
    assert texts["request-by-name"].startswith("replace --runtime=habana by --device intel.com/gaudi=all; ")
    assert texts["unregister"].startswith(
        "remove habana and the default runtime from /etc/docker/daemon.json"
    )


def mi300x(report: ReportHost, *, gid: int, major: int = amd_tree.KFD_MAJOR) -> None:
    """Write a container in a user namespace with an MI300X; /dev/kfd has the group GID and MAJOR."""
    amd_tree.write(report.root, amd_tree.mi300x(1, count=1), version="6.7.0")
    finish(report.root)
    report.put("run/systemd/container", "docker\n")
    report.put("proc/1/uid_map", "         0     100000      65536\n")
    (report.root / "dev/kfd").unlink()
    make_node(report.root, Node(path="/dev/kfd", major=major, minor=0), 0o660, gid=gid)


@pytest.mark.parametrize("user", [(), ("--user", "alice")])
def test_kfd_has_a_group_that_the_user_namespace_of_the_container_does_not_have(
    report: ReportHost, user: tuple[str, ...]
) -> None:
    """rocminfo cannot open /dev/kfd; root was added to the group nogroup, which the node seems to have.

    https://github.com/ROCm/legacy-rocm-build/issues/4043
    """
    mi300x(report, gid=65534)
    report.write_specs()
    rows = report.rows(*user)
    (row,) = (row for row in rows if row["check"] == "node-groups" and not row["ok"])
    assert row["detail"].startswith("/dev/kfd: the user namespace of this container does not have the group")
    assert "the host must pass the node with a group of this container" in row["detail"]
    assert "65534" not in str(rows)
    assert "nogroup" not in str(rows)


def test_kfd_has_the_number_of_another_boot_in_the_container(report: ReportHost) -> None:
    """The node that the container was given is not kfd's, so that its open fails.

    https://github.com/ROCm/legacy-rocm-build/issues/4043
    """
    mi300x(report, gid=amd_tree.RENDER_GID, major=511)
    numbers = "/dev/kfd has the numbers 511:0, but the kernel's numbers are 235:0"
    assert report.command("generate").failed(3, numbers)
    row = report.failures()["node-wrong"]
    assert row["detail"].startswith(
        "/dev/kfd: 511:0, must be 235:0; mknod is not permitted in this container"
    )
    assert row["detail"].endswith("the host must pass the node to it")
    assert row["remedy"] == ""
