"""A real Kubernetes node with the GPUs of a fake host: `running_gpu_node`.

The host is a tree with real driver packages, a kernel's side written as files, and real device nodes; what
of it containers are given is mounted over the node's own folders. `cdigen run` and `cdigen kubelet` are real
processes, which work on that tree and on the kubelet's folder from outside, as in containers of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.cluster.node import Node, running_node
from support.cluster.pods import Pod, pod_manifest
from support.containers.chroot_host import Host
from support.containers.containerd_host import eventually, only_child
from support.containers.gpu_hosts import install_hook
from support.containers.upgrade_host import PACKAGES, Upgraded, make_basic_nodes
from support.daemon.kernel_records import FakeLog
from support.hosts import amd_tree, intel_tree
from support.hosts.mig import write_instance, write_minors
from support.hosts.nvidia_kernel import (
    control_nodes,
    example_gpus,
    information_text,
    make_node,
    write,
    write_kernel_side,
    write_pci_device,
)
from support.nvml import standin
from support.own_trees import WRITTEN_IN_PLACE, copy_tree, remove_tree
from support.paths import REPOSITORY
from support.processes import succeeded
from support.waiting import HOST_PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.containers.containerd_host import Release

GPU, AMD, INTEL = "nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"
# No DRM driver is loaded for NVIDIA's: the other vendors' nodes have those numbers.
GPUS = tuple(replace(gpu, card=None, render=None) for gpu in example_gpus(8))
AMDS = amd_tree.mi300x(2, count=1)
FLEX = intel_tree.gpu(40, "0000:e7:00.0", intel_tree.FLEX_170, "i915")
BOOT = "11111111-2222-3333-4444-555555555555\n"
# The nodes have no driver behind them, which the daemon's look at devices would find.
# The daemon runs no cycle without an event while a test waits: what a wait sees is the effect of an event.
CONFIG = "health: {ignore: [node-unusable]}\ndaemon: {settle_timeout_s: 2, resync_s: 3600}\n"

# In the node's namespaces: the host's folders in the place of the node's, but for the kernel's own files.
MOUNT = """
root=$1 specs=$2
mount --bind "$root/run/cdi" "$specs"
for folder in run/cdigen var/lib/cdigen; do
    mkdir -p "/$folder"
    mount --bind "$root/$folder" "/$folder"
