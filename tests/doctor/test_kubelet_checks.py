"""The doctor's results for a Kubernetes node with each fault that its folders can show."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.doctor.bundles import packed
from support.doctor.kubernetes_host import (
    CHECKPOINT,
    CONTAINERD,
    FOLDER,
    PLUGINS,
    POD,
    checkpoint,
    registered,
)
from support.kubelet.resources import GPU

from cdigen import page_url

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost
    from support.doctor.kubernetes_host import KubeNode


UNIT = "usr/lib/systemd/system/cdigen-kubelet.service"
KUBELET = "usr/lib/systemd/system/kubelet.service"


def test_a_healthy_node_has_no_errors(node: KubeNode) -> None:
    assert node.wrong() == {}
    assert {row["topic"] for row in node.results("--for kubelet")} >= {"kubelet", "containerd"}


def test_each_failure_has_a_reference_to_the_documentation(node: KubeNode) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    (node.root / CHECKPOINT).write_text("{")
    node.listen("nvidia-gpu.sock")
    found = [row for name, row in node.wrong().items() if name.startswith("kubelet")]
    assert len(found) == 3
    assert all(page_url("how-to/kubernetes/troubleshoot") in row["detail"] for row in found)


def test_a_host_without_kubernetes_has_only_the_result_of_the_plugin(host: BrokenHost) -> None:
    names = {row["check"] for row in host.doctor(wrong=False) if row["topic"] == "kubelet"}
    assert names == {"kubelet-plugin"}


def test_a_kubernetes_node_is_checked_without_the_option_for(node: KubeNode) -> None:
    assert node.result("kubelet-registered")["ok"]
    assert "kubelet-registered" not in {row["check"] for row in node.results("--for podman")}


def test_the_result_contains_the_pod_of_cdigen_kubelet(
    node: KubeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDIGEN_POD_NAME", "cdigen-x7k2p")
    monkeypatch.setenv("CDIGEN_POD_NAMESPACE", "cdigen-system")
    node.write_status(registered("GPU-a", "GPU-b"))
    detail = node.result("kubelet-plugin")["detail"]
    assert "cdigen kubelet is running (pod cdigen-system/cdigen-x7k2p): registered" in detail


def test_the_kubelet_check_is_skipped_on_a_host_without_a_kubelet(node: KubeNode) -> None:
    (node.root / KUBELET).unlink()
    row = node.result("kubelet-running", "--for kubelet")
    assert not row["checked"]
    assert "no kubelet runs, and no unit" in row["detail"]


def test_another_folder_than_the_kubelets_is_an_error_with_a_drop_in_as_remedy(node: KubeNode) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet\n")
    (node.root / "data/kubelet/device-plugins").mkdir(parents=True)
    node.listen("kubelet.sock", "data/kubelet/device-plugins")
    row = node.wrong()["kubelet-directory"]
    assert "the kubelet's folder is /data/kubelet, but cdigen kubelet uses /var/lib/kubelet" in row["detail"]
    # The remedy writes into /etc. The test replaces this path by /etc below the host's folder.
    script = (
        node.remedy_on_host(row)
        .partition(" && systemctl")[0]
        .replace("/etc/systemd", f"{node.root}/etc/systemd")
    )
    node.shell(script)
    made = (node.root / "etc/systemd/system/cdigen-kubelet.service.d/kubelet-dir.conf").read_text()
    assert made.splitlines()[1:] == [
        "ExecStart=",
        "ExecStart=/usr/bin/cdigen kubelet --standby --kubelet-dir /data/kubelet",
        "ReadWritePaths=/data",
    ]
    assert (
        node.remedy_on_host(node.wrong()["kubelet-directory"]) == ""
    )  # the drop-in exists, and another program may have written it
    node.write_status(registered("GPU-a", "GPU-b"), kubelet_dir="/data/kubelet")
    assert "kubelet-directory" not in node.wrong()


def test_a_kubelet_with_another_root_dir_has_its_plugins_in_the_usual_folder(node: KubeNode) -> None:
    # The kubelet's option --root-dir moves only the pod resources API (kubernetes/kubernetes#120626).
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/var/lib/k0s/kubelet\n")
    wrong = node.wrong()
    assert list(wrong) == ["kubelet-directory"]
    row = wrong["kubelet-directory"]
    assert row["severity"] == "warning"
    assert "cdigen kubelet cannot read which containers use which devices; set --kubelet-dir" in row["detail"]
    assert "--kubelet-dir /var/lib/k0s/kubelet" in node.remedy_on_host(row)
    node.write_status(registered("GPU-a", "GPU-b"), kubelet_dir="/var/lib/k0s/kubelet")
    assert node.wrong() == {}


def test_a_folder_name_with_shell_syntax_gets_no_remedy(node: KubeNode) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet '--root-dir=/data/$(id)'\n")
    row = node.wrong()["kubelet-directory"]
    assert (row["remedy"], node.remedy_on_host(row)) == ("", "")


def test_a_link_to_the_kubelets_folder_is_the_same_folder(node: KubeNode) -> None:
    node.link("srv", "/var/lib")
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/srv/kubelet\n")
    assert "kubelet-directory" not in node.wrong()


@pytest.mark.parametrize(
    ("config", "where"),
    [("/etc/kubernetes/kubelet.yaml", "--config"), ("/etc/kubernetes/kubelet.d/90-x.conf", "--config-dir")],
)
def test_a_setting_in_the_kubelets_configuration_file_applies(
    node: KubeNode, config: str, where: str
) -> None:
    given = config if where == "--config" else "/etc/kubernetes/kubelet.d"
    node.put(KUBELET, f"[Service]\nExecStart=/usr/bin/kubelet {where} {given}\n")
    node.put(config.lstrip("/"), "topologyManagerPolicy: restricted\nfeatureGates: {DevicePlugins: false}\n")
    assert "feature gate DevicePlugins is off" in node.wrong()["kubelet-names"]["detail"]
    assert "TopologyAffinityError" in node.result("kubelet-topology", "--for kubelet")["detail"]


def test_a_flag_of_the_kubelet_has_precedence_over_its_file(node: KubeNode) -> None:
    line = (
        "--config=/etc/k.yaml --topology-manager-policy=best-effort --feature-gates=A=true,DevicePlugins=true"
    )
    node.put(KUBELET, f"[Service]\nExecStart=/usr/bin/kubelet {line}\n")
    node.put("etc/k.yaml", "topologyManagerPolicy: restricted\nfeatureGates: {DevicePlugins: false}\n")
    assert "kubelet-names" not in node.wrong()
    assert "best-effort" in node.result("kubelet-topology", "--for kubelet")["detail"]


@pytest.mark.parametrize(
    "text", ["a: [", "- a\n- b\n", "[" * 5000, "a: &a [*a]\n", "\x00", "5", "? [a]\n: b\n", "k: {[a]: b}"]
)
def test_an_invalid_configuration_of_the_kubelet_causes_no_failure(node: KubeNode, text: str) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --config /etc/k.yaml\n")
    node.put("etc/k.yaml", text)
    assert node.wrong() == {}


def test_a_missing_socket_is_the_cause_of_other_failures(node: KubeNode) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    node.write_status(registered("GPU-a", state="waiting", is_confirmed=False))
    rows = [row for row in node.results("--for kubelet") if not row["ok"]]
    assert [row["check"] for row in rows] == ["kubelet-socket", "kubelet-registered"]
    assert "kubelet-socket" in rows[1]["because"]


def test_a_missing_folder_of_sockets_is_an_error(node: KubeNode) -> None:
    (node.root / PLUGINS).rename(node.root / "elsewhere")
    assert "No such file" in node.wrong()["kubelet-socket"]["detail"]


@pytest.mark.parametrize("target", ["/etc/passwd", "/nowhere-at-all"])
def test_a_link_at_the_path_of_the_kubelets_socket_is_an_error(node: KubeNode, target: str) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    node.link(f"{PLUGINS}/kubelet.sock", target)
    assert "is a link, not the kubelet's socket" in node.wrong()["kubelet-socket"]["detail"]


def test_a_service_that_is_not_enabled_is_a_warning_and_its_remedy_enables_it(node: KubeNode) -> None:
    (node.root / "etc/systemd/system/multi-user.target.wants/cdigen-kubelet.service").unlink()
    row = node.wrong()["kubelet-unit"]
    assert (row["severity"], node.remedy_on_host(row)) == (
        "warning",
        "systemctl enable cdigen-kubelet.service",
    )


def test_a_service_that_starts_after_the_kubelet_is_a_warning(node: KubeNode) -> None:
    text = (node.root / UNIT).read_text()
    node.put(UNIT, text.replace("Before=kubelet.service", "Before="))
    row = node.wrong()["kubelet-unit"]
    assert "not ordered before kubelet.service" in row["detail"]
    script = (
        node.remedy_on_host(row)
        .partition(" && systemctl")[0]
        .replace("/etc/systemd", f"{node.root}/etc/systemd")
    )
    node.shell(script)
    assert "kubelet-unit" not in node.wrong()


@pytest.mark.parametrize(
    ("unit", "folder"), [("k3s.service", "/var/lib/kubelet"), ("k0sworker.service", "/var/lib/k0s/kubelet")]
)
def test_kubelets_of_other_distributions_are_recognized_by_their_units(
    node: KubeNode, unit: str, folder: str
) -> None:
    (node.root / KUBELET).unlink()
    node.put(f"usr/lib/systemd/system/{unit}", "[Service]\nExecStart=/usr/local/bin/program worker\n")
    wrong = node.wrong()
    assert "kubelet-unit" not in wrong
    assert ("kubelet-directory" in wrong) == (folder != "/var/lib/kubelet")


def test_another_containerd_beside_that_of_k3s_gets_no_remedy_that_changes_k3s(node: KubeNode) -> None:
    def remedy() -> str:
        rows = {row["check"]: row for row in node.results("--for containerd")}
        assert not rows["containerd-cdi"]["ok"]
        return str(rows["containerd-cdi"]["remedy"])

    node.put("etc/containerd/config.toml", CONTAINERD.replace("true", "false"))
    assert "configure containerd" in remedy()
    (node.root / KUBELET).unlink()
    node.put("usr/lib/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
    assert remedy() == ""


def test_kubelet_arguments_in_the_configuration_of_k3s_apply(node: KubeNode) -> None:
    (node.root / KUBELET).unlink()
    node.put("usr/lib/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
    node.put("etc/rancher/k3s/config.yaml", "kubelet-arg:\n  - root-dir=/data/kubelet\n")
    assert "folder is /data/kubelet" in node.wrong()["kubelet-directory"]["detail"]


def test_a_resource_of_another_plugin_is_an_error_with_the_conflict_as_cause(node: KubeNode) -> None:
    node.listen("nvidia-gpu.sock")
    node.write_status(
        registered(
            "GPU-a", state="claimed-by-other", reason="another device plugin has registered the resource"
        )
    )
    rows = [row for row in node.results("--for kubelet") if not row["ok"]]
    assert [row["check"] for row in rows] == ["kubelet-plugin-conflict", "kubelet-registered"]
    assert "nvidia.com/gpu (nvidia-gpu.sock)" in rows[0]["detail"]


@pytest.mark.parametrize("name", ["nvidia-mig-1g.10gb.sock", "nvidia-gpu.shared.sock"])
def test_another_plugin_for_the_same_vendors_devices_is_a_warning(node: KubeNode, name: str) -> None:
    node.listen(name)
    assert name in node.wrong()["kubelet-plugin-conflict"]["detail"]


@pytest.mark.parametrize("name", ["amd.com_gpu", "gpu.intel.com-i915.sock", "kubevirt-kvm.sock"])
def test_a_plugin_for_other_devices_is_no_failure(node: KubeNode, name: str) -> None:
    node.listen(name)
    row = node.result("kubelet-plugin-conflict", "--for kubelet")
    assert row["ok"]
    assert name in row["detail"]


def test_a_dra_driver_for_the_same_vendors_devices_is_a_warning(node: KubeNode) -> None:
    node.listen("gpu.nvidia.com-reg.sock", f"{FOLDER}/plugins_registry")
    assert "DRA (gpu.nvidia.com-reg.sock)" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_a_failed_registration_is_reported_with_its_reason(node: KubeNode) -> None:
    node.write_status(registered("GPU-a", state="backoff", reason="Register: version not supported"))
    assert (
        f"{GPU} is not registered with the kubelet: Register: version"
        in node.wrong()["kubelet-registered"]["detail"]
    )


def test_a_folder_with_another_selinux_label_is_a_warning_in_enforcing_mode(node: KubeNode) -> None:
    node.put("sys/fs/selinux/enforce", "1")
    try:
        os.setxattr(node.root / PLUGINS, "security.selinux", b"u:object_r:var_lib_t:s0\0")
    except OSError as error:
        cannot_run(f"labels cannot be set here: {error.strerror}")
    row = node.wrong()["kubelet-labels"]
    assert "has the label var_lib_t" in row["detail"]
    assert node.remedy_on_host(row) == f"chcon -t container_file_t /{PLUGINS}"


def test_nvidias_runtime_handler_is_a_warning_if_specs_do_not_set_void(node: KubeNode) -> None:
    runtimes = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    text = (node.root / "etc/containerd/config.toml").read_text()
    node.put(
        "etc/containerd/config.toml", f'{text}{runtimes}BinaryName = "/usr/bin/nvidia-container-runtime"\n'
    )
    assert node.result("kubelet-runtime-class", "--for kubelet")["ok"]
    document = node.document()
    for holder in (document, *document["devices"]):
        holder["containerEdits"]["env"] = ["OTHER=1"]
    node.put("run/cdi/nvidia.com-gpu.json", document)
    assert "Remove runtimeClassName" in node.wrong()["kubelet-runtime-class"]["detail"]


def test_docker_as_the_kubelets_runtime_is_a_warning(node: KubeNode) -> None:
    line = "--container-runtime-endpoint=unix:///run/cri-dockerd.sock"
    node.put(KUBELET, f"[Service]\nExecStart=/usr/bin/kubelet {line}\n")
    assert "cri-dockerd releases drop the CDI names" in node.wrong()["kubelet-runtime"]["detail"]


def test_disabled_cdi_in_the_kubelets_runtime_is_an_error(node: KubeNode) -> None:
    node.put(
        "etc/containerd/config.toml",
        'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n',
    )
    row = node.wrong()["containerd-cdi"]
    assert row["severity"] == "error"
    assert node.result("containerd-cdi")["severity"] == "warning"


def test_the_bundle_has_the_plugins_status_and_names_no_pod(node: KubeNode) -> None:
    (node.root / FOLDER / "pods" / POD).mkdir(parents=True)
    node.put(CHECKPOINT, checkpoint((POD, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a"]}))
    text = "".join(packed(node, "--for kubelet", code=1).values())
    assert '"kubelet-checkpoint"' in text
    assert POD not in text
    assert '"resource": "nvidia.com/gpu"' in text
    assert '"root_dir": "/var/lib/kubelet"' in text
