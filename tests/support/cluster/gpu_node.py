"""A real Kubernetes node with the GPUs of a fake host: `running_gpu_node`.

The host is a tree with real driver packages, files of the kernel's interfaces, and real device nodes. Its
folders are mounted over the node's folders that containers use. `cdigen run` and `cdigen kubelet` are real
processes outside of the node's namespaces. They use the tree and the kubelet's folder, as if
both were mounted into a container.
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
# The NVIDIA GPUs have no DRM nodes, because these would have the minor numbers of the AMD and Intel nodes.
GPUS = tuple(replace(gpu, card=None, render=None) for gpu in example_gpus(8))
AMDS = amd_tree.mi300x(2, count=1)
FLEX = intel_tree.gpu(40, "0000:e7:00.0", intel_tree.FLEX_170, "i915")
BOOT = "11111111-2222-3333-4444-555555555555\n"
# The device nodes have no driver. Without the key `health`, the daemon would report them as unusable. The
# daemon makes no resync while a test waits, so that each change is the effect of an event.
CONFIG = "health: {ignore: [node-unusable]}\ndaemon: {settle_timeout_s: 2, resync_s: 3600}\n"

# A script for the node's namespaces: it mounts the host's folders, but not its fake /proc and /sys.
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

# A script for a container: it prints each driver version whose libcuda is in the container.
LIBRARIES = "find /usr /lib -name 'libcuda.so.[0-9][0-9]*' | sed 's/.*so[.]//' | sort -u"
# A script for a container: it prints a line "path major:minor" (hexadecimal) for each device node that is not
# in a folder `by-path`, a line "--", and the mount points.
CONTAINER_DEVICES = """find /dev -type c -not -path '*/by-path/*' -exec stat -c '%n %t:%T' {} +
echo --
cut -d' ' -f5 /proc/self/mountinfo"""


@dataclass(kw_only=True)
class Program:
    """A process of cdigen that can be stopped and started; it appends its log to a file."""

    arguments: tuple[str, ...]
    log_file: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """The last 4,000 characters of the log."""
        return self.log_file.read_text(errors="replace")[-4000:]

    def start(self) -> None:
        """Start the process without waiting."""
        with self.log_file.open("ab") as log:
            command = (sys.executable, "-m", "cdigen", *self.arguments)
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process with a signal. SIGTERM must result in exit code 0, or kill a starting process."""
        assert self.process
        self.process.send_signal(number)
        code = self.process.wait(timeout=HOST_PATIENCE_S)
        assert code in ((0, -number) if number == signal.SIGTERM else (-number,)), (code, self.log)

    def close(self) -> None:
        """Kill the process if it runs."""
        if self.process:
            self.process.kill()
            self.process.wait()


