"""A real Kubernetes whose pods share GPUs by memory: `running_shared`.

Its node has four of AMD's GPUs, of a fake host, whose memory the kernel tells; `cdigen kubelet` offers it as
aliyun.com/gpu-mem. Beside it are nodes without a kubelet. Two schedulers place pods, each with an extender.
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

from cdigen.gpushare.names import GPUS, LEDGER_KEY, LEDGERS, Resources, ledger_name
from cdigen.gpushare.nodes import Gpu, node_annotation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.containers.containerd_host import Release

RESOURCES = Resources()
NAMESPACE = "shared"
# GiB, which are units, of each GPU of the node with a kubelet, and of those without; the last has gpushare's
# plain amounts. No two GPUs of a node have one number of units left by chance alone.
SIZES = {NODE: (16, 8, 8, 4), "bare-a": (16, 16, 8, 8), "bare-b": (24, 4), "bare-c": (10, 10, 10)}
SCHEDULERS = {"first": 12345, "second": 12346}
RENDER = 128  # number of the first render node
CONFIG = """\
health: {ignore: [node-unusable]}
daemon: {settle_timeout_s: 1}
kubelet: {shared_memory: {unit: GiB}}
"""

# In the node's namespaces: the host's nodes in the place of the machine's, and the specs of its GPUs.
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
class Shared:
    """The cluster; its programs are in the node's `daemons`."""

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
        """Create a pod whose containers `c0`, ... ask for UNITS, after `i0`, ... that ask for INITS.

        ON is the node that it has to be on. An UNITS of 0 asks for nothing.
        """
        containers = [_container(f"c{place}", amount, script) for place, amount in enumerate(units)]
        early = [_container(f"i{place}", amount, "exit 0") for place, amount in enumerate(inits)]
        spec = {**POD, "schedulerName": scheduler, "containers": containers, "initContainers": early}
        spec |= {"nodeSelector": {"name": on} if on else {}}
        metadata = {"name": name, "namespace": NAMESPACE}
        self.node.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return Pod(node=self.node, namespace=NAMESPACE, name=name)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return all pods, by name."""
        return self.node.pods(NAMESPACE)

    def ledger(self, node: str) -> dict[str, dict[str, Any]]:
        """Return what is promised on NODE, by the pods' UIDs."""
        rows = self.node.api.get(f"/api/v1/namespaces/{LEDGERS}/configmaps")["items"]
        found = [row["data"] for row in rows if row["metadata"]["name"] == ledger_name(node)]
        claims: dict[str, dict[str, Any]] = json.loads(found[0][LEDGER_KEY]) if found else {}
        return claims

    def allocatable(self) -> int:
        """Return how many units pods can have on the node with a kubelet."""
        return self.node.allocatable(RESOURCES.memory)

    def restart(self, name: str, number: signal.Signals) -> None:
        """End a program by a signal, and start it again at once."""
        self.node.daemons[name].stop(number)
        self.node.daemons[name].start()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program, whose end is not waited for."""
        process = self.node.daemons[name]._process
        assert process
        os.kill(only_child(process.pid), number)
        if number == signal.SIGCONT:
            # nsenter stops itself when what it started is stopped (util-linux, continue_as_child).
            process.send_signal(number)

    def remove(self, name: str) -> None:
        """Delete a pod: as users do where a kubelet ends it, else at once; ApiError, OSError."""
        pod = Pod(node=self.node, namespace=NAMESPACE, name=name)
        row = self.node.api.get(pod.path)
        on = row["spec"].get("nodeName")
        if on == NODE:
            pod.end()
            return
        # It may be bound at this moment.
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
            with suppress(ApiError):  # it may be gone meanwhile
                self.remove(name)

    def clear(self) -> None:
        """Delete all pods, and wait until they are gone.

        Those that have ended go at once: kubelet looks only every 10 s for what it has not told yet.
        """
        self.remove_all()

        def gone() -> bool | None:
            pods = self.pods()
            for name, row in pods.items():
                if row["status"]["phase"] in {"Failed", "Succeeded"}:
                    with suppress(ApiError):  # the kubelet was faster
                        Pod(node=self.node, namespace=NAMESPACE, name=name).delete()
            return not pods or None

        eventually(gone, "pods are gone", told=self.told)

    def inspect(self, *arguments: str) -> str:
        """Call `kubectl inspect gpushare`, which must succeed, and return its output."""
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

    def told(self) -> str:
        """Return what everybody has said last."""
        names = ("plugin", "extender-first", "extender-second", "kubelet")
        return "\n".join(f"== {name}\n{self.node.daemons[name].log[-3000:]}" for name in names)


def _container(name: str, units: int, script: str) -> dict[str, Any]:
    limits = {"limits": {RESOURCES.memory: str(units)}} if units else {}
    command = ["sh", "-c", script]
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command, "resources": limits}


@contextmanager
def running_shared(cache: Path, release: Release) -> Iterator[Shared]:
    """Run the cluster until the context ends."""
    with tempfile.TemporaryDirectory(prefix="shared-", dir=cache) as folder:
        root = Path(folder) / "root"
        log = lay_host(root)
        daemon = Program(arguments=("run", "--root", str(root)), log_file=root.parent / "daemon.log")
        try:
            daemon.start()
            with running_node(cache, release) as node:
                node.mount_specs(MOUNT, root, node.specs)
                node.kubelet.comes_back = True
                shared = Shared(node=node, root=root, daemon=daemon)
                prepare(shared)
                yield shared
                node.remove_pods()
        finally:
            daemon.close()
            log.close()


def lay_host(root: Path) -> FakeLog:
    """Lay the host, and return its kernel's log."""
    make_basic_nodes(root)
    for name in ("dev/pts", "dev/shm", "dev/mqueue"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return lay_gpus(root, SIZES[NODE], CONFIG)


def lay_gpus(root: Path, sizes: tuple[int, ...], config: str) -> FakeLog:
    """Lay GPUs of SIZES, in GiB, and a configuration, and return the kernel's log."""
    gpus = amd_tree.mi210(len(sizes))
    amd_tree.write(root, gpus)
    for gpu, units in zip(gpus, sizes, strict=True):
        put(root / f"sys/devices/pci0000:00/{gpu.bdf}/mem_info_vram_total", f"{units << 30}\n".encode())
    for name in ("run/cdi", "run/cdigen", "var/lib/cdigen"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "var/run").symlink_to("../run")
    write(root / "etc/cdigen/config.yaml", config)
    return FakeLog(root / "dev/kmsg")


def prepare(shared: Shared) -> None:
    """Start what cdigen has for shared GPUs, and the schedulers that ask it."""
    node = shared.node
    node.namespace(NAMESPACE)
    node.namespace(LEDGERS)
    # One of the others calls nodes dead that have no kubelet.
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

    def is_offered() -> bool | None:
        annotations = node.api.get(f"/api/v1/nodes/{NODE}")["metadata"]["annotations"]
        return (GPUS in annotations and shared.allocatable() == total) or None

    eventually(is_offered, "the memory is offered", told=shared.told)


def start_cdigen(node: Node, name: str, *arguments: str) -> Daemon:
    """Start a command of cdigen in the node's namespaces."""
    log = node.folder / f"{name}.log"
    flags = ("-m", "cdigen", *arguments)
    daemon = Daemon(enter=node.enter, program=Path(sys.executable), flags=flags, log_file=log)
    daemon.start()
    node.daemons[name] = daemon
    return daemon


def add_node(node: Node, name: str, sizes: tuple[int, ...]) -> None:
    """Add a node without a kubelet; one whose GPUs differ has the annotation that says so."""
    gpus = [Gpu(index=index, units=units, uuid=f"GPU-{name}-{index}") for index, units in enumerate(sizes)]
    annotations = {GPUS: node_annotation(gpus)} if len(set(sizes)) > 1 else {}
    amounts = {RESOURCES.memory: str(sum(sizes)), RESOURCES.count: str(len(sizes))}
    amounts |= {"cpu": "64", "memory": "64Gi", "pods": "500"}
    node.add_bare_node(name, amounts, annotations=annotations, labels={"name": name})


def start_scheduler(node: Node, name: str, port: int) -> None:
    """Start a scheduler that asks the extender at PORT."""
    document = scheduler_configuration(node, name, port)
    config = node.folder / f"scheduler-{name}.json"
    config.write_text(json.dumps(document))
    node.start(f"scheduler-{name}", "kube-scheduler", config=str(config), secure_port=str(port + 2000))


def scheduler_configuration(node: Node, name: str, port: int) -> Mapping[str, Any]:
    """Return the configuration of the scheduler NAME, as docs/sharing.md has it for releases before 1.25."""
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
