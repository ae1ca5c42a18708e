"""kubectl renders the manifests of packaging/kubernetes, and a real API server validates them."""

from __future__ import annotations

import fcntl
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cluster.fleet_manifests import kustomized
from support.cluster.node import Node, running_node
from support.containers.containerd_host import RELEASES, eventually

from cdigen import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.command.fixtures import Run

pytestmark = pytest.mark.e2e

FOLDER = Path(__file__).resolve().parents[2] / "packaging/kubernetes"
OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())
ALL = ["base", *(f"overlays/{name}" for name in OVERLAYS)]
OLD = "old-kubernetes"


def combined(folder: Path, *components: str, of: str = "base") -> Path:
    """Write an overlay into FOLDER that adds COMPONENTS to the manifests `of`; return FOLDER."""
    folder.mkdir()
    path = os.path.relpath(FOLDER, folder.resolve())
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{path}/{of}"],
        "components": [f"{path}/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


def pods(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row["spec"]["template"]["spec"] for row in rows if row["kind"] in {"DaemonSet", "Deployment"}]


def containers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for pod in pods(rows) for each in (*pod.get("initContainers", ()), *pod["containers"])]


def daemonset(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the containers of cdigen's DaemonSet, by name."""
    (row,) = (row for row in rows if row["kind"] == "DaemonSet")
    return {each["name"]: each for each in row["spec"]["template"]["spec"]["containers"]}


@pytest.mark.parametrize("name", ALL)
def test_pods_have_the_image_of_this_version_and_only_the_expected_privileges(
    kubectl: Path, name: str
) -> None:
    rows = kustomized(kubectl, FOLDER / name)
    for container in containers(rows):
        assert container["image"] == f"localhost/cdigen:{__version__}"
        # A runtime would pull an image of localhost from the node itself.
        assert container["imagePullPolicy"] == "Never"
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert container["resources"]["limits"]["memory"]
        if name == "overlays/privileged" and container["name"] == "daemon":
            assert rights["privileged"]
            continue
        assert not rights.get("privileged")
        assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
    for pod in pods(rows):
        assert not pod.get("hostNetwork")
        assert bool(pod.get("hostPID")) == (name == "overlays/removal")
        own = {each["name"] for each in pod.get("volumes", ())}
        named = [mount for each in pod["containers"] for mount in each.get("volumeMounts", ())]
        assert {mount["name"] for mount in named} <= own


@pytest.mark.parametrize("of", ["base", "overlays/removal", "overlays/extender"])
def test_with_the_component_registry_all_images_have_the_pull_policy_if_not_present(
    kubectl: Path, tmp_path: Path, of: str
) -> None:
    components = ("metrics", "registry") if of == "base" else ("registry",)
    folder = combined(tmp_path / "registry", *components, of=of)
    with (folder / "kustomization.yaml").open("a") as file:
        file.write("images: [{name: localhost/cdigen, newName: registry.example.com/cdigen, newTag: '1'}]\n")
    rows = kustomized(kubectl, folder)
    found = {(each["image"], each["imagePullPolicy"]) for each in containers(rows)}
    assert found == {("registry.example.com/cdigen:1", "IfNotPresent")}
    assert not [row for row in rows if row["metadata"]["name"] == "cdigen-pull-policy"]


@pytest.mark.parametrize("name", ALL)
def test_mount_paths_and_variables_of_a_container_are_unique(kubectl: Path, name: str) -> None:
    for container in containers(kustomized(kubectl, FOLDER / name)):
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        assert len(set(paths)) == len(paths)
        variables = [each["name"] for each in container.get("env", ())]
        assert len(set(variables)) == len(variables)


def test_components_can_be_combined_in_alphabetical_and_reverse_order(kubectl: Path, tmp_path: Path) -> None:
    names = [name for name in COMPONENTS if name not in {"k0s", "no-nri", "shared-memory"}]
    for order in (names, names[::-1]):
        found = daemonset(kustomized(kubectl, combined(tmp_path / f"{len(order)}{order[0]}", *order)))
        assert set(found) == {"daemon", "kubelet", "nri", "metrics"}
        assert [name for name, each in found.items() if each["securityContext"].get("privileged")] == [
            "daemon"
        ]
        assert "/dev" in {mount["mountPath"] for mount in found["daemon"]["volumeMounts"]}
        assert not any(
            mount["mountPath"] == "/etc/cdi" for each in found.values() for mount in each["volumeMounts"]
        )


def test_the_component_no_nri_can_be_combined_with_other_components(kubectl: Path, tmp_path: Path) -> None:
    folder = combined(tmp_path / "none", "read-only-etc", "privileged", "no-nri")
    assert set(daemonset(kustomized(kubectl, folder))) == {"daemon", "kubelet"}


def test_only_the_device_plugin_may_write_the_label_file(kubectl: Path) -> None:
    rows = kustomized(kubectl, FOLDER / "overlays/labels")
    (config,) = (row["data"]["config.yaml"] for row in rows if row["kind"] == "ConfigMap")
    folder = os.path.dirname(yaml.safe_load(config)["kubelet"]["labels"])
    found = {
        name: [mount for mount in each["volumeMounts"] if mount["mountPath"] == folder]
        for name, each in daemonset(rows).items()
    }
    assert found == {"daemon": [], "nri": [], "kubelet": [{"name": "features", "mountPath": folder}]}
    (pod,) = pods(rows)
    (volume,) = (each for each in pod["volumes"] if each["name"] == "features")
    assert volume["hostPath"] == {"path": folder, "type": "DirectoryOrCreate"}


@pytest.mark.parametrize(
    ("overlay", "folder"),
    [("k0s", "/var/lib/k0s/kubelet"), ("microk8s", "/var/snap/microk8s/common/var/lib/kubelet")],
)
def test_pod_resources_are_in_the_kubelets_folder_and_device_plugins_in_the_default_folder(
    kubectl: Path, overlay: str, folder: str
) -> None:
    (pod,) = pods(kustomized(kubectl, FOLDER / "overlays" / overlay))
    paths = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    assert paths["pod-resources"] == f"{folder}/pod-resources"
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"


def test_only_the_container_that_uses_the_api_server_has_the_token(kubectl: Path) -> None:
    for name in ALL:
        rows = [row for row in kustomized(kubectl, FOLDER / name) if row["kind"] == "DaemonSet"]
        (pod,) = pods(rows)
        assert pod["automountServiceAccountToken"] is False
        with_token = [
            each["name"]
            for each in pod["containers"]
            if "/etc/cdigen-api" in {mount["mountPath"] for mount in each.get("volumeMounts", ())}
        ]
        assert with_token == (["kubelet"] if name == "overlays/extender" else [])


def test_the_extender_may_not_change_the_daemons_configuration(kubectl: Path) -> None:
    rows = kustomized(kubectl, FOLDER / "overlays/extender")
    namespaces = {row["metadata"]["namespace"] for row in rows if row["kind"] == "ConfigMap"}
    writes = {
        row["metadata"]["namespace"]
        for row in rows
        if row["kind"] == "Role" and "update" in str(row["rules"])
    }
    assert (namespaces, writes) == ({"cdigen-system"}, {"cdigen"})


@pytest.mark.parametrize("name", ["selinux", "super-t"])
@pytest.mark.parametrize("of", ["base", "overlays/removal"])
def test_the_daemon_and_the_removal_have_the_selinux_type_of_the_component(
    kubectl: Path, tmp_path: Path, name: str, of: str
) -> None:
    (pod,) = pods(kustomized(kubectl, combined(tmp_path / "typed", name, of=of)))
    types = {"selinux": "spc_t", "super-t": "super_t"}
    assert pod["securityContext"]["seLinuxOptions"]["type"] == types[name]


def test_the_component_quota_adds_gkes_resource_quota_to_the_removal(kubectl: Path, tmp_path: Path) -> None:
    rows = kustomized(kubectl, combined(tmp_path / "quota", "quota", of="overlays/removal"))
    (quota,) = (row for row in rows if row["kind"] == "ResourceQuota")
    assert quota["metadata"]["namespace"] == "cdigen-system"


# Validation by a real API server.


@pytest.fixture(scope="module")
def node(cache: Path, kubernetes_tree: Path, kubectl: Path) -> Iterator[Node]:
    """Return a Kubernetes 1.20 cluster with the namespaces that a dry run needs."""
    assert kubernetes_tree.is_dir()
    with running_node(cache, RELEASES["forky"]) as node:
        for row in kustomized(kubectl, FOLDER / "overlays/extender"):
            if row["kind"] == "Namespace":
                node.api.create(row)
        yield node


@pytest.mark.parametrize("name", [name for name in ALL if name != f"overlays/{OLD}"])
def test_an_api_server_accepts_every_field(node: Node, kubectl: Path, tmp_path: Path, name: str) -> None:
    components = () if name == "overlays/removal" else (OLD,)
    folder = combined(tmp_path / "old", *components, of=name)
    rows = kustomized(kubectl, folder)
    output = node.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(rows))
    assert len([line for line in output.splitlines() if line.endswith("(server dry run)")]) == len(rows)


