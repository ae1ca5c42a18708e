"""`cdigen kubelet` on the node of a gpushare cluster, with the kubeconfig of share-gpu-memory.md."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.cluster.api import ApiError
from support.cluster.gpu_memory_node import make_gpus, start_cdigen
from support.cluster.gpu_node import Program
from support.cluster.gpushare_cluster import RESOURCES, create, delete, kubeconfig_of_the_page, logs
from support.cluster.node import NODE, Node
from support.containers.containerd_host import eventually

from cdigen.gpushare.names import ASSIGNED, GPUS

if TYPE_CHECKING:
    from collections.abc import Iterator


SIZES = (4, 2)  # the memory of each GPU of the node that has a kubelet, in GiB
CONFIG = """\
health: {ignore: [node-unusable]}
daemon: {settle_timeout_s: 1}
kubelet: {shared_memory: {unit: GiB, namespace: cdigen}}
"""


@contextmanager
def running_plugin(cluster: Node, kubectl: Path) -> Iterator[Node]:
    """Run `cdigen kubelet` with kubeconfig and token, which the commands of share-gpu-memory.md create."""
    with tempfile.TemporaryDirectory(prefix="gpushare-", dir=cluster.folder) as folder:
        root = Path(folder) / "root"
        log = make_gpus(root, SIZES, CONFIG)
        daemon = Program(arguments=("run", "--root", str(root)), log_file=Path(folder) / "daemon.log")
        daemon.start()
        folders = ("--kubelet-dir", f"{cluster.folder}/kubelet", "--run-dir", f"{cluster.folder}/plugin")
        access = ("--kubeconfig", str(kubeconfig_of_the_page(cluster, kubectl)), "--node-name", NODE)
        program = start_cdigen(cluster, "plugin", "kubelet", "--root", str(root), *folders, *access)
        try:
            eventually(
                lambda: has_annotation(cluster), "the node is annotated",
                details=lambda: program.log + daemon.log,
            )  # fmt: skip
            eventually(
                lambda: cluster.allocatable(RESOURCES.memory) == sum(SIZES) or None, "units are advertised",
                details=lambda: program.log,
            )  # fmt: skip
            yield cluster
        finally:
            program.stop()
            daemon.close()
            log.close()


def has_annotation(node: Node) -> bool | None:
    found = node.api.get(f"/api/v1/nodes/{NODE}")
    has_count = found["status"]["capacity"].get(RESOURCES.count) == str(len(SIZES))
    return (GPUS in found["metadata"].get("annotations", {}) and has_count) or None


def is_annotated(node: Node, name: str) -> Any:
    """Wait until the device plugin has annotated the pod NAME; return the annotations."""

    def annotated() -> Any:
        found = node.pods("default")[name]["metadata"].get("annotations", {})
        return found if found.get(ASSIGNED) == "true" else None

    def status() -> str:
        return f"{node.pods('default')[name]['status']}\n{logs(node, 'plugin')}"

    return eventually(annotated, f"pod {name} is annotated", details=status)


def restart_plugin(node: Node) -> None:
    """Start the stopped plugin, and wait until the kubelet admits pods; until then, pods fail permanently."""

    def admitted() -> bool | None:
        with suppress(ApiError):
            create(node, "probe", 1, nodeName=NODE)
        found = node.pods("default")["probe"]
        if found["status"]["phase"] == "Failed":
            delete(node, "probe")
        is_assigned = found["metadata"].get("annotations", {}).get(ASSIGNED) == "true"
        # A kubelet that crashes after the response of the plugin has written no status of the container.
        return (is_assigned and "containerStatuses" in found["status"]) or None

    node.daemons["plugin"].start()
    eventually(admitted, "the kubelet admits a pod", details=lambda: logs(node, "plugin"))
    delete(node, "probe")
