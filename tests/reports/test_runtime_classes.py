"""Public reports about Kubernetes nodes whose pods have the RuntimeClass of NVIDIA's runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.doctor.kubernetes_host import checkpoint
from support.reports.engines import ReportHost, gpu
from support.reports.kubernetes_nodes import handler

if TYPE_CHECKING:
    from pathlib import Path

    from support.command.fixtures import Run

pytestmark = pytest.mark.usefixtures("real_nodes")
A6000 = gpu(0, "01", "NVIDIA RTX A6000", 0x2230)
RTX_3070 = gpu(0, "01", "NVIDIA GeForce RTX 3070", 0x2484)
PROGRAM = "/usr/bin/nvidia-container-runtime"
V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'
K3S = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
WRITES = f"k3s writes {K3S} at each start, with the runtimes whose programs exist"


@pytest.fixture
def report(tmp_path: Path, cdigen: Run) -> ReportHost:
    """Return an empty host."""
    return ReportHost(tmp_path / "host", cdigen)


def k3s(report: ReportHost, *programs: str) -> None:
    """Write a node of k3s whose device plugin has ended."""
    report.lay("535.274.02", A6000).program(*programs)
    report.put("usr/local/bin/k3s", mode=0o755)
    report.put("etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
    report.put(K3S.lstrip("/"), V2 + handler("nvidia", PROGRAM))
    report.listen("var/lib/kubelet/device-plugins/kubelet.sock")
    record = checkpoint(registered={"nvidia.com/gpu": None})
    report.put("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(record))
    report.write_specs()


def test_the_device_plugin_of_a_k3s_node_ends_at_each_start(report: ReportHost) -> None:
    """The node has 0 of nvidia.com/gpu, although the driver works.

    https://github.com/open-edge-platform/geti_v2/issues/1501
    """
    k3s(report, "nvidia-container-runtime")
    found = report.failures("--for", "kubelet")
    assert list(found) == ["kubelet-stale-resource"]
    text = found["kubelet-stale-resource"]["detail"]
    assert text.startswith("no plugin serves nvidia.com/gpu: pods that request the resource stay pending")
    assert "Start 'cdigen kubelet', or correct the other plugin: the log of its pod has the reason" in text
    rows = {row["check"]: row["detail"] for row in report.rows("--for", "containerd")}
    assert rows["containerd-config"] == f"{K3S}: readable"
    plan = report.command("doctor", "--migrate", "--json").json
    (step,) = (one for one in plan["steps"] if one["step"] == "unregister")
    assert step["by_hand"].startswith(f"{WRITES}: to remove nvidia, remove the programs, or the tables in ")
    assert step["by_hand"].endswith("and run 'systemctl restart k3s.service'")
    assert "restart containerd" not in str(plan)


def test_the_program_of_the_runtime_of_k3s_is_missing(report: ReportHost) -> None:
    """The same node after the toolkit was removed.

    https://github.com/open-edge-platform/geti_v2/issues/1501
    """
    k3s(report)
    text = report.failures("--for", "kubelet")["oci-runtime-program"]["detail"]
    assert f"{K3S}: the runtime nvidia of containerd has the program {PROGRAM}, which does not exist" in text
    assert text.endswith(
        "install the program, or run 'systemctl restart k3s.service', so that k3s writes the file again"
    )


def runtime_class(report: ReportHost) -> dict[str, Any]:
    """Return the result about the RuntimeClass of NVIDIA."""
    rows = report.rows("--for", "kubelet")
    (row,) = (row for row in rows if row["check"] == "kubelet-runtime-class")
    return row


@pytest.mark.parametrize("has_nodes", [True, False])
def test_the_containerd_of_a_kind_node_has_no_handler_nvidia(report: ReportHost, *, has_nodes: bool) -> None:
    """NVIDIA's runtime was registered on the host of kind, not in the node's container.

    https://github.com/NVIDIA/k8s-device-plugin/issues/479
    """
    report.lay("525.147.05", RTX_3070).program("containerd", "kubelet")
    report.put(".dockerenv")
    report.put("etc/containerd/config.toml", V2 + handler("runc"))
    report.put("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    report.listen("var/lib/kubelet/device-plugins/kubelet.sock")
    if has_nodes:
        report.write_specs()
    else:
        for node in (report.root / "dev").glob("nvidia*"):
            node.unlink()
    found = report.failures("--for", "kubelet")
    assert list(found) == ([] if has_nodes else ["node-missing", "spec-missing"])
    if not has_nodes:
        text = found["node-missing"]["detail"]
        assert text.endswith("mknod is not permitted in this container: the host must pass the node to it")
        assert "modprobe" not in text
    row = runtime_class(report)
    assert row["detail"].startswith(
        "containerd has no handler of NVIDIA's runtime: pods with its RuntimeClass"
    )
    assert 'do not start (no runtime for "nvidia" is configured)' in row["detail"]
    assert row["detail"].endswith("Pods with devices of cdigen need no RuntimeClass")


@pytest.mark.parametrize("others", [(), ("containerd",)])
def test_k0s_does_not_read_the_file_with_the_handler_nvidia(
    report: ReportHost, others: tuple[str, ...]
) -> None:
    """nvidia-ctk has changed the configuration of another containerd.

    https://github.com/NVIDIA/k8s-device-plugin/issues/479
    """
    report.lay("525.147.05", RTX_3070).program("nvidia-container-runtime", *others)
    report.put("usr/local/bin/k0s", mode=0o755)
    report.put("var/lib/k0s/bin/containerd", mode=0o755)
    report.put("etc/systemd/system/k0sworker.service", "[Service]\nExecStart=/usr/local/bin/k0s worker\n")
    imports = '# k0s_managed=true\nversion = 2\nimports = ["/run/k0s/containerd-cri.toml"]\n'
    report.put("etc/k0s/containerd.toml", imports)
    report.put("run/k0s/containerd-cri.toml", V2)
    report.put("etc/containerd/config.toml", V2 + handler("nvidia", PROGRAM, is_default=True))
    report.listen("var/lib/k0s/kubelet/device-plugins/kubelet.sock")
    report.write_specs()
    assert 'do not start (no runtime for "nvidia" is configured)' in runtime_class(report)["detail"]
    found = report.failures("--for", "kubelet")
    if others:  # the file is that of the other containerd
        assert report.failures("--for", "containerd") == {}
        assert "oci-runtime-unread" not in found
        return
    row = found["oci-runtime-unread"]
    assert row["severity"] == "warning"
    assert row["detail"].startswith(
        "/etc/containerd/config.toml has the runtime nvidia, but the containerd of k0s reads /etc/k0s/"
    )
    assert "pods with this runtime do not start" in row["detail"]
    document = report.command("configure", "containerd", "--json", "--dry-run").json
    assert [file["path"] for file in document["files"]] == ["/etc/k0s/containerd.d/99-cdigen.toml"]