done
mount --rbind /dev/pts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
mount --bind /dev/kmsg "$root/dev/kmsg"
mount -t proc proc "$root/proc"
mount --rbind "$root/dev" /dev
mount --bind "$root/etc" /etc
mount --bind "$root/usr" /usr
"""

# In a container: which versions of the driver have files there.
LIBRARIES = "find /usr /lib -name 'libcuda.so.[0-9][0-9]*' | sed 's/.*so[.]//' | sort -u"
# Nodes as "name major:minor" without udev's other names of them, a line "--", and where something is mounted.
LOOK = """find /dev -type c -not -path '*/by-path/*' -exec stat -c '%n %t:%T' {} +
echo --
cut -d' ' -f5 /proc/self/mountinfo"""


@dataclass(kw_only=True)
class Program:
    """A command of cdigen, as a process that can be killed and started; its log is appended to a file."""

    arguments: tuple[str, ...]
    log_file: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The last that it has said."""
        return self.log_file.read_text(errors="replace")[-4000:]

    def start(self) -> None:
        """Start it, without waiting for anything."""
        with self.log_file.open("ab") as log:
            command = (sys.executable, "-m", "cdigen", *self.arguments)
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; told to end, it ends well, or at once if it has just begun to start."""
        assert self.process
        self.process.send_signal(number)
        code = self.process.wait(timeout=HOST_PATIENCE_S)
        assert code in ((0, -number) if number == signal.SIGTERM else (-number,)), (code, self.log)

    def close(self) -> None:
        """End it if it runs."""
        if self.process:
            self.process.kill()
            self.process.wait()


@dataclass(kw_only=True)
class GpuNode:
    """A node with GPUs, the daemon and the device plugins beside it."""

    node: Node
    root: Path
    daemon: Program
    plugin: Program
    upgraded: Upgraded
    log: FakeLog
    nvml: Path
    instances: dict[int, tuple[standin.Instance, ...]] = field(default_factory=dict)
    version: str = ""
    gpus: int = len(GPUS)

    # The host.

    def load(self, version: str = "") -> None:
        """Let the module of that version run, and NVML show what there is."""
        self.version = version or self.version
        shown = tuple(
            standin.Gpu(
                address=gpu.bdf,
                uuid=gpu.uuid,
                minor=gpu.minor,
                mig=gpu.minor in self.instances,
                instances=self.instances.get(gpu.minor, ()),
            )
            for gpu in GPUS[: self.gpus]
        )
        standin.install(self.nvml, standin.Machine(driver=self.version, gpus=shown))
        if version:
            self.upgraded.load_module(version, GPUS[: self.gpus])

    def split(self, gpu: int, profiles: Mapping[int, str]) -> None:
        """Bring a GPU into MIG mode with instances of PROFILES by their numbers; out of it without any."""
        folder = self.root / f"proc/driver/nvidia/capabilities/gpu{gpu}/mig"
        self.instances.pop(gpu, None)
        if profiles:
            self.instances[gpu] = tuple(
                standin.Instance(
                    gpu_instance=gi,
                    compute_instance=0,
                    uuid=standin.uuid(100 * gpu + gi, "MIG"),
                    profile=profile,
                )
                for gi, profile in profiles.items()
            )
        self.load()
        for gi in profiles:
            write_instance(self.root, gpu, gi)
        for old in folder.glob("gi*") if folder.is_dir() else ():
            if int(old.name[2:]) not in profiles:
                remove_tree(old, within=self.root)

    def take_out(self) -> None:
        """Take the last GPU out, as its hot removal does; NVML, here, has no holes."""
        self.gpus -= 1
        self.load()
        gpu = GPUS[self.gpus]
        remove_tree(self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}", within=self.root)
        for folder in ("bus/pci/devices", "bus/pci/drivers/nvidia"):
            (self.root / "sys" / folder / gpu.bdf).unlink()
        for node in gpu.nodes:
            self.root.joinpath(node.path.lstrip("/")).unlink()

    def put_in(self) -> None:
        """Put it in again."""
        gpu = GPUS[self.gpus]
        self.gpus += 1
        self.load()
        information = self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
        write(information, information_text(gpu, self.version))
        write_pci_device(self.root / "sys", gpu)
        for node in gpu.nodes:
            make_node(self.root, node)

    def configure(self, text: str = "") -> None:
        """Write the configuration; what reads it has to be started anew."""
        write(self.root / "etc/cdigen/config.yaml", CONFIG + text)

    def cdigen(self, *arguments: str) -> str:
        """Call a command of cdigen for this host, which must succeed, and return its output."""
        command = (sys.executable, "-m", "cdigen", *arguments, "--root", str(self.root))
        return succeeded(command, cwd=REPOSITORY)

    def driver_files(self) -> set[str]:
        """Return where the spec mounts something into a container with GPU 0."""
        document = json.loads((self.root / "run/cdi/nvidia.com-gpu.json").read_text())
        edits = [document["containerEdits"]]
        edits += [row["containerEdits"] for row in document["devices"] if row["name"] == "0"]
        return {mount["containerPath"] for edit in edits for mount in edit.get("mounts", ())}

    # The node.

    def allocatable(self, resource: str = GPU) -> int:
        """Return how many of RESOURCE pods can have, as the API server knows it."""
        return self.node.allocatable(resource)

    def has(self, count: int, resource: str = GPU, *, timeout_s: float = HOST_PATIENCE_S) -> float:
        """Wait until so many of RESOURCE are allocatable; returns how many seconds that took."""
        begun_s = time.monotonic()

        def reached() -> bool | None:
            self.revive()
            with suppress(OSError):
                return self.allocatable(resource) == count or None
            return None

        eventually(reached, f"{count} of {resource}", timeout_s=timeout_s, told=self.told)
        return time.monotonic() - begun_s

    def told(self) -> str:
        """Return what everybody has said last."""
        return f"{self.plugin.log}\n{self.daemon.log[-1500:]}\n{self.node.kubelet.log}"

    def status(self) -> dict[str, Any]:
        """Return the status of the device plugins."""
        found: dict[str, Any] = json.loads((self.node.folder / "plugin/status.json").read_text())
        return found

    def stop(self, name: str, number: signal.Signals) -> None:
        """End a program by a signal: kubelet, containerd, plugin or daemon."""
        self._program(name).stop(number)

    def start(self, name: str) -> None:
        """Start it again, without waiting for what it does."""
        self._program(name).start()

    def revive(self) -> None:
        """Start the kubelet again if it has ended: it gives up where no runtime listens."""
        self.node.kubelet.check()

    def _program(self, name: str) -> Any:
        programs = {"plugin": self.plugin, "daemon": self.daemon, "containerd": self.node.containerd}
        return programs.get(name, self.node.kubelet)

    def manifest(self, name: str, limits: Mapping[str, int], **fields: Any) -> dict[str, Any]:
        """Describe a pod whose container asks for LIMITS, a number of each resource."""
        asked = {resource: str(count) for resource, count in limits.items()}
        return pod_manifest(name, container={"resources": {"limits": asked}}, **fields)

    def create(self, manifest: Mapping[str, Any]) -> Pod:
        """Create a pod."""
        self.node.api.create(manifest)
        metadata = manifest["metadata"]
        return Pod(node=self.node, name=metadata["name"], namespace=metadata["namespace"])

    def pod(self, name: str, limits: Mapping[str, int], **fields: Any) -> Pod:
        """Create a pod of `manifest`."""
        return self.create(self.manifest(name, limits, **fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a container finds: NODES with their numbers, and MOUNTS, in their order."""

    nodes: tuple[str, ...]
    mounts: tuple[str, ...]


