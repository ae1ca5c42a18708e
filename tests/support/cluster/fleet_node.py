"""A real Kubernetes node on which only pods of cdigen's image serve the GPUs: `running_fleet`.

The host is gpu_node's tree, with real driver packages and real device nodes. cdigen is not installed on the
host. The host's folders are mounted over the node's folders, except for the folders OWN_PLACES.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from support.cluster.api import ApiError
from support.cluster.gpu_node import GPU, GPUS, make_host, within
from support.cluster.node import Node, running_node
from support.cluster.pods import Pod, pod_manifest
from support.containers.containerd_host import eventually
from support.containers.upgrade_host import Upgraded
from support.waiting import HOST_PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.containers.containerd_host import Release

CGROUPS = Path("/sys/fs/cgroup")

# `Fleet.adapted` moves these hostPaths into the host's tree. The host's folders cannot be mounted over the
# node's folders, because the kubelet's folder is in /var/lib of the node.
OWN_PLACES = ("/", "/var/lib", "/var/lib/cdigen")

# A script for the node's namespaces. Pods receive new mounts (HostToContainer) only if mounts are shared. On
# a host, systemd makes all mounts shared. The kubelet needs the kernel's log.
MOUNT = """
root=$1 folder=$2
mount --bind "$root" "$root"
mount --bind "$folder/nri" "$root/run/nri"
mount --rbind /dev/pts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
touch "$root/dev/kmsg"
mount --bind /dev/kmsg "$root/dev/kmsg"
mount --rbind "$root/run" /run
mount --rbind "$root/dev" /dev
mount --bind "$root/etc" /etc
mount --bind "$root/usr" /usr
mount --make-rshared /
"""
# A script that mounts /proc and enters the host's root, in which scripts of the driver's packages then run.
CHROOT = 'mount -t proc proc "$0/proc" && exec chroot "$0" sleep infinity'


@dataclass(kw_only=True)
class Fleet:
    """A node with GPUs; cdigen's daemon and plugins run in pods."""

    node: Node
    root: Path
    upgraded: Upgraded

    def apply(self, documents: list[dict[str, Any]]) -> None:
        """Apply DOCUMENTS with the hostPaths of this host."""
        text = yaml.safe_dump_all(self.adapted(each) for each in documents)
        self.node.kubectl("apply", "-f", "-", stdin=text)

    def delete(self, documents: list[dict[str, Any]]) -> None:
        """Delete the objects of DOCUMENTS, and wait until they are gone."""
        self.node.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def adapted(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of DOCUMENT with this host's hostPaths and a short period of the readiness probe."""
        made: dict[str, Any] = json.loads(json.dumps(document))
        if made["kind"] == "DaemonSet":
            for volume in made["spec"]["template"]["spec"]["volumes"]:
                if volume.get("hostPath", {}).get("path") in OWN_PLACES:
                    volume["hostPath"]["path"] = f"{self.root}{volume['hostPath']['path']}"
            # After the startup probe, Kubernetes 1.20 waits for the next period of the readiness probe;
            # Kubernetes 1.22 probes at once (kubernetes#101738).
            for container in made["spec"]["template"]["spec"]["containers"]:
                container.get("readinessProbe", {})["periodSeconds"] = 2
        return made

    def allocatable(self, resource: str = GPU) -> int:
        """Return the node's allocatable number of RESOURCE, as the API server reports it."""
        return self.node.allocatable(resource)

    def has(self, count: int, resource: str = GPU, *, timeout_s: float = HOST_PATIENCE_S) -> float:
        """Wait until COUNT units of RESOURCE are allocatable; return the waiting time in seconds."""
        begun_s = time.monotonic()
        eventually(
            lambda: self.allocatable(resource) == count or None,
            f"{count} of {resource}",
            timeout_s=timeout_s,
            details=self.logs,
        )
        return time.monotonic() - begun_s

    def pods_of(self, labels: Mapping[str, str], namespace: str) -> list[dict[str, Any]]:
        """Return the pods of NAMESPACE with LABELS."""
        selector = "%2C".join(f"{key}%3D{value}" for key, value in labels.items())
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"
        rows: list[dict[str, Any]] = self.node.api.get(path)["items"]
        return rows

    def remove(self) -> None:
        """Remove all DaemonSets and pods."""
        for row in self.node.api.get("/apis/apps/v1/daemonsets")["items"]:
            metadata = row["metadata"]
            path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/daemonsets/{metadata['name']}"
            self.node.api.delete(f"{path}?propagationPolicy=Orphan")
        self.node.remove_pods()

    def files(self) -> set[str]:
        """Return all paths in the host's writable folders and in the kubelet's folder of plugins."""
        places = [self.root / name for name in ("etc", "run", "var")]
        places.append(self.node.folder / "kubelet/device-plugins")
        return {str(path) for place in places for path in place.rglob("*")}

    def logs(self) -> str:
        """Return status, events and log of cdigen's pods, and the end of the kubelet's log."""
        texts = []
        for row in self.node.api.get("/api/v1/pods")["items"]:
            metadata, status = row["metadata"], row["status"]
            if metadata["namespace"] in ("ml", "load", "kube-system"):
                continue
            pod = Pod(node=self.node, namespace=metadata["namespace"], name=metadata["name"])
            texts.append(f"{pod.name}: {json.dumps(status)[:600]}\n{pod.events()[-8:]}")
            for container in (*row["spec"].get("initContainers", ()), *row["spec"]["containers"]):
                with suppress(ApiError):
                    texts.append(f"{container['name']}: {pod.log(container['name'])[-2500:]}")
        return "\n".join((*texts, self.node.kubelet.log[-1500:]))

    def memory_mb(self, pod: Mapping[str, Any]) -> dict[str, float]:
        """Return the resident memory of each container's processes, in MB."""
        found: dict[str, float] = {}
        for row in pod["status"]["containerStatuses"]:
            container = row["containerID"].removeprefix("containerd://")
            # In cgroup v1, the hierarchy `memory` suffices. The file has process IDs of this PID namespace.
            pattern = f"{self.node.folder.name}/kubepods/**/{container}/cgroup.procs"
            (file,) = [*CGROUPS.glob(f"memory/{pattern}"), *CGROUPS.glob(pattern)]
            found[row["name"]] = sum(map(_resident_mb, file.read_text().split()))
        return found

    def registered_since(self, since_s: float) -> bool:
        """Return whether a plugin has registered GPUs with the kubelet since SINCE_S (Unix time)."""
        return any(kind == "registered" and at_s >= since_s for at_s, kind in self._registrations())

    def kubelet_gap_s(self, since_s: float) -> float:
        """Return the seconds without a registered plugin, by the kubelet's log since SINCE_S (Unix time)."""
        gap_s, ended_s = 0.0, None
        for at_s, kind in self._registrations():
            if at_s >= since_s and kind == "ended":
                ended_s = at_s
            elif at_s >= since_s and ended_s is not None:
                gap_s, ended_s = gap_s + at_s - ended_s, None
        assert ended_s is None, "no plugin is registered"
        return gap_s

    def _registrations(self) -> list[tuple[float, str]]:
        """Return the times at which a plugin registered GPUs, and at which the stream of a plugin ended."""
        found = []
        year = datetime.now(tz=UTC).year
        for line in self.node.kubelet.log_file.read_text(errors="replace").splitlines():
            ended = "listAndWatch ended unexpectedly" in line and f" {GPU} " in line
            if ended or ("Got registration request" in line and f'"{GPU}"' in line):
                stamp = f"{year}{line[1:21]}"
                at_s = datetime.strptime(stamp, "%Y%m%d %H:%M:%S.%f").astimezone().timestamp()
                found.append((at_s, "ended" if ended else "registered"))
        return found

    def gpu_pod(self, name: str, count: int = 1, **fields: Any) -> Pod:
        """Create a pod that requests COUNT GPUs."""
        container = {"resources": {"limits": {GPU: str(count)}}}
        self.node.api.create(pod_manifest(name, container=container, **fields))
        return Pod(node=self.node, name=name, namespace="ml")


@contextmanager
def running_fleet(cache: Path, tree: Path, release: Release, archive: Path) -> Iterator[Fleet]:
    """Run a node with eight NVIDIA GPUs, two partitions of an AMD GPU, and an Intel GPU.

    TREE is a Debian root with two driver versions. The older version is loaded. ARCHIVE is cdigen's image.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-", dir=cache) as folder:
        root = Path(folder) / "root"
        older = make_host(root, tree, hook=False)
        (root / "run/nri").mkdir()
        with running_node(cache, replace(release, snapshotter="overlayfs")) as node:
            subprocess.run(node.enter("bash", "-euc", MOUNT, "mount", root, node.folder), check=True)
            use_default_spec_folder(node)
            load(node, archive)
            with within(node, "unshare", "--mount", "bash", "-euc", CHROOT, root) as host:
                upgraded = Upgraded(host=host, root=root)
                upgraded.load_module(older, GPUS)
                fleet = Fleet(node=node, root=root, upgraded=upgraded)
                yield fleet
                fleet.remove()


def use_default_spec_folder(node: Node) -> None:
    """Configure containerd to read /run/cdi, which is its default, and restart it."""
    config = node.folder / "config.toml"
    config.write_text(config.read_text().replace(str(node.specs), "/run/cdi"))
    node.containerd.stop()
    node.containerd.start()


def load(node: Node, archive: Path) -> None:
    """Load cdigen's image from ARCHIVE with `ctr images import`, as the page of the DaemonSet describes."""
    local = ("--local",) if node.containerd.release.version > 2 else ()
    snapshotter = f"--snapshotter={node.containerd.release.snapshotter}"
    node.containerd.ctr("images", "import", *local, snapshotter, archive)


def _resident_mb(process: str) -> float:
    """Return the resident memory of a container's process in MB; 0 for a probe, runc or an ended process."""
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_text()
        status = Path(f"/proc/{process}/status").read_text()
        lines = [each.split() for each in status.splitlines() if each.startswith("VmRSS:")]
        if not any(name in command for name in ("cdigen-probe", "runc")):
            return sum(int(each[1]) for each in lines) / 1000
    return 0.0
