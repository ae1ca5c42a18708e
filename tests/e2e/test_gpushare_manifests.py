"""The manifests of examples/kubernetes/gpushare work on a real Kubernetes cluster with RBAC.

The extender runs with the settings of its Deployment, but as a process of the node, because the image is not
available here. `cdigen kubelet` uses the kubeconfig that the commands of share-gpu-memory.md create.
"""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cluster.api import Api, ApiError
from support.cluster.attacks import (
    ATTACKS,
    MERGE,
    NODE_PATH,
    OWN_IMAGE,
    POD,
    POD_PATH,
    STRATEGIC,
    Attack,
    create_victims,
)
from support.cluster.gpushare_cluster import (
    FOLDER,
    LEDGERS,
    NODE_TOKEN,
    OF_DAEMONSET,
    RESOURCES,
    ROLES,
    adapted_configuration,
    begin_extender,
    create,
    delete,
    inspect,
    kubeconfig_of_the_kubelet,
    logs,
    remove_ledger,
    running_gpushare,
    set_gpus,
    token_of,
    user_of,
    wait_for_log,
    wait_for_message,
    without_verbs,
)
from support.cluster.gpushare_plugin import has_annotation, is_annotated, restart_plugin, running_plugin
from support.cluster.node import NODE, Node
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import eventually

from cdigen.gpushare.names import GPUS, INDEX, LEDGER_NAMESPACE, OF_GPU

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

# The number of large pods of one tenant; each pod has 100,000 variables (1.8 MB).
LARGE_PODS = int(os.environ.get("CDIGEN_SOAK_LARGE_PODS", "6"))
EXTENDER, NODE_SIDE = (f"{ROLES}/clusterroles/{name}" for name in ("cdigen-extender", "cdigen-node"))
OF_LEDGERS = f"{ROLES}/namespaces/{LEDGERS}/roles/cdigen-ledgers"
# In messages of the API server, the kubelet's account contains the name of the node.
KUBELET = NODE
# ServiceAccount in the manifests -> its namespace.
NAMESPACES = {"cdigen": OF_DAEMONSET, "cdigen-extender": LEDGERS, "cdigen-node": LEDGERS}
OF_HEALTH = f"{ROLES}/namespaces/kube-system/roles/cdigen-unhealthy"


@pytest.fixture(scope="module")
def cluster(cache: Path, kubernetes_tree: Path) -> Iterator[Node]:
    assert kubernetes_tree.is_dir()
    with running_gpushare(cache) as node:
        yield node


def test_the_pods_of_the_extenders_deployment_are_created_and_bound(cluster: Node) -> None:
    def placed() -> bool | None:
        rows = cluster.pods(LEDGERS).values()
        return [bool(row["spec"].get("nodeName")) for row in rows] == [True, True] or None

    eventually(placed, "both replicas have a node", details=lambda: logs(cluster))
    pod = next(iter(cluster.pods(LEDGERS).values()))["spec"]
    assert re.fullmatch(r"localhost/cdigen:[0-9.]+", pod["containers"][0]["image"])
    assert pod["priority"] > 0
    # The image is not available here.
    cluster.kubectl("-n", LEDGERS, "scale", "deployment/cdigen-extender", "--replicas=0")
    budget = yaml.safe_load((FOLDER / "pdb.yaml").read_text())
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(budget | {"apiVersion": "policy/v1beta1"}))


