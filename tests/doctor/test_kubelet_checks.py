"""What the doctor says of a node of Kubernetes, broken in every way that its folders show."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from support.abilities import cannot_run
from support.doctor.bundles import packed
from support.doctor.kubernetes_host import CHECKPOINT, FOLDER, PLUGINS, POD, checkpoint, registered
from support.doctor.requests import doctor_context
from support.kubelet.resources import GPU

from cdigen.doctor import kubelet_devices
from cdigen.kubelet.journal import Allocation
from cdigen.model.findings import Finding

if TYPE_CHECKING:
    from support.doctor.broken_host import BrokenHost
    from support.doctor.kubernetes_host import KubeNode

    from cdigen.doctor.result import CheckResult

UNIT = "usr/lib/systemd/system/cdigen-kubelet.service"
KUBELET = "usr/lib/systemd/system/kubelet.service"


def test_a_node_that_is_well_lacks_nothing(node: KubeNode) -> None:
    assert node.wrong() == {}
    assert {row["topic"] for row in node.ask("--for kubelet")} >= {"kubelet", "containerd"}


def test_each_failure_names_the_place_in_the_documentation(node: KubeNode) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    (node.root / CHECKPOINT).write_text("{")
    node.listen("nvidia-gpu.sock")
    found = [row for name, row in node.wrong().items() if name.startswith("kubelet")]
    assert len(found) == 3
    assert all("(docs/kubernetes-questions.md" in row["detail"] for row in found)


def test_without_kubernetes_nothing_is_asked_of_a_host(host: BrokenHost) -> None:
    names = {row["check"] for row in host.doctor(wrong=False) if row["topic"] == "kubelet"}
    assert names == {"kubelet-plugin"}


def test_a_host_that_serves_a_kubelet_is_examined_unasked(node: KubeNode) -> None:
    assert node.result("kubelet-registered")["ok"]
    assert "kubelet-registered" not in {row["check"] for row in node.ask("--for podman")}


def test_the_pod_that_serves_the_kubelet_is_named(node: KubeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDIGEN_POD_NAME", "cdigen-x7k2p")
    monkeypatch.setenv("CDIGEN_POD_NAMESPACE", "cdigen-system")
    node.say(registered("GPU-a", "GPU-b"))
    detail = node.result("kubelet-plugin")["detail"]
    assert "cdigen kubelet is running (pod cdigen-system/cdigen-x7k2p): registered" in detail


def test_a_host_without_a_kubelet_cannot_be_a_node(node: KubeNode) -> None:
    (node.root / KUBELET).unlink()
    row = node.result("kubelet-running", "--for kubelet")
    assert not row["checked"]
    assert "there is no kubelet" in row["detail"]


def test_another_folder_than_the_kubelets_is_an_error_and_the_remedy_names_it(node: KubeNode) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet\n")
    (node.root / "data/kubelet/device-plugins").mkdir(parents=True)
    node.listen("kubelet.sock", "data/kubelet/device-plugins")
    row = node.wrong()["kubelet-directory"]
    assert "the kubelet's folder is /data/kubelet, and cdigen kubelet uses /var/lib/kubelet" in row["detail"]
    # The remedy writes into /etc: it is tried on the folder.
    script = node.told(row).partition(" && systemctl")[0].replace("/etc/systemd", f"{node.root}/etc/systemd")
    node.shell(script)
    made = (node.root / "etc/systemd/system/cdigen-kubelet.service.d/kubelet-dir.conf").read_text()
    assert made.splitlines()[1:] == [
        "ExecStart=",
        "ExecStart=/usr/bin/cdigen kubelet --standby --kubelet-dir /data/kubelet",
        "ReadWritePaths=/data",
    ]
    assert node.told(node.wrong()["kubelet-directory"]) == ""  # it is there, and not ours to replace
    node.say(registered("GPU-a", "GPU-b"), kubelet_dir="/data/kubelet")
    assert "kubelet-directory" not in node.wrong()


def test_a_kubelet_of_another_folder_has_its_plugins_in_the_usual_one(node: KubeNode) -> None:
    # Its --root-dir moves pod resources alone (kubernetes/kubernetes#120626).
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/var/lib/k0s/kubelet\n")
    wrong = node.wrong()
    assert list(wrong) == ["kubelet-directory"]
    row = wrong["kubelet-directory"]
    assert row["severity"] == "warning"
    assert "it does not know which containers have which devices; it wants --kubelet-dir" in row["detail"]
    assert "--kubelet-dir /var/lib/k0s/kubelet" in node.told(row)
    node.say(registered("GPU-a", "GPU-b"), kubelet_dir="/var/lib/k0s/kubelet")
    assert node.wrong() == {}


def test_a_folder_with_a_name_that_a_shell_would_take_apart_gets_no_command(node: KubeNode) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet '--root-dir=/data/$(id)'\n")
    row = node.wrong()["kubelet-directory"]
    assert (row["remedy"], node.told(row)) == ("", "")


def test_a_link_to_the_kubelets_folder_is_the_same_folder(node: KubeNode) -> None:
    node.link("srv", "/var/lib")
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/srv/kubelet\n")
    assert "kubelet-directory" not in node.wrong()


@pytest.mark.parametrize(
    ("config", "where"),
    [("/etc/kubernetes/kubelet.yaml", "--config"), ("/etc/kubernetes/kubelet.d/90-x.conf", "--config-dir")],
)
def test_a_setting_of_the_kubelets_own_file_counts(node: KubeNode, config: str, where: str) -> None:
    given = config if where == "--config" else "/etc/kubernetes/kubelet.d"
    node.put(KUBELET, f"[Service]\nExecStart=/usr/bin/kubelet {where} {given}\n")
    node.put(config.lstrip("/"), "topologyManagerPolicy: restricted\nfeatureGates: {DevicePlugins: false}\n")
    assert "feature gate DevicePlugins is off" in node.wrong()["kubelet-names"]["detail"]
    assert "TopologyAffinityError" in node.result("kubelet-topology", "--for kubelet")["detail"]


def test_a_flag_of_the_kubelets_wins_over_its_file(node: KubeNode) -> None:
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
def test_a_configuration_of_the_kubelets_that_is_none_ends_no_diagnosis(node: KubeNode, text: str) -> None:
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --config /etc/k.yaml\n")
    node.put("etc/k.yaml", text)
    assert node.wrong() == {}


def test_a_socket_that_is_not_there_is_the_cause_of_the_rest(node: KubeNode) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    node.say(registered("GPU-a", state="waiting", is_confirmed=False))
    rows = [row for row in node.ask("--for kubelet") if not row["ok"]]
    assert [row["check"] for row in rows] == ["kubelet-socket", "kubelet-registered"]
    assert "kubelet-socket" in rows[1]["because"]


def test_a_folder_of_sockets_that_is_not_there_is_an_error(node: KubeNode) -> None:
    (node.root / PLUGINS).rename(node.root / "elsewhere")
    assert "No such file" in node.wrong()["kubelet-socket"]["detail"]


@pytest.mark.parametrize("target", ["/etc/passwd", "/nowhere-at-all"])
def test_a_link_in_the_place_of_the_kubelets_socket_is_an_error(node: KubeNode, target: str) -> None:
    (node.root / PLUGINS / "kubelet.sock").unlink()
    node.link(f"{PLUGINS}/kubelet.sock", target)
    assert "is a link, where the kubelet has a socket" in node.wrong()["kubelet-socket"]["detail"]


def test_a_service_that_is_not_enabled_is_a_warning_and_its_remedy_enables_it(node: KubeNode) -> None:
    (node.root / "etc/systemd/system/multi-user.target.wants/cdigen-kubelet.service").unlink()
    row = node.wrong()["kubelet-unit"]
    assert (row["severity"], node.told(row)) == ("warning", "systemctl enable cdigen-kubelet.service")


def test_a_service_that_starts_after_the_kubelet_is_a_warning(node: KubeNode) -> None:
    text = (node.root / UNIT).read_text()
    node.put(UNIT, text.replace("Before=kubelet.service", "Before="))
    row = node.wrong()["kubelet-unit"]
    assert "not ordered before kubelet.service" in row["detail"]
    script = node.told(row).partition(" && systemctl")[0].replace("/etc/systemd", f"{node.root}/etc/systemd")
    node.shell(script)
    assert "kubelet-unit" not in node.wrong()


@pytest.mark.parametrize(
    ("unit", "folder"), [("k3s.service", "/var/lib/kubelet"), ("k0sworker.service", "/var/lib/k0s/kubelet")]
)
def test_the_kubelets_of_other_distributions_are_known_by_their_units(
    node: KubeNode, unit: str, folder: str
) -> None:
    (node.root / KUBELET).unlink()
    node.put(f"usr/lib/systemd/system/{unit}", "[Service]\nExecStart=/usr/local/bin/program worker\n")
    wrong = node.wrong()
    assert "kubelet-unit" not in wrong
    assert ("kubelet-directory" in wrong) == (folder != "/var/lib/kubelet")


def test_arguments_for_the_kubelet_of_k3s_count(node: KubeNode) -> None:
    (node.root / KUBELET).unlink()
    node.put("usr/lib/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n")
    node.put("etc/rancher/k3s/config.yaml", "kubelet-arg:\n  - root-dir=/data/kubelet\n")
    assert "folder is /data/kubelet" in node.wrong()["kubelet-directory"]["detail"]


def test_a_resource_that_another_plugin_has_is_an_error_with_that_plugin_as_its_cause(node: KubeNode) -> None:
    node.listen("nvidia-gpu.sock")
    node.say(registered("GPU-a", state="taken", reason="another device plugin has registered it"))
    rows = [row for row in node.ask("--for kubelet") if not row["ok"]]
    assert [row["check"] for row in rows] == ["kubelet-neighbour", "kubelet-registered"]
    assert "nvidia.com/gpu (nvidia-gpu.sock)" in rows[0]["detail"]


@pytest.mark.parametrize("name", ["nvidia-mig-1g.10gb.sock", "nvidia-gpu.shared.sock"])
def test_another_plugin_for_the_same_makers_devices_is_a_warning(node: KubeNode, name: str) -> None:
    node.listen(name)
    assert name in node.wrong()["kubelet-neighbour"]["detail"]


@pytest.mark.parametrize("name", ["amd.com_gpu", "gpu.intel.com-i915.sock", "kubevirt-kvm.sock"])
def test_a_plugin_for_other_devices_is_no_trouble(node: KubeNode, name: str) -> None:
    node.listen(name)
    row = node.result("kubelet-neighbour", "--for kubelet")
    assert row["ok"]
    assert name in row["detail"]


def test_a_dra_driver_for_the_same_makers_devices_is_a_warning(node: KubeNode) -> None:
    node.listen("gpu.nvidia.com-reg.sock", f"{FOLDER}/plugins_registry")
    assert "DRA (gpu.nvidia.com-reg.sock)" in node.wrong()["kubelet-neighbour"]["detail"]


def test_a_registration_that_fails_is_told_with_its_reason(node: KubeNode) -> None:
    node.say(registered("GPU-a", state="paused", reason="Register: version not supported"))
    assert (
        f"{GPU} is not registered with the kubelet: Register: version"
        in node.wrong()["kubelet-registered"]["detail"]
    )


def test_devices_of_the_host_that_are_not_offered_are_an_error(node: KubeNode) -> None:
    finding = Finding(severity="error", rule="x", path="", message="no spec has a name for it", hint="")
    node.say(registered(), problems=(finding,))
    row = node.wrong()["kubelet-devices"]
    assert row["severity"] == "error"
    assert "the driver has 2 devices, and the kubelet is offered none: no spec has a name" in row["detail"]


def test_the_last_known_state_is_a_warning_with_its_reason(node: KubeNode) -> None:
    node.say(registered("GPU-a", "GPU-b"), stale=("the daemon has ended",))
    row = node.wrong()["kubelet-devices"]
    assert row["severity"] == "warning"
    assert "the daemon has ended" in row["detail"]


def test_a_resource_that_no_plugin_serves_any_more_is_a_warning(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint(registered={GPU: ["GPU-a"], "nvidia.com/mig-1g.5gb": None}))
    assert "nvidia.com/mig-1g.5gb" in node.wrong()["kubelet-stale-resource"]["detail"]


def test_a_pod_with_a_device_that_is_gone_is_a_warning_as_long_as_the_pod_is_there(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint((POD, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a", "GPU-b"]}))
    assert node.wrong() == {}
    (node.root / FOLDER / "pods" / POD).mkdir(parents=True)
    assert f"{POD}, main: GPU-gone of {GPU}" in node.wrong()["kubelet-checkpoint"]["detail"]


def test_a_pod_whose_uid_is_a_path_is_not_looked_for(node: KubeNode) -> None:
    uid = "../" * 11 + "etc"
    node.put(CHECKPOINT, checkpoint((uid, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a"]}))
    assert node.wrong() == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"5",
        b'{"Data": 5}',
        b"9" * 10_000,
        b"x" * (10 << 20),
    ],
)
def test_a_record_that_is_none_is_a_warning_and_nothing_more(node: KubeNode, content: bytes) -> None:
    (node.root / CHECKPOINT).write_bytes(content)
    assert set(node.wrong()) == {"kubelet-checkpoint"}


@pytest.mark.parametrize("target", ["/etc/shadow", "kubelet_internal_checkpoint"])
def test_a_record_that_is_a_link_is_not_followed_out_of_the_host(node: KubeNode, target: str) -> None:
    (node.root / CHECKPOINT).unlink()
    node.link(CHECKPOINT, target)
    assert "root:" not in str(node.wrong())


@pytest.mark.parametrize("closed", [PLUGINS, CHECKPOINT])
def test_what_only_root_may_read_is_not_judged_for_others(node: KubeNode, closed: str) -> None:
    # Root without its privileges, for whom another user's folder is closed.
    os.chown(node.root / closed, 4201, 4201)
    (node.root / closed).chmod(0o600)
    limits = "-dac_override,-dac_read_search"
    node.tools.joinpath("less").write_text(f'#!/bin/sh\nexec setpriv --bounding-set={limits} "$@"\n')
    node.tools.joinpath("less").chmod(0o755)
    rows = json.loads(node.shell(f"less cdigen doctor --for kubelet --json --root {node.root}"))
    record = next(row for row in rows if row["check"] == "kubelet-checkpoint")
    assert record["detail"] == f"not checked: only root may read /{CHECKPOINT}"
    assert next(row for row in rows if row["check"] == "kubelet-socket")["checked"] is False


def test_a_refusal_of_a_moment_ago_is_told_with_its_reason(node: KubeNode) -> None:
    done = Allocation(at_s=time.time(), resource=GPU, ids=("GPU-a",), cause="taken", reason="pod b has it")
    node.say(registered("GPU-a", "GPU-b"), allocations=(done,))
    # With a folder there is no present.
    assert node.result("kubelet-refused", "--for kubelet")["ok"]
    found = {result.check: result for result in live(node)}["kubelet-refused"]
    assert found.severity == "warning"
    assert (
        f"1 containers were refused in the last 10 minutes; the last: {GPU}: pod b has it (taken)"
        in found.detail
    )


def live(node: KubeNode) -> list[CheckResult]:
    """Return what the status of NODE says of devices, as if it were this machine's."""
    status = json.loads((node.root / "run/cdigen-kubelet/status.json").read_text())
    context = doctor_context(for_kubelet=True, kubelet=lambda: (status, ""))
    return [result for check in kubelet_devices.CHECKS for result in check(context)]


