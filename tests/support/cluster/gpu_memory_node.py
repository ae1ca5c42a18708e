"""A real Kubernetes cluster whose pods share GPUs by memory: `running_gpu_memory_cluster`.

One node has four AMD GPUs of a fake host, whose /sys has the sizes of their memory. `cdigen kubelet`
advertises this memory as aliyun.com/gpu-mem. The other nodes have no kubelet. Two schedulers place pods. Each
scheduler has its own extender.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.cluster.api import ApiError
from support.cluster.gpu_node import Program
from support.cluster.node import NODE, Daemon, Node, running_node
from support.cluster.pods import POD, WAIT, Pod
from support.containers.busybox_image import IMAGE
from support.containers.containerd_host import eventually, only_child
from support.containers.upgrade_host import make_basic_nodes
from support.daemon.kernel_records import FakeLog
from support.hosts import amd_tree
from support.hosts.driver_files import put
from support.hosts.nvidia_kernel import write
from support.processes import succeeded

from cdigen.gpushare.names import DEFAULT_LEDGER_NAMESPACE, GPUS, LEDGER_KEY, Resources, ledger_name
from cdigen.gpushare.nodes import NodeGpu, node_annotation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.containers.containerd_host import Release

RESOURCES = Resources()
NAMESPACE = "shared"
# The sizes of the GPUs of each node in memory units, which are GiB. All GPUs of the last node have one size,
# as in gpushare. Different sizes make it unlikely that GPUs have the same number of free units by chance.
SIZES = {NODE: (16, 8, 8, 4), "bare-a": (16, 16, 8, 8), "bare-b": (24, 4), "bare-c": (10, 10, 10)}
SCHEDULERS = {"first": 12345, "second": 12346}
RENDER = 128  # number of the first render node
CONFIG = """\
health: {ignore: [node-unusable]}
daemon: {settle_timeout_s: 1}
kubelet: {shared_memory: {unit: GiB}}
"""

# A script for the node's namespaces: it mounts the host's device nodes, and the specs of the host's GPUs.
MOUNT = """
root=$1 specs=$2
mount --bind "$root/run/cdi" "$specs"
mount --rbind /dev/pts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
mount --bind /dev/kmsg "$root/dev/kmsg"
mount --rbind "$root/dev" /dev
"""


@dataclass(kw_only=True)
class GpuMemoryCluster:
    """The cluster. `node.daemons` has its programs, except for cdigen's daemon."""

    node: Node
    root: Path
    daemon: Program

    def create(
        self,
        name: str,
        *units: int,
        scheduler: str = "first",
        inits: tuple[int, ...] = (),
        script: str = WAIT,
        on: str = "",
    ) -> Pod:
        """Create a pod; its containers `c0`, ... request UNITS, its init containers `i0`, ... request INITS.

        If ON is set, a node selector restricts the pod to that node. A container with 0 units has no request.
        """
        containers = [_container(f"c{place}", amount, script) for place, amount in enumerate(units)]
        init_containers = [_container(f"i{place}", amount, "exit 0") for place, amount in enumerate(inits)]
        spec = {
            **POD,
            "schedulerName": scheduler,
            "containers": containers,
            "initContainers": init_containers,
        }
        spec |= {"nodeSelector": {"name": on} if on else {}}
        metadata = {"name": name, "namespace": NAMESPACE}
        self.node.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return Pod(node=self.node, namespace=NAMESPACE, name=name)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return all pods, by name."""
        return self.node.pods(NAMESPACE)

    def ledger(self, node: str) -> dict[str, dict[str, Any]]:
        """Return the reservations in the ledger of NODE, by the pods' UIDs."""
        rows = self.node.api.get(f"/api/v1/namespaces/{DEFAULT_LEDGER_NAMESPACE}/configmaps")["items"]
        found = [row["data"] for row in rows if row["metadata"]["name"] == ledger_name(node)]
        reservations: dict[str, dict[str, Any]] = json.loads(found[0][LEDGER_KEY]) if found else {}
        return reservations

    def allocatable(self) -> int:
        """Return the allocatable units of the node with a kubelet."""
        return self.node.allocatable(RESOURCES.memory)

    def restart(self, name: str, number: signal.Signals) -> None:
        """Stop a program by a signal, and start it again at once."""
        self.node.daemons[name].stop(number)
        self.node.daemons[name].start()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program without waiting for its end."""
        process = self.node.daemons[name]._process
        assert process
        os.kill(only_child(process.pid), number)
        if number == signal.SIGCONT:
            # nsenter stops itself when its child is stopped (util-linux, continue_as_child).
            process.send_signal(number)

    def remove(self, name: str) -> None:
        """Delete a pod, with a grace period only on the node with a kubelet; raises ApiError, OSError."""
        pod = Pod(node=self.node, namespace=NAMESPACE, name=name)
        row = self.node.api.get(pod.path)
        on = row["spec"].get("nodeName")
        if on == NODE:
            pod.end()
            return
        # A scheduler may bind the pod at this moment. The deletion then fails with status 409.
        version = {"resourceVersion": row["metadata"]["resourceVersion"]}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        try:
            self.node.api.call("DELETE", pod.path, {**options, "preconditions": version})
        except ApiError as error:
            if error.status != 409:
                raise
            self.remove(name)

    def remove_all(self) -> None:
        """Delete all pods."""
        for name in self.pods():
            with suppress(ApiError):  # the pod may be deleted already
                self.remove(name)

    def clear(self) -> None:
        """Delete all pods, and wait until they are gone.

        Ended pods are deleted without a grace period, because the kubelet may report their end 10 s late.
        """
        self.remove_all()

        def gone() -> bool | None:
            pods = self.pods()
            for name, row in pods.items():
                if row["status"]["phase"] in {"Failed", "Succeeded"}:
                    with suppress(ApiError):  # the kubelet was faster
                        Pod(node=self.node, namespace=NAMESPACE, name=name).delete()
            return not pods or None

        eventually(gone, "pods are gone", details=self.logs)

    def inspect(self, *arguments: str) -> str:
        """Run `kubectl inspect gpushare`, and return its output; the command must succeed."""
        folder = self.node.folder / "plugins"
        folder.mkdir(exist_ok=True)
        program = folder / "kubectl-inspect-gpushare"
        call = "import cdigen.cli.main as main; main.run_kubectl_inspect_gpushare()"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{call}" "$@"\n')
        program.chmod(0o755)
        config = f"KUBECONFIG={self.node.folder}/kubeconfig"
        environment = ("env", f"PATH={folder}:/usr/bin:/bin", config)
        command: tuple[str | Path, ...] = (self.node.tree / "bin/kubectl", "inspect", "gpushare", *arguments)
        return succeeded(self.node.enter(*environment, *command))

    def logs(self) -> str:
        """Return the last log lines of all programs."""
        names = ("plugin", "extender-first", "extender-second", "kubelet")
        return "\n".join(f"== {name}\n{self.node.daemons[name].log[-3000:]}" for name in names)


def _container(name: str, units: int, script: str) -> dict[str, Any]:
    limits = {"limits": {RESOURCES.memory: str(units)}} if units else {}
    command = ["sh", "-c", script]
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command, "resources": limits}


@contextmanager
def running_gpu_memory_cluster(cache: Path, release: Release) -> Iterator[GpuMemoryCluster]:
    """Run the cluster until the context ends."""
    with tempfile.TemporaryDirectory(prefix="shared-", dir=cache) as folder:
        root = Path(folder) / "root"
        log = make_gpu_memory_host(root)
        daemon = Program(arguments=("run", "--root", str(root)), log_file=root.parent / "daemon.log")
        try:
            daemon.start()
            with running_node(cache, release) as node:
                node.mount_specs(MOUNT, root, node.specs)
                shared = GpuMemoryCluster(node=node, root=root, daemon=daemon)
                prepare(shared)
                yield shared
                node.remove_pods()
        finally:
            daemon.close()
            log.close()


def make_gpu_memory_host(root: Path) -> FakeLog:
    """Create the host of the GPUs; return the host's kernel log."""
    make_basic_nodes(root)
    for name in ("dev/pts", "dev/shm", "dev/mqueue"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return make_gpus(root, SIZES[NODE], CONFIG)


def make_gpus(root: Path, sizes: tuple[int, ...], config: str) -> FakeLog:
    """Create GPUs of SIZES (in GiB) and the configuration CONFIG; return the kernel log."""
    gpus = amd_tree.mi210(len(sizes))
    amd_tree.write(root, gpus)
    for gpu, units in zip(gpus, sizes, strict=True):
        put(root / f"sys/devices/pci0000:00/{gpu.bdf}/mem_info_vram_total", f"{units << 30}\n".encode())
    for name in ("run/cdi", "run/cdigen", "var/lib/cdigen"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "var/run").symlink_to("../run")
    write(root / "etc/cdigen/config.yaml", config)
    return FakeLog(root / "dev/kmsg")


def prepare(shared: GpuMemoryCluster) -> None:
    """Start the programs of cdigen for shared GPUs, and the schedulers."""
    node = shared.node
    node.namespace(NAMESPACE)
    node.namespace(DEFAULT_LEDGER_NAMESPACE)
    # Other controllers would mark the nodes without a kubelet as not ready.
    node.daemons["controllers"].stop()
    controllers = node.daemons["controllers"]
    controllers.flags = [*controllers.flags, "--controllers=statefulset,job"]
    controllers.start()
    for name, sizes in SIZES.items():
        if name != NODE:
            add_node(node, name, sizes)
    node.api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"name": NODE}}})
    node.daemons["scheduler"].stop()
    folders = ("--kubelet-dir", f"{node.folder}/kubelet", "--run-dir", f"{node.folder}/plugin")
    access = ("--kubeconfig", f"{node.folder}/kubeconfig", "--node-name", NODE)
    start_cdigen(node, "plugin", "kubelet", "--root", str(shared.root), *folders, *access)
    for name, port in SCHEDULERS.items():
        at = ("--listen", f"127.0.0.1:{port}", "--run-dir", f"{node.folder}/extender-{name}")
        start_cdigen(node, f"extender-{name}", "extender", "--kubeconfig", f"{node.folder}/kubeconfig", *at)
        start_scheduler(node, name, port)
    total = sum(SIZES[NODE])

    def is_advertised() -> bool | None:
        annotations = node.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["annotations"]
        return (GPUS in annotations and shared.allocatable() == total) or None

    eventually(is_advertised, "the memory is advertised", details=shared.logs)