def test_the_pods_of_gpushares_demonstration_are_bound_and_a_user_can_inspect_them(cluster: Node) -> None:
    text = (FOLDER / "binpack.yaml").read_text().replace("docker.io/library/debian:stable", IMAGE)
    cluster.kubectl("apply", "-f", "-", stdin=text)

    def bound() -> bool | None:
        rows = [
            row for name, row in cluster.pods("default").items() if name.startswith(("binpack", "gpu-job"))
        ]
        return (len(rows) == 4 and all(row["spec"].get("nodeName") == "guide" for row in rows)) or None

    eventually(bound, "the demonstration is bound", details=lambda: logs(cluster))
    metadata = cluster.pods("default")["binpack-1-0"]["metadata"]
    assert metadata["annotations"][LEDGER_NAMESPACE] == LEDGERS
    config = user_of(cluster, "anna")
    refused = inspect(cluster, config)
    assert refused.returncode == 1
    assert 'User "system:serviceaccount:default:anna" cannot list resource "pods"' in refused.stderr
    assert "grant the user the verbs get and list for nodes" in refused.stderr
    rules = ("--verb=get,list", "--resource=nodes,pods")
    cluster.kubectl("create", "clusterrole", "inspect", *rules)
    cluster.kubectl(
        "create", "clusterrolebinding", "inspect", "--clusterrole=inspect", "--serviceaccount=default:anna"
    )
    # Binpack uses the smaller GPU first, while this GPU has enough free units.
    rows = inspect(cluster, config).stdout.splitlines()
    assert rows[0] == "NAME   IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)"
    assert rows[1].split()[:2] == ["guide", "10.99.0.7"]
    assert rows[-2:] == ["Allocated/Total GPU Memory In Cluster:", "11/23 (47%)"]
    details = inspect(cluster, config, "-d", "guide").stdout
    for name in ("binpack-1-0", "binpack-1-1", "binpack-1-2"):
        assert re.search(rf"^{name}  +default  +(3  +0|0  +3)$", details, re.MULTILINE), details
    cluster.kubectl("cordon", "guide")
    assert inspect(cluster, config).stdout.endswith("0/0 (0%)\nCordoned, not in the total: guide 11/23\n")
    cluster.kubectl("uncordon", "guide")
    cluster.kubectl("delete", "statefulset/binpack-1", "job/gpu-job", "--wait=false")
    eventually(lambda: gone(cluster, "binpack", "gpu-job"), "the pods are deleted", details=str)


def test_two_gpus_have_memory_for_three_of_the_four_gpushare_samples(cluster: Node) -> None:
    set_gpus(cluster, 16276, 16276)
    text = (FOLDER / "binpack-mib.yaml").read_text().replace("docker.io/library/debian:stable", IMAGE)
    cluster.kubectl("apply", "-f", "-", stdin=text)

    def placed() -> bool | None:
        rows = [row for name, row in cluster.pods("default").items() if name.startswith("binpack-")]
        return sorted(bool(row["spec"].get("nodeName")) for row in rows) == [False, True, True, True] or None

    eventually(placed, "three pods are bound", details=lambda: logs(cluster))
    shown = inspect(cluster, cluster.folder / "anna.conf").stdout
    assert "GPU Memory(MiB)" in shown
    assert re.search(r"^(24414|32552)/32552 ", shown, re.MULTILINE)
    names = [f"deployment/binpack-{number}" for number in range(1, 5)]
    cluster.kubectl("delete", *names, "--wait=false")
    eventually(lambda: gone(cluster, "binpack"), "the pods are deleted", details=str)
    set_gpus(cluster, 15, 8)


def gone(node: Node, *prefixes: str) -> bool | None:
    left = [name for name in node.pods("default") if name.startswith(prefixes)]
    for name in left:
        with suppress(ApiError):  # the controller deleted the pod first
            delete(node, name)
    return not left or None


def test_the_extender_logs_that_the_api_server_forbids_a_list_or_a_watch(cluster: Node) -> None:
    user = 'User \\"system:serviceaccount:cdigen:cdigen-extender\\" cannot'
    for verb in ("list", "watch"):
        cluster.daemons["extender"].stop(signal.SIGKILL)  # after SIGTERM the extender would run for 3 s
        cluster.daemons["extender"].log_file.write_text("")
        with (
            without_verbs(cluster, EXTENDER, "pods", verb),
            without_verbs(cluster, EXTENDER, "nodes", verb),
            without_verbs(cluster, OF_HEALTH, "configmaps", verb),
        ):
            cluster.daemons["extender"].start()
            for resource in ("pods", "nodes", "configmaps"):
                wait_for_log(cluster, "extender", f'{user} {verb} resource \\"{resource}\\"')
    cluster.daemons["extender"].stop(signal.SIGKILL)
    begin_extender(cluster)


def test_an_extender_that_lacks_a_permission_binds_no_pod_and_an_event_has_the_reason(
    cluster: Node,
) -> None:
    remove_ledger(cluster, "guide")
    cases = (
        (EXTENDER, "pods", "get"),
        (EXTENDER, "pods/binding", "create"),
        (OF_LEDGERS, "configmaps", "get"),
        (OF_LEDGERS, "configmaps", "update"),
    )
    remove_ledger_later = (OF_LEDGERS, "configmaps", "create")
    create(cluster, "first", 1, nodeSelector={})
    eventually(
        lambda: bool(cluster.pods("default")["first"]["spec"].get("nodeName")) or None,
        "the pod is bound with all rights", details=lambda: logs(cluster),
    )  # fmt: skip
    for number, (role, resource, verb) in enumerate((*cases, remove_ledger_later)):
        name = f"less-{number}"
        if (role, resource, verb) == remove_ledger_later:
            remove_ledger(cluster, "guide")
        with without_verbs(cluster, role, resource, verb):
            create(cluster, name, 1)
            text = wait_for_message(cluster, name, f'cannot {verb} resource "{resource}"')
            assert "system:serviceaccount:cdigen:cdigen-extender" in text
            delete(cluster, name)
    delete(cluster, "first")


