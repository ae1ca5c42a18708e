"""A real Kubernetes node whose GPUs are served by pods of the image alone: `running_fleet`.

The host is gpu_node's tree, with real driver packages and real device nodes; nothing of cdigen is installed
there. Its folders are in the place of the node's own, but for those hostPaths that are patched (OWN_PLACES).
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

# What is the host's own, while the node has another there, with the kubelet's folder in it.
OWN_PLACES = ("/", "/var/lib", "/var/lib/cdigen")

# In the node's namespaces. Mounts reach pods as they are made (HostToContainer), which asks for shared ones,
# as systemd makes all of a host. kubelet wants the kernel's own log.
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
# What programs of the driver's packages see: their own root, with the kernel's processes.
CHROOT = 'mount -t proc proc "$0/proc" && exec chroot "$0" sleep infinity'


@dataclass(kw_only=True)
class Fleet:
    """A node with GPUs whose daemon and plugins are pods."""

    node: Node
    root: Path
    upgraded: Upgraded

    def apply(self, documents: list[dict[str, Any]]) -> None:
        """Apply DOCUMENTS, whose hostPaths are this host's."""
        text = yaml.safe_dump_all(self.adapted(each) for each in documents)
        self.node.kubectl("apply", "-f", "-", stdin=text)

    def delete(self, documents: list[dict[str, Any]]) -> None:
        """Delete what DOCUMENTS describe, and wait until all is gone."""
        self.node.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def adapted(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return DOCUMENT for this host."""
        made: dict[str, Any] = json.loads(json.dumps(document))
        if made["kind"] == "DaemonSet":
            for volume in made["spec"]["template"]["spec"]["volumes"]:
                if volume.get("hostPath", {}).get("path") in OWN_PLACES:
                    volume["hostPath"]["path"] = f"{self.root}{volume['hostPath']['path']}"
            # After a start-up, readiness is asked at its next turn; at once from 1.22 on (kubernetes#101738).
            for container in made["spec"]["template"]["spec"]["containers"]:
                container.get("readinessProbe", {})["periodSeconds"] = 2
        return made

    def allocatable(self, resource: str = GPU) -> int:
        """Return how many of RESOURCE pods can have, as the API server knows it."""
        return self.node.allocatable(resource)

    def has(self, count: int, resource: str = GPU, *, timeout_s: float = HOST_PATIENCE_S) -> float:
        """Wait until so many of RESOURCE are allocatable; returns how many seconds that took."""
        begun_s = time.monotonic()
        eventually(
            lambda: self.allocatable(resource) == count or None,
            f"{count} of {resource}",
            timeout_s=timeout_s,
            told=self.told,
        )
        return time.monotonic() - begun_s

    def pods_of(self, labels: Mapping[str, str], namespace: str) -> list[dict[str, Any]]:
        """Return the pods with LABELS."""
        chosen = "%2C".join(f"{key}%3D{value}" for key, value in labels.items())
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={chosen}"
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
        """Return what is in the host's folders that programs write to, the kubelet's of plugins included."""
        places = [self.root / name for name in ("etc", "run", "var")]
        places.append(self.node.folder / "kubelet/device-plugins")
        return {str(path) for place in places for path in place.rglob("*")}

    def told(self) -> str:
        """Return what everybody has said last."""
        said = []
        for row in self.node.api.get("/api/v1/pods")["items"]:
            metadata, status = row["metadata"], row["status"]
            if metadata["namespace"] in ("ml", "load", "kube-system"):
                continue
            pod = Pod(node=self.node, namespace=metadata["namespace"], name=metadata["name"])
            said.append(f"{pod.name}: {json.dumps(status)[:600]}\n{pod.events()[-8:]}")
            for container in (*row["spec"].get("initContainers", ()), *row["spec"]["containers"]):
                with suppress(ApiError):
                    said.append(f"{container['name']}: {pod.log(container['name'])[-2500:]}")
        return "\n".join((*said, self.node.kubelet.log[-1500:]))

    def memory_mb(self, pod: Mapping[str, Any]) -> dict[str, float]:
        """Return how many MB are resident of the process of each container."""
        found: dict[str, float] = {}
        for row in pod["status"]["containerStatuses"]:
            container = row["containerID"].removeprefix("containerd://")
            # In version 1 of cgroups one hierarchy is enough; the numbers are this machine's.
            place = f"{self.node.folder.name}/kubepods/**/{container}/cgroup.procs"
            (file,) = [*CGROUPS.glob(f"memory/{place}"), *CGROUPS.glob(place)]
            found[row["name"]] = sum(map(_resident_mb, file.read_text().split()))
        return found

    def registered_since(self, since_s: float) -> bool:
        """Return whether somebody has registered GPUs with the kubelet since SINCE_S (Unix time)."""
        return any(kind == "registered" and at_s >= since_s for at_s, kind in self._registrations())

    def kubelet_gap_s(self, since_s: float) -> float:
        """Return for how long nobody was registered, by the kubelet's own log since SINCE_S (Unix time)."""
        gap_s, ended_s = 0.0, None
        for at_s, kind in self._registrations():
            if at_s >= since_s and kind == "ended":
                ended_s = at_s
            elif at_s >= since_s and ended_s is not None:
                gap_s, ended_s = gap_s + at_s - ended_s, None
        assert ended_s is None, "nobody is registered"
        return gap_s

    def _registrations(self) -> list[tuple[float, str]]:
        """Return when somebody registered GPUs with the kubelet, and when the stream of devices ended."""
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
        """Create a pod that asks the kubelet for COUNT GPUs."""
        container = {"resources": {"limits": {GPU: str(count)}}}
        self.node.api.create(pod_manifest(name, container=container, **fields))
        return Pod(node=self.node, name=name, namespace="ml")


@contextmanager
def running_fleet(cache: Path, tree: Path, release: Release, archive: Path) -> Iterator[Fleet]:
    """Run a node with eight GPUs of NVIDIA, two partitions of one of AMD's, and one of Intel's.

    TREE is a Debian with two versions of the driver, of which the older runs; ARCHIVE is the image.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-", dir=cache) as folder:
        root = Path(folder) / "root"
        older = make_host(root, tree, hook=False)
        (root / "run/nri").mkdir()
        with running_node(cache, replace(release, snapshotter="overlayfs")) as node:
            subprocess.run(node.enter("bash", "-euc", MOUNT, "mount", root, node.folder), check=True)
            read_specs_of_the_host(node)
            load(node, archive)
            with within(node, "unshare", "--mount", "bash", "-euc", CHROOT, root) as host:
                upgraded = Upgraded(host=host, root=root)
                upgraded.load_module(older, GPUS)
                fleet = Fleet(node=node, root=root, upgraded=upgraded)
                yield fleet
                fleet.remove()


def read_specs_of_the_host(node: Node) -> None:
    """Let containerd read /run/cdi, as it does where nobody configures it."""
    config = node.folder / "config.toml"
    config.write_text(config.read_text().replace(str(node.specs), "/run/cdi"))
    node.containerd.stop()
    node.containerd.start()


def load(node: Node, archive: Path) -> None:
    """Load an image as the page says."""
    local = ("--local",) if node.containerd.release.version > 2 else ()
    snapshotter = f"--snapshotter={node.containerd.release.snapshotter}"
    node.containerd.ctr("images", "import", *local, snapshotter, archive)


def _resident_mb(process: str) -> float:
    """Return what a process of a container has, none where it is a probe's, or has ended."""
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_text()
        status = Path(f"/proc/{process}/status").read_text()
        lines = [each.split() for each in status.splitlines() if each.startswith("VmRSS:")]
        if not any(name in command for name in ("cdigen-probe", "runc")):
            return sum(int(each[1]) for each in lines) / 1000
    return 0.0