def test_an_old_api_server_refuses_the_base_and_names_the_unknown_field(node: Node, kubectl: Path) -> None:
    text = yaml.safe_dump_all(kustomized(kubectl, FOLDER / "base"))
    with pytest.raises(AssertionError, match='unknown field "maxSurge"'):
        node.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)


def test_the_documented_commands_remove_the_changes_of_shared_memory_from_a_node(
    node: Node, kubectl: Path
) -> None:
    name = node.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    counts = {"aliyun.com/gpu-count": "2"}
    node.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"cdigen.dev/gpu-mem": "{}"}}})
    node.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": counts, "allocatable": counts}})
    page = (FOLDER.parents[1] / "docs/how-to/kubernetes/upgrade-and-remove.md").read_text()
    (block,) = (text for text in page.split("```") if "cdigen.dev/gpu-mem-" in text)
    shell = f'kubectl() {{ "{kubectl}" --kubeconfig="{node.folder}/kubeconfig" "$@"; }}\n{block}'
    subprocess.run(node.enter("bash", "-euc", shell), check=True, stdout=subprocess.PIPE)
    found = node.api.get(f"/api/v1/nodes/{name}")
    assert "cdigen.dev/gpu-mem" not in found["metadata"].get("annotations", {})
    assert "aliyun.com/gpu-count" not in found["status"]["capacity"]