def look(pod: Pod) -> Seen:
    """Return what the container of POD finds."""
    nodes, _, mounts = pod.sh(LOOK).partition("--\n")
    return Seen(nodes=tuple(nodes.splitlines()), mounts=tuple(mounts.splitlines()))


def gpu_nodes(*numbers: int) -> set[str]:
    """Return the nodes of NVIDIA's GPUs with these numbers, and those that all GPUs share."""
    own = (node for number in numbers for node in GPUS[number].nodes)
    return {f"{node.path} {node.major:x}:{node.minor:x}" for node in (*own, *control_nodes())}


@contextmanager
def running_gpu_node(cache: Path, tree: Path, release: Release, config: str = "") -> Iterator[GpuNode]:
    """Run a node with eight GPUs of NVIDIA, two partitions of one of AMD's, and one of Intel's.

    TREE is a Debian with two versions of the driver's packages. It begins with the older one, and CONFIG.
    """
    with tempfile.TemporaryDirectory(prefix="gpus-", dir=cache) as folder, standin.trusted_folder() as nvml:
        root = Path(folder) / "root"
        older = make_host(root, tree)
        log = FakeLog(root / "dev/kmsg")
        with running_node(cache, release) as node, within(node, "chroot", root, "sleep", "infinity") as host:
            node.mount_specs(MOUNT, root, node.specs)
            arguments = ("--root", str(root))
            kubelet = ("--kubelet-dir", f"{node.folder}/kubelet", "--run-dir", f"{node.folder}/plugin")
            library = nvml / standin.SONAME
            gpu_node = GpuNode(
                node=node,
                root=root,
                daemon=Program(
                    arguments=("run", *arguments, "--nvml", str(library)), log_file=root.parent / "daemon.log"
                ),
                plugin=Program(
                    arguments=("kubelet", *arguments, *kubelet), log_file=root.parent / "plugin.log"
                ),
                upgraded=Upgraded(host=host, root=root),
                log=log,
                nvml=nvml,
                version=older,
            )
            node.kubelet.comes_back = True
            gpu_node.configure(config)
            gpu_node.load()
            try:
                gpu_node.daemon.start()
                gpu_node.plugin.start()
                gpu_node.has(len(GPUS))
                yield gpu_node
                node.remove_pods()
            finally:
                gpu_node.plugin.close()
                gpu_node.daemon.close()
                log.close()


def make_host(root: Path, tree: Path, *, hook: bool = True) -> str:
    """Lay the host with the HOOK or not, whose driver was not looked at yet; returns its version."""
    copy_tree(tree, root, own=WRITTEN_IN_PLACE)
    older = min(path.name for path in (root / PACKAGES).iterdir())
    make_basic_nodes(root)
    for name in ("dev/pts", "dev/shm", "dev/mqueue", "run/cdi", "run/cdigen", "var/lib/cdigen"):
        (root / name).mkdir(parents=True, exist_ok=True)
    amd_tree.write(root, AMDS)
    intel_tree.lay(root, FLEX)
    write_kernel_side(root, GPUS, driver_version=older)
    write_minors(root, len(GPUS))
    write(root / "proc/sys/kernel/random/boot_id", BOOT)
    if hook:
        install_hook(root)
    # containerd copies them for each pod.
    for name in ("hosts", "resolv.conf"):
        write(root / "etc" / name, "")
    return older


@contextmanager
def within(node: Node, *command: str | Path) -> Iterator[Host]:
    """Yield the host as its own programs see it, such as those of the driver's packages.

    COMMAND enters it in the node's namespaces, and becomes `sleep` there.
    """
    with subprocess.Popen(node.enter(*command)) as process:
        try:
            yield Host(pid=eventually(lambda: _sleeping(process.pid), "the host is entered"))
        finally:
            with suppress(ValueError):
                os.kill(only_child(process.pid), signal.SIGKILL)


def _sleeping(pid: int) -> int | None:
    with suppress(ValueError, OSError):
        child = only_child(pid)
        if Path(f"/proc/{child}/comm").read_text() == "sleep\n":
            return child
    return None