def start_cdigen(node: Node, name: str, *arguments: str) -> Daemon:
    """Start a command of cdigen in the node's namespaces."""
    log = node.folder / f"{name}.log"
    flags = ("-m", "cdigen", *arguments)
    daemon = Daemon(enter=node.enter, program=Path(sys.executable), flags=flags, log_file=log)
    daemon.start()
    node.daemons[name] = daemon
    return daemon


def add_node(node: Node, name: str, sizes: tuple[int, ...]) -> None:
    """Add a node without a kubelet. It has cdigen's annotation if the sizes of its GPUs differ."""
    gpus = [
        NodeGpu(index=index, units=units, uuid=f"GPU-{name}-{index}") for index, units in enumerate(sizes)
    ]
    annotations = {GPUS: node_annotation(gpus)} if len(set(sizes)) > 1 else {}
    amounts = {RESOURCES.memory: str(sum(sizes)), RESOURCES.count: str(len(sizes))}
    amounts |= {"cpu": "64", "memory": "64Gi", "pods": "500"}
    node.add_bare_node(name, amounts, annotations=annotations, labels={"name": name})


def start_scheduler(node: Node, name: str, port: int) -> None:
    """Start a scheduler with the extender at PORT."""
    document = scheduler_configuration(node, name, port)
    config = node.folder / f"scheduler-{name}.json"
    config.write_text(json.dumps(document))
    node.start(f"scheduler-{name}", "kube-scheduler", config=str(config), secure_port=str(port + 2000))


def scheduler_configuration(node: Node, name: str, port: int) -> Mapping[str, Any]:
    """Return the configuration of the scheduler NAME before 1.25, as in scheduler-v1beta1.yaml."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}/gpushare-scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 1,
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "managedResources": [{"name": RESOURCES.memory, "ignoredByScheduler": False}],
        "ignorable": False,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": f"{node.folder}/kubeconfig"},
        "leaderElection": {"leaderElect": False},
        "healthzBindAddress": f"127.0.0.1:{port + 1000}",
        "metricsBindAddress": f"127.0.0.1:{port + 1000}",
        "profiles": [{"schedulerName": name}],
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "extenders": [extender],
    }