def test_a_registration_under_way_has_half_a_minute(node: KubeNode) -> None:
    for age_s, is_well in ((5, True), (60, False)):
        node.say(registered("GPU-a", state="unproven", since_s=time.time() - age_s))
        found = {result.check: result for result in live(node)}["kubelet-registered"]
        assert found.ok == is_well


def test_devices_that_somebody_has_ignored_are_not_missed(node: KubeNode) -> None:
    node.put("etc/cdigen/config.yaml", "kubelet: {ignore: ['0', '1']}\n")
    node.say()
    row = node.result("kubelet-devices", "--for kubelet")
    assert row["ok"], row


def test_a_folder_with_another_label_is_a_warning_where_selinux_enforces(node: KubeNode) -> None:
    node.put("sys/fs/selinux/enforce", "1")
    try:
        os.setxattr(node.root / PLUGINS, "security.selinux", b"u:object_r:var_lib_t:s0\0")
    except OSError as error:
        cannot_run(f"labels cannot be set here: {error.strerror}")
    row = node.wrong()["kubelet-labels"]
    assert "is labelled var_lib_t" in row["detail"]
    assert node.told(row) == f"chcon -t container_file_t /{PLUGINS}"


def test_a_handler_of_nvidias_is_a_warning_where_specs_do_not_say_void(node: KubeNode) -> None:
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
    assert "Take runtimeClassName out" in node.wrong()["kubelet-runtime-class"]["detail"]