# The removal pod.


@pytest.fixture
def removed(node: Node, host: Path, cdigen: Run, image_archive: Path) -> Iterator[Path]:
    """Return the folder of a host with a spec and other files of cdigen. The removal pod mounts it."""
    for name in ("etc/cdi", "run/cdigen", "var/lib/kubelet/device-plugins"):
        (host / name).mkdir(parents=True)
    (host / "run/cdigen/lock").touch()
    (host / "etc/hosts").write_text("127.0.0.1 localhost\n")
    done = cdigen("generate", "--write", "--root", host, "--config", FOLDER / "base/config.yaml")
    assert done.code == 0, done.err
    # New mounts reach pods only if mounts are shared. On a host, systemd makes all mounts shared.
    subprocess.run(node.enter("mount", "--make-rshared", "/"), check=True)
    with (host.parent / "image.tar").open("wb") as file:
        subprocess.run(["zstd", "-dc", image_archive], check=True, stdout=file)
    node.containerd.ctr("images", "import", "--local", "--snapshotter", "native", host.parent / "image.tar")
    yield host
    node.kubectl("delete", "namespace", "cdigen-system", "--wait=false")


def test_the_removal_pod_removes_all_files_of_cdigen_from_its_node_and_is_then_ready(
    node: Node, kubectl: Path, removed: Path
) -> None:
    rows = kustomized(kubectl, FOLDER / "overlays/removal")
    for pod in pods(rows):
        for volume in pod["volumes"]:
            if "hostPath" in volume:
                volume["hostPath"]["path"] = f"{removed}{volume['hostPath']['path']}"
    with (removed / "run/cdigen/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rows))
        eventually(
            lambda: "waiting: cdigen still runs on this node (/run/cdigen): " in removal_log(node) or None,
            "the removal waits",
            details=lambda: (removal_log(node), node.pods("cdigen-system"), node.kubelet.log),
        )  # fmt: skip
        assert os.listdir(removed / "run/cdi") == ["nvidia.com-gpu.json"]
    node.kubectl("-n", "cdigen-system", "rollout", "status", "daemonset/cdigen-removal", "--timeout=30s")
    assert removal_log(node).splitlines()[-1] == "done: nothing of cdigen is left on this node"
    left = [path for path in removed.rglob("*cdi*") if "nvidia-cdi" not in path.name]
    assert left == [], removal_log(node)
    assert (removed / "etc/hosts").exists()


def removal_log(node: Node) -> str:
    """Return the log of the removal's container."""
    name = next(iter(node.pods("cdigen-system")), "")
    with suppress(AssertionError):
        return node.kubectl("-n", "cdigen-system", "logs", name, "--container", "remove")
    return ""