@pytest.fixture(scope="module")
def victims(cluster: Node) -> Node:
    """Return the cluster with the pod and the node that the attacks try to change."""
    create_victims(cluster)
    return cluster


def sent_by(node: Node, account: str, attack: Attack) -> Any:
    """Send ATTACK with the token of ACCOUNT; return the response, or raise ApiError."""
    token = NODE_TOKEN if account == KUBELET else token_of(node, account, NAMESPACES[account])
    with closing(Api(node.holder, token)) as api:
        return api.call(attack.method, attack.path, attack.body, kind=attack.kind)


@pytest.mark.parametrize("account", [*NAMESPACES, KUBELET])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.aim)
def test_no_account_may_take_over_the_cluster(victims: Node, account: str, attack: Attack) -> None:
    with pytest.raises(ApiError, match=rf'^403: .*{account}["\s]') as refused:
        sent_by(victims, account, attack)
    assert refused.value.status == 403


@pytest.mark.parametrize("account", ["cdigen", "cdigen-node", KUBELET])
def test_no_account_of_a_node_binds_pods(victims: Node, account: str) -> None:
    binding = {"metadata": {"name": POD}, "target": {"kind": "Node", "name": NODE}}
    with pytest.raises(ApiError, match=r"^403: "):
        sent_by(victims, account, Attack("bind", "POST", f"{POD_PATH}/binding", binding))


@pytest.mark.parametrize("path", [POD_PATH, NODE_PATH])
@pytest.mark.parametrize("account", ["cdigen-extender", KUBELET])
def test_the_extender_and_a_kubelet_cannot_patch_the_status_of_another_node_or_of_a_system_pod(
    victims: Node, account: str, path: str
) -> None:
    change = {"metadata": {"annotations": {"a": "b"}}}
    with pytest.raises(ApiError, match=r"^403: "):
        sent_by(victims, account, Attack("", "PATCH", f"{path}/status", change, MERGE))


def test_a_status_patch_by_the_account_cdigen_node_changes_metadata_and_status_but_no_spec(
    victims: Node,
) -> None:
    before = [victims.api.get(path)["spec"] for path in (POD_PATH, NODE_PATH)]
    change = {"metadata": {"annotations": {"a": "b"}, "labels": {"a": "b"}}, "status": {"phase": "Failed"}}
    pod = sent_by(
        victims,
        "cdigen-node",
        Attack("", "PATCH", f"{POD_PATH}/status", change | {"spec": OWN_IMAGE}, STRATEGIC),
    )
    spec = {"taints": None, "unschedulable": True}
    node = sent_by(
        victims, "cdigen-node", Attack("", "PATCH", f"{NODE_PATH}/status", change | {"spec": spec}, MERGE)
    )
    assert [pod["spec"], node["spec"]] == before
    for found in (pod, node):
        assert (found["metadata"]["annotations"]["a"], found["metadata"]["labels"]["a"]) == ("b", "b")
    assert pod["status"]["phase"] == "Failed"


# The device plugin.


@pytest.fixture(scope="module")
def plugin(cluster: Node, kubectl: Path) -> Iterator[Node]:
    with running_plugin(cluster, kubectl) as node:
        yield node


def test_a_plugin_with_its_own_token_annotates_the_allocation(plugin: Node) -> None:
    create(plugin, "unplanned", 2, nodeName=NODE)
    found = is_annotated(plugin, "unplanned")
    size = {"0": "4", "1": "2"}[found[INDEX]]
    assert found[OF_GPU] == size
    delete(plugin, "unplanned")


def test_a_plugin_with_the_kubelets_credentials_annotates_the_allocation(plugin: Node) -> None:
    program = plugin.daemons["plugin"]
    flags = list(program.flags)
    position = flags.index("--kubeconfig") + 1
    program.stop()
    remove_ledger(plugin, NODE)
    plugin.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {GPUS: "old"}}})
    program.flags = [*flags[:position], str(kubeconfig_of_the_kubelet(plugin)), *flags[position + 1 :]]
    restart_plugin(plugin)
    try:
        for name in ("by-kubelet-1", "by-kubelet-2"):
            create(plugin, name, 2, nodeName=NODE)
            is_annotated(plugin, name)
        eventually(lambda: has_annotation(plugin), "the node is annotated", details=lambda: program.log)
        # This shows that the plugin created a ledger, because remove_ledger fails if there is no ledger.
        remove_ledger(plugin, NODE)
        for name in ("by-kubelet-1", "by-kubelet-2"):
            delete(plugin, name)
    finally:
        program.stop()
        program.flags = flags
        restart_plugin(plugin)