def test_docker_as_the_kubelets_runtime_is_a_warning(node: KubeNode) -> None:
    line = "--container-runtime-endpoint=unix:///run/cri-dockerd.sock"
    node.put(KUBELET, f"[Service]\nExecStart=/usr/bin/kubelet {line}\n")
    assert "cri-dockerd drop the CDI names" in node.wrong()["kubelet-runtime"]["detail"]


def test_cdi_that_is_off_in_the_kubelets_runtime_is_an_error(node: KubeNode) -> None:
    node.put(
        "etc/containerd/config.toml",
        'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n',
    )
    row = node.wrong()["containerd-cdi"]
    assert row["severity"] == "error"
    assert node.result("containerd-cdi")["severity"] == "warning"


def test_the_bundle_says_how_the_kubelet_is_served_and_names_no_pod(node: KubeNode) -> None:
    (node.root / FOLDER / "pods" / POD).mkdir(parents=True)
    node.put(CHECKPOINT, checkpoint((POD, GPU, ["GPU-gone"]), registered={GPU: ["GPU-a"]}))
    text = "".join(packed(node, "--for kubelet", code=1).values())
    assert '"kubelet-checkpoint"' in text
    assert POD not in text
    assert '"resource": "nvidia.com/gpu"' in text
    assert '"root_dir": "/var/lib/kubelet"' in text
