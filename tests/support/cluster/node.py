"""A Kubernetes cluster of one node, isolated from the machine: `running_node`.

API server, scheduler, controllers and kubelet have version 1.20.2. The part `kubernetes` of provision has
these programs and Debian's etcd. containerd is a release of containerd_host.py. The files of the node are in
one folder. Its processes, mounts and network are in namespaces. hold-node protects the machine's sysctls, and
removes the node's cgroups.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from support.cluster.api import ADDRESS, PORT, TOKEN, Api, ApiError
from support.cluster.pods import NAMESPACE, Pod, pod_manifest
from support.containers.containerd_host import (
    Containerd,
    Place,
    Release,
    containerd_within,
    eventually,
    holding_node,
    only_child,
)
from support.processes import succeeded
from support.waiting import HOST_PATIENCE_S

NODE = "node1"
ETCD = "http://127.0.0.1:2379"
RESTART_S = 0.5

# The bridge is in the node's network namespace. It needs no NAT, because no route leads out of the node.
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "type": "bridge",
    "bridge": "pods0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.98.0.0/16"}]]},
}

# oomScoreAdj: a lower value needs CAP_SYS_RESOURCE. By default, the kubelet sends 5 requests per second,
# which limits how fast pods start and end.
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "eventRecordQPS": 0,
    "evictionHard": {"memory.available": "50Mi"},
    "failSwapOn": False,
    "imageGCHighThresholdPercent": 100,
    "kubeAPIBurst": 200,
    "kubeAPIQPS": 100,
    "nodeStatusUpdateFrequency": "2s",
    "oomScoreAdj": 0,
    "resolvConf": "",
    "syncFrequency": "5s",
}


@dataclass(kw_only=True)
class Daemon:
    """A program in a node's namespaces. It can be stopped, and started with the same or other FLAGS.

    After ``supervise``, a thread restarts a program that exits without ``stop``, as a systemd unit does.
    """

    enter: Callable[..., list[str | Path]]
    program: Path
    flags: Sequence[str]
    log_file: Path
    _process: subprocess.Popen[bytes] | None = None
    _supervisor: Thread | None = None
    _restarts: bool = False
    _lock: Lock = field(default_factory=Lock)

    @property
    def log(self) -> str:
        """The last 4,000 characters of the log."""
        return self.log_file.read_text(errors="replace")[-4000:]

    @property
    def runs(self) -> bool:
        """Whether the program is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def peak_kib(self) -> int:
        """The program's peak resident memory, in KiB (proc(5), VmHWM)."""
        assert self._process
        text = Path(f"/proc/{only_child(self._process.pid)}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0])

    def start(self) -> None:
        """Start the program without waiting."""
        with self._lock:
            self._start()
            self._restarts = self._supervisor is not None

    def supervise(self) -> None:
        """Restart the running program from now on whenever it exits without ``stop``.

        Kubelet 1.20.2 exits if no runtime listens. It can panic ("assignment to entry in nil map",
        devicemanager/pod_devices.go:157) if a pod is admitted while a plugin registers again, or while a
        deleted pod starts.
        """
        self._supervisor, self._restarts = Thread(target=self._restart_forever, daemon=True), True
        self._supervisor.start()

    def _restart_forever(self) -> None:
        while self._supervisor:
            with self._lock:
                if self._restarts and not self.runs:
                    self._start()
                    # Before its child exists, nsenter forwards no signal of ``stop``.
                    time.sleep(RESTART_S)
            time.sleep(RESTART_S)

    def _start(self) -> None:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.enter(self.program, *self.flags),
                env={"PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to the program if it runs, and wait for its end."""
        with self._lock:
            self._restarts = False
            assert self._process
            if self.runs:
                # nsenter does not forward signals to its child.
                os.kill(only_child(self._process.pid), number)
        self.wait()

    def release(self) -> None:
        """End the supervision."""
        with self._lock:
            self._supervisor, self._restarts = None, False

    def wait(self) -> None:
        """Wait for the end of the program."""
        assert self._process
        self._process.wait(timeout=HOST_PATIENCE_S)

    def check(self) -> None:
        """Fail if the program neither runs nor restarts."""
        assert self._restarts or self.runs, self.log


@dataclass(kw_only=True)
class Node(Place):
    """A node that runs pods, and the node's control plane; all files are below FOLDER."""

    tree: Path
    holder: int
    api: Api
    containerd: Containerd
    daemons: dict[str, Daemon] = field(default_factory=dict)

    @property
    def kubelet(self) -> Daemon:
        """The kubelet of the node."""
        return self.daemons["kubelet"]

    def enter(self, *command: str | Path) -> list[str | Path]:
        """Return COMMAND with a prefix that runs it in the node's namespaces."""
        return self.containerd.enter(*command)

    def release(self) -> None:
        """End the supervision of all programs, which end with their namespaces."""
        for daemon in self.daemons.values():
            daemon.release()

    def reap(self) -> None:
        """Wait for the programs, which end with their namespaces."""
        for daemon in self.daemons.values():
            daemon.wait()

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run kubectl as administrator, and return its output; kubectl must succeed."""
        command = (self.tree / "bin/kubectl", f"--kubeconfig={self.folder}/kubeconfig", *arguments)
        return succeeded(self.enter(*command), input=stdin, timeout=HOST_PATIENCE_S)

    def start(self, name: str, program: str, **flags: str) -> Daemon:
        """Start a program of Kubernetes; FLAGS have underscores instead of dashes."""
        arguments = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
        log_file = self.folder / f"{name}.log"
        daemon = Daemon(
            enter=self.containerd.enter,
            program=self.tree / "bin" / program,
            flags=arguments,
            log_file=log_file,
        )
        daemon.start()
        self.daemons[name] = daemon
        return daemon

    def answers(self, daemon: Daemon, path: str, *, truth: Callable[[Any], bool] = bool) -> None:
        """Wait until the API server's response for PATH satisfies TRUTH; DAEMON must run meanwhile."""

        def is_satisfied() -> bool | None:
            daemon.check()
            try:
                return truth(self.api.get(path)) or None
            except (ApiError, OSError):
                return None

        eventually(is_satisfied, f"expected response of {path}", details=lambda: daemon.log)

    def is_ready(self) -> None:
        """Wait until pods can run on the node."""

        def ready(node: Mapping[str, Any]) -> bool:
            return {row["type"]: row["status"] for row in node["status"]["conditions"]}.get("Ready") == "True"

        self.answers(self.kubelet, f"/api/v1/nodes/{NODE}", truth=ready)
        # After an outage of the kubelet, the API server has the old status. So the kubelet must respond too.
        self.answers(self.kubelet, f"/api/v1/nodes/{NODE}/proxy/healthz")

    def allocatable(self, resource: str) -> int:
        """Return the node's allocatable number of RESOURCE, as the API server reports it."""
        found = self.api.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"]
        return int(found.get(resource, "0"))

    def add_bare_node(
        self, name: str, amounts: Mapping[str, str], *, address: str = "", **metadata: object
    ) -> None:
        """Add a node without a kubelet, with the capacity AMOUNTS and further METADATA."""
        self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}})
        ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
        addresses = [{"type": "InternalIP", "address": address}] if address else []
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready], "addresses": addresses}
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        self.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def mount_specs(self, script: str, *arguments: str | Path) -> None:
        """Run SCRIPT, which mounts another folder over the folder of specs, and restart containerd."""
        subprocess.run(self.enter("bash", "-euc", script, "mount", *arguments), check=True)
        # containerd watches the folder that existed at its start.
        self.containerd.stop()
        self.containerd.start()

    def namespace(self, name: str) -> None:
        """Create a namespace, and wait until pods can be created in it."""
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.answers(self.daemons["controllers"], f"/api/v1/namespaces/{name}/serviceaccounts/default")

    def pod(self, name: str, *env: str, **fields: Any) -> "Pod":
        """Create a pod with the manifest that `pod_manifest` returns."""
        manifest = pod_manifest(name, *env, **fields)
        self.api.create(manifest)
        return Pod(node=self, name=name, namespace=manifest["metadata"]["namespace"])

    def pods(self, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return all Pod objects of a namespace, by name."""
        rows = self.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {row["metadata"]["name"]: row for row in rows}

    def remove_pods(self) -> None:
        """Delete all pods of all namespaces, and wait until containerd has stopped all pod sandboxes."""
        for pod in self.api.get("/api/v1/pods")["items"]:
            Pod(node=self, namespace=pod["metadata"]["namespace"], name=pod["metadata"]["name"]).delete()
        list_pods = partial(self.containerd.cri.call, "ListPodSandbox")
        eventually(
            lambda: all(pod.state for pod in list_pods().items) or None,
            "the pods are gone",
            details=lambda: self.kubelet.log,
        )


@contextmanager
def running_node(cache: Path, release: Release) -> Iterator[Node]:
    """Run a node until the context ends.

    The node's pods and state are removed at the end, even if the tests are killed.
    """
    with ExitStack() as ended, holding_node() as (holder, folder), ExitStack() as running:
        tree = cache / "kubernetes"
        containerd = running.enter_context(
            containerd_within(
                holder,
                folder,
                cache=cache,
                release=release,
                settings=network_settings(release, folder, tree),
            )
        )
        api = running.enter_context(closing(Api(holder)))
        node = Node(folder=folder, tree=tree, holder=holder, api=api, containerd=containerd)
        ended.callback(node.reap)
        running.callback(node.release)
        start_control_plane(node)
        start_kubelet(node)
        node.is_ready()
        node.kubelet.supervise()
        print(containerd.version(), node.api.get(f"/api/v1/nodes/{NODE}")["status"]["nodeInfo"])
        yield node


def network_settings(release: Release, folder: Path, tree: Path) -> str:
    """Write the configuration of the pod network below FOLDER; return containerd's table for it."""
    (folder / "net.d").mkdir()
    (folder / "net.d/10-pods.conf").write_text(json.dumps(NETWORK))
    programs = f'bin_dirs = ["{tree}/cni"]' if release.version > 2 else f'bin_dir = "{tree}/cni"'
    return f'[plugins."{release.runtime}".cni]\n{programs}\nconf_dir = "{folder}/net.d"\n'


def start_control_plane(node: Node) -> None:
    """Start etcd, API server, scheduler and controllers, and wait until pods can be created."""
    folder, tree = node.folder, node.tree
    key = f"{tree}/service-accounts.key"
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
    config = kubeconfig(folder)
    etcd = {"listen_client_urls": ETCD, "advertise_client_urls": ETCD, "data_dir": f"{folder}/etcd"}
    node.start("etcd", "etcd", unsafe_no_fsync="true", **etcd)
    api_server = node.start(
        "api-server",
        "kube-apiserver",
        advertise_address=ADDRESS,
        allow_privileged="true",
        authorization_mode="AlwaysAllow",
        bind_address=ADDRESS,
        cert_dir=f"{folder}/api-server",
        endpoint_reconciler_type="none",
        etcd_servers=ETCD,
        kubelet_preferred_address_types="InternalIP",
        secure_port=str(PORT),
        service_account_issuer="https://node1",
        service_account_key_file=key,
        service_account_signing_key_file=key,
        service_cluster_ip_range="10.97.0.0/24",
        token_auth_file=f"{folder}/tokens.csv",
    )
    node.answers(api_server, "/readyz")
    node.start("scheduler", "kube-scheduler", kubeconfig=config, leader_elect="false")
    controllers = node.start(
        "controllers",
        "kube-controller-manager",
        kubeconfig=config,
        leader_elect="false",
        service_account_private_key_file=key,
    )
    node.answers(controllers, "/api/v1/namespaces/default/serviceaccounts/default")
    node.namespace(NAMESPACE)


def kubeconfig(folder: Path) -> str:
    """Write a kubeconfig for programs of the cluster; return its path."""
    server = {"server": f"https://{ADDRESS}:{PORT}", "insecure-skip-tls-verify": True}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "node", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "admin"}}],
        "current-context": "node",
    }
    (folder / "kubeconfig").write_text(json.dumps(document))
    return f"{folder}/kubeconfig"


def start_kubelet(node: Node) -> None:
    """Start the kubelet."""
    folder = node.folder
    config = {**KUBELET, "cgroupRoot": f"/{folder.name}"}
    (folder / "kubelet.json").write_text(json.dumps(config))
    node.start(
        "kubelet",
        "kubelet",
        config=f"{folder}/kubelet.json",
        container_runtime="remote",
        container_runtime_endpoint=f"unix://{folder}/c.sock",
        hostname_override=NODE,
        image_service_endpoint=f"unix://{folder}/c.sock",
        kubeconfig=f"{folder}/kubeconfig",
        node_ip=ADDRESS,
    )
