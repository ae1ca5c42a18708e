"""Requests that would take over a cluster: `ATTACKS`, and the pod and the node that they attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from support.containers.busybox_image import IMAGE

if TYPE_CHECKING:
    from support.cluster.node import Node

NAMESPACE, POD, OTHER_NODE = "kube-system", "victim", "control-plane"
POD_PATH, NODE_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/{POD}", f"/api/v1/nodes/{OTHER_NODE}"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
TAINT = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}
OWN_IMAGE = {"containers": [{"name": "main", "image": "registry.example/attacker"}]}
ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}


class Attack(NamedTuple):
    """A request that the API server must refuse with 403."""

    aim: str
    method: str
    path: str
    body: object = None
    kind: str = "application/json"


MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
ATTACKS = (
    Attack("replace an image", "PATCH", POD_PATH, {"spec": OWN_IMAGE}, STRATEGIC),
    Attack("annotate a pod directly", "PATCH", POD_PATH, {"metadata": {"annotations": {"a": "b"}}}, MERGE),
    Attack("delete a pod", "DELETE", POD_PATH),
    Attack("evict a pod", "POST", f"{POD_PATH}/eviction", {"metadata": {"name": POD}}),
    Attack("run a program in a pod", "POST", f"{POD_PATH}/exec?command=id&stdout=true"),
    Attack(
        "create a pod",
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/pods",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"}, "spec": OWN_IMAGE},
    ),
    Attack("remove a taint", "PATCH", NODE_PATH, {"spec": {"taints": None}}, MERGE),
    Attack("label a node directly", "PATCH", NODE_PATH, {"metadata": {"labels": {"a": "b"}}}, MERGE),
    Attack("delete a node", "DELETE", NODE_PATH),
    Attack("read secrets", "GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    Attack("read the ledgers' secrets", "GET", "/api/v1/namespaces/cdigen/secrets"),
    Attack(
        "write a ConfigMap of another namespace",
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}},
    ),
    Attack(
        "create a token",
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}},
    ),
    Attack(
        "become an administrator",
        "POST",
        f"{ROLES}/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "own"},
            "roleRef": ADMIN,
            "subjects": [{"kind": "Group", "name": "system:serviceaccounts", "apiGroup": ADMIN["apiGroup"]}],
        },
    ),
    Attack("widen its role", "PATCH", f"{ROLES}/clusterroles/cdigen-node", {"rules": []}, MERGE),
)


def create_victims(node: Node) -> None:
    """Create the node OTHER_NODE with a taint, and the pod POD on this node."""
    node.add_bare_node(OTHER_NODE, {"cpu": "1", "memory": "1Gi", "pods": "10"})
    node.api.patch(NODE_PATH, {"spec": {"taints": [TAINT]}})
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}
    spec = {"containers": [container], "automountServiceAccountToken": False, "nodeName": OTHER_NODE}
    metadata = {"name": POD, "namespace": NAMESPACE}
    node.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