@dataclass(kw_only=True)
class GpuNode:
    """A node with GPUs, the daemon and the device plugins."""

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
        """Configure the fake NVML, and load the module of VERSION if VERSION is given."""
        self.version = version or self.version
        gpus = tuple(
            standin.Gpu(
                address=gpu.bdf,
                uuid=gpu.uuid,
                minor=gpu.minor,
                mig=gpu.minor in self.instances,
                instances=self.instances.get(gpu.minor, ()),
            )
            for gpu in GPUS[: self.gpus]
        )
        standin.install(self.nvml, standin.Machine(driver=self.version, gpus=gpus))
        if version:
            self.upgraded.load_module(version, GPUS[: self.gpus])

    def split(self, gpu: int, profiles: Mapping[int, str]) -> None:
        """Enable MIG on GPU with the instances PROFILES (number: profile); disable MIG if there are none."""
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
        """Remove the last GPU, like a hot removal. (The fake NVML supports no gap in the indexes.)"""
        self.gpus -= 1
        self.load()
        gpu = GPUS[self.gpus]
        remove_tree(self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}", within=self.root)
        for folder in ("bus/pci/devices", "bus/pci/drivers/nvidia"):
            (self.root / "sys" / folder / gpu.bdf).unlink()
        for node in gpu.nodes:
            self.root.joinpath(node.path.lstrip("/")).unlink()

    def put_in(self) -> None:
        """Add the last GPU again."""
        gpu = GPUS[self.gpus]
        self.gpus += 1
        self.load()
        information = self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
        write(information, information_text(gpu, self.version))
        write_pci_device(self.root / "sys", gpu)
        for node in gpu.nodes:
            make_node(self.root, node)

    def configure(self, text: str = "") -> None:
        """Write CONFIG and TEXT as the configuration; programs read it at their start."""
        write(self.root / "etc/cdigen/config.yaml", CONFIG + text)

    def cdigen(self, *arguments: str) -> str:
        """Run a command of cdigen for this host, and return its output; the command must succeed."""
        command = (sys.executable, "-m", "cdigen", *arguments, "--root", str(self.root))
        return succeeded(command, cwd=REPOSITORY)

    def driver_files(self) -> set[str]:
        """Return the container paths that the spec mounts for GPU 0."""
        document = json.loads((self.root / "run/cdi/nvidia.com-gpu.json").read_text())
        edits = [document["containerEdits"]]
        edits += [row["containerEdits"] for row in document["devices"] if row["name"] == "0"]
        return {mount["containerPath"] for edit in edits for mount in edit.get("mounts", ())}

    # The node.

    def allocatable(self, resource: str = GPU) -> int:
        """Return the node's allocatable number of RESOURCE, as the API server reports it."""
        return self.node.allocatable(resource)

    def has(self, count: int, resource: str = GPU, *, timeout_s: float = HOST_PATIENCE_S) -> float:
        """Wait until COUNT units of RESOURCE are allocatable; return the waiting time in seconds."""
        begun_s = time.monotonic()

        def reached() -> bool | None:
            with suppress(OSError):
                return self.allocatable(resource) == count or None
            return None

        eventually(reached, f"{count} of {resource}", timeout_s=timeout_s, details=self.logs)
        return time.monotonic() - begun_s

    def logs(self) -> str:
        """Return the last log lines of all programs."""
        return f"{self.plugin.log}\n{self.daemon.log[-1500:]}\n{self.node.kubelet.log}"

    def status(self) -> dict[str, Any]:
        """Return the status of the device plugins."""
        found: dict[str, Any] = json.loads((self.node.folder / "plugin/status.json").read_text())
        return found

    def stop(self, name: str, number: signal.Signals) -> None:
        """Stop a program by a signal: kubelet, containerd, plugin or daemon."""
        self._program(name).stop(number)

    def start(self, name: str) -> None:
        """Start a program again without waiting."""
        self._program(name).start()

    def _program(self, name: str) -> Any:
        programs = {"plugin": self.plugin, "daemon": self.daemon, "containerd": self.node.containerd}
        return programs.get(name, self.node.kubelet)

    def manifest(self, name: str, limits: Mapping[str, int], **fields: Any) -> dict[str, Any]:
        """Return the manifest of a pod whose container has LIMITS, by resource."""
        quantities = {resource: str(count) for resource, count in limits.items()}
        return pod_manifest(name, container={"resources": {"limits": quantities}}, **fields)

    def create(self, manifest: Mapping[str, Any]) -> Pod:
        """Create a pod."""
        self.node.api.create(manifest)
        metadata = manifest["metadata"]
        return Pod(node=self.node, name=metadata["name"], namespace=metadata["namespace"])

    def pod(self, name: str, limits: Mapping[str, int], **fields: Any) -> Pod:
        """Create the pod of the manifest that `manifest` returns."""
        return self.create(self.manifest(name, limits, **fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """The device nodes of a container ("path major:minor", hexadecimal), and its mount points in order."""

    nodes: tuple[str, ...]
    mounts: tuple[str, ...]


def container_devices(pod: Pod) -> ContainerDevices:
    """Return the device nodes and the mounts in the container of POD."""
    nodes, _, mounts = pod.sh(CONTAINER_DEVICES).partition("--\n")
    return ContainerDevices(nodes=tuple(nodes.splitlines()), mounts=tuple(mounts.splitlines()))


def gpu_nodes(*numbers: int) -> set[str]:
    """Return "path major:minor" of the nodes of the NVIDIA GPUs NUMBERS, and of the control nodes."""
    own = (node for number in numbers for node in GPUS[number].nodes)
    return {f"{node.path} {node.major:x}:{node.minor:x}" for node in (*own, *control_nodes())}


@contextmanager
def running_gpu_node(cache: Path, tree: Path, release: Release, config: str = "") -> Iterator[GpuNode]:
    """Run a node with eight NVIDIA GPUs, two partitions of an AMD GPU, and an Intel GPU.

    TREE is a Debian root with two versions of the driver's packages. The node starts with the older version
    and with CONFIG.
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
    """Create the host from TREE, with cdigen's hook if HOOK is true; return the loaded module's version."""
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
    # containerd copies these files for each pod.
    for name in ("hosts", "resolv.conf"):
        write(root / "etc" / name, "")
    return older


@contextmanager
def within(node: Node, *command: str | Path) -> Iterator[Host]:
    """Yield the host, in which a test can run programs such as the scripts of the driver's packages.

    COMMAND enters the host in the node's namespaces, and then executes `sleep`.
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