def test_a_plugin_that_lacks_a_permission_refuses_a_pod_and_the_pods_event_has_the_reason(
    plugin: Node,
) -> None:
    account = "system:serviceaccount:cdigen:cdigen-node"
    cases = (
        (NODE_SIDE, "pods", "list"),
        (NODE_SIDE, "pods/status", "patch"),
        (OF_LEDGERS, "configmaps", "update"),
        (OF_LEDGERS, "configmaps", "get"),
        (OF_LEDGERS, "configmaps", "create"),
    )
    for number, (role, resource, verb) in enumerate(cases):
        name = f"refused-{number}"
        if verb == "create":
            remove_ledger(plugin, NODE)
        with without_verbs(plugin, role, resource, verb):
            create(plugin, name, 1, nodeName=NODE)
            text = wait_for_message(plugin, name, f'cannot {verb} resource "{resource}"')
            assert account in text
        delete(plugin, name)


@pytest.mark.parametrize(("resource", "verb"), [("nodes", "get"), ("nodes/status", "patch")])
def test_the_plugin_logs_that_a_node_update_is_forbidden(plugin: Node, resource: str, verb: str) -> None:
    program = plugin.daemons["plugin"]
    program.stop()
    program.log_file.write_text("")
    # The plugin writes a value only if it differs from that of the node, so the node gets wrong values.
    plugin.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {GPUS: "old"}}})
    wrong = {RESOURCES.count: "99"}
    plugin.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": wrong, "allocatable": wrong}})
    words = f'cannot {verb} resource \\"{resource}\\"'
    with without_verbs(plugin, NODE_SIDE, resource, verb):
        program.start()
        wait_for_log(plugin, "plugin", words)


def test_large_pods_of_a_tenant_stop_neither_the_extender_nor_the_plugin(plugin: Node) -> None:
    names = [f"large-{number}" for number in range(LARGE_PODS)]
    variables = [{"name": f"A{number}"} for number in range(100_000)]
    for name in names:
        # The image is missing, so these pods stay pending. The device plugin also reads the pods on its node.
        container = {"name": "main", "image": "registry.example/none", "imagePullPolicy": "Never"}
        target = {"nodeName": NODE} if name != names[-1] else {"schedulerName": "none"}
        spec = {
            "containers": [container | {"env": variables}],
            "automountServiceAccountToken": False,
            **target,
        }
        metadata = {"name": name, "namespace": "default"}
        plugin.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    programs = [plugin.daemons[name] for name in ("extender", "plugin")]
    for program in programs:
        program.stop()
    begin_extender(plugin)
    restart_plugin(plugin)
    create(plugin, "small", 1, nodeName=NODE)
    is_annotated(plugin, "small")
    delete(plugin, "small")
    create(plugin, "placed", 1)
    eventually(
        lambda: plugin.pods("default")["placed"]["spec"].get("nodeName"), "a pod is placed",
        details=lambda: logs(plugin),
    )  # fmt: skip
    for name in ("placed", *names):
        delete(plugin, name)
    extender, node = (program.peak_kib >> 10 for program in programs)
    print(f"{len(names)} pods: {extender} MiB of the extender, {node} MiB of the node")
    # The limits are 256 MiB for the extender's container and 512 MiB for the node's service.
    assert extender < 128
    assert node < 192


def test_the_scheduler_accepts_gpushares_policy_file(cluster: Node) -> None:
    """This test runs last because it replaces the scheduler."""
    cluster.daemons["scheduler"].stop()
    policy = cluster.folder / "policy.json"
    policy.write_text(adapted_configuration(cluster, (FOLDER / "scheduler-policy.json").read_text()))
    config = f"{cluster.folder}/kubeconfig"
    cluster.start(
        "scheduler", "kube-scheduler", kubeconfig=config, leader_elect="false", policy_config_file=str(policy)
    )
    create(cluster, "by-policy", 9)
    eventually(
        lambda: cluster.pods("default")["by-policy"]["spec"].get("nodeName") == "guide" or None,
        "the pod is bound", details=lambda: logs(cluster),
    )  # fmt: skip
