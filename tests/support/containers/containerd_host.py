"""A real containerd with CRI and NRI, separate from the machine's containerd: `running_containerd`.

`RELEASES` are the releases that `provision` unpacks. Root, state and sockets are in a folder. Processes and
mounts are in new namespaces, and end with these namespaces. Pods share the network of the namespaces, so no
CNI plugin is necessary. The only image is that of busybox_image.py.
"""

import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from support.containers.busybox_image import IMAGE, write_image
from support.containers.cri_client import Cri
from support.processes import succeeded
from support.waiting import HOST_PATIENCE_S

T = TypeVar("T")

HOST = 2  # NamespaceMode NODE: pods have no network namespace of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of containerd: its tree below the cache, and the tables of its configuration.

    `image` is the key of the pause image in the table `images`. A part before a dot is a subtable. The
    default `snapshotter` copies the files of an image, so that it works on every file system.
    """

    tree: str
    version: int
    runtime: str
    images: str
    image: str
    snapshotter: str = "native"


RELEASES = {
    "forky": Release(
        tree="runtimes-forky",
        version=3,
        runtime="io.containerd.cri.v1.runtime",
        images="io.containerd.cri.v1.images",
        image="pinned_images.sandbox",
    ),
    # containerd 1.7. Its NRI 0.6 drops CDI devices without a message.
    "trixie": Release(
        tree="containerd-trixie",
        version=2,
        runtime="io.containerd.grpc.v1.cri",
        images="io.containerd.grpc.v1.cri",
        image="sandbox_image",
    ),
}

# restrict_oom_score_adj: to lower oom_score_adj, containerd needs CAP_SYS_RESOURCE, which a machine may lack.
CONFIG = """\
version = {version}
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/c.sock"
[ttrpc]
  address = "{folder}/c.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  disable_connections = false
  socket_path = "{folder}/nri/nri.sock"
  plugin_path = "{folder}/plugins"
  plugin_config_path = "{folder}/conf.d"
[plugins."{runtime}"]
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."{runtime}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.gpus]
  runtime_type = "io.containerd.runc.v2"
"""


@dataclass(kw_only=True)
class Place:
    """The sockets and folders of a runtime and its plugins, all below FOLDER."""

    folder: Path

    @property
    def specs(self) -> Path:
        """The only folder from which the runtime reads CDI specs."""
        return self.folder / "cdi"

    @property
    def nri(self) -> Path:
        """The socket to which plugins connect."""
        return self.folder / "nri/nri.sock"


@dataclass(kw_only=True)
class Containerd(Place):
    """A containerd that can be stopped and started."""

    release: Release
    binaries: Path
    holder: int
    cri: Cri
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def log(self) -> str:
        """The last lines of containerd's log."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def enter(self, *command: str | Path) -> list[str | Path]:
        """Return COMMAND as a command in containerd's namespaces."""
        there = ("--mount", "--pid", "--net", "--uts", "--wd=/")
        return ["nsenter", f"--target={self.holder}", *there, *command]

    def start(self) -> None:
        """Start the daemon and wait until it listens for plugins and kubelets."""
        before = self._sockets()
        path = f"{self.binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(
                self.enter(self.binaries / "containerd", "--config", self.folder / "config.toml"),
                env={"PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def is_up() -> bool | None:
            assert process.poll() is None, self.log
            return self._sockets().isdisjoint({*before, None}) or None

        eventually(is_up, "containerd listens", details=lambda: self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with SIGTERM, as a service manager does, or with NUMBER; containers keep running."""
        if self._process and self._process.poll() is None:
            # nsenter does not forward signals to its child.
            os.kill(only_child(self._process.pid), number)
            self._process.wait(timeout=HOST_PATIENCE_S)

    def _sockets(self) -> set[tuple[int, int] | None]:
        """Return inode and time of each socket, None if it is missing; sockets of the last run remain."""
        found: set[tuple[int, int] | None] = set()
        for path in (self.folder / "c.sock", self.nri):
            try:
                status = path.stat()
            except FileNotFoundError:
                found.add(None)
            else:
                found.add((status.st_ino, status.st_ctime_ns))
        return found

    def ctr(self, *arguments: str | Path) -> None:
        """Run ctr with containerd's namespace k8s.io, which CRI uses."""
        command = (self.binaries / "ctr", "--address", self.folder / "c.sock", "--namespace", "k8s.io")
        succeeded(self.enter(*command, *arguments), timeout=HOST_PATIENCE_S)

    def version(self) -> str:
        """Return the version that CRI reports."""
        version: str = self.cri.call("Version", wait=True).runtime_version
        return version

    # Pods and containers.

    def pod(
        self,
        *,
        namespace: str = "ml",
        handler: str = "",
        privileged: bool = False,
        **fields: Mapping[str, str],
    ) -> "Pod":
        """Run a pod (FIELDS are annotations and labels); PRIVILEGED permits privileged containers."""
        name = f"pod{next(self._numbers)}"
        config: dict[str, Any] = {
            "metadata": {"name": name, "uid": f"uid-{name}", "namespace": namespace},
            "linux": {
                "cgroup_parent": f"/{self.folder.name}",
                "security_context": security(privileged=privileged),
            },
            **fields,
        }
        answer = self.cri.call("RunPodSandbox", config=config, runtime_handler=handler)
        return Pod(host=self, id=answer.pod_sandbox_id, config=config)

    def container(
        self, *env: str, namespace: str = "ml", annotations: Mapping[str, str] | None = None, **fields: object
    ) -> "Container":
        """Run a pod with a container that has ENV (KEY=value); raises CriError."""
        pod = self.pod(namespace=namespace, annotations=annotations or {})
        return pod.container(*env, **fields)

    def remove_all(self) -> None:
        """Remove all pods with their containers."""
        for pod in self.cri.call("ListPodSandbox", wait=True).items:
            self.cri.call("StopPodSandbox", pod_sandbox_id=pod.id)
            self.cri.call("RemovePodSandbox", pod_sandbox_id=pod.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running pod."""

    host: Containerd
    id: str
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the pod."""
        return str(self.config["metadata"]["name"])

    def create(self, *env: str, name: str = "main", **fields: object) -> "Container":
        """Create a container with ENV (KEY=value) and FIELDS of ContainerConfig; raises CriError."""
        pairs = (variable.partition("=") for variable in env)
        config: dict[str, object] = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "envs": [{"key": key, "value": value} for key, _, value in pairs],
            "linux": {"security_context": self.config["linux"]["security_context"]},
            **fields,
        }
        answer = self.host.cri.call(
            "CreateContainer", pod_sandbox_id=self.id, config=config, sandbox_config=self.config
        )
        return Container(pod=self, id=answer.container_id, name=name)

    def container(self, *env: str, **fields: Any) -> "Container":
        """Create and start a container; raises CriError."""
        made = self.create(*env, **fields)
        self.host.cri.call("StartContainer", container_id=made.id)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that was created."""

    pod: Pod
    id: str
    name: str

    def sh(self, script: str) -> str:
        """Run a shell script in the container, and return its output."""
        answer = self.pod.host.cri.call(
            "ExecSync", container_id=self.id, cmd=["sh", "-c", script], timeout=30
        )
        output: str = (answer.stdout + answer.stderr).decode()
        return output

    def nodes(self) -> dict[str, str]:
        """Return the GPU nodes in the container, each with its major and minor number in hexadecimal."""
        rows = self.sh("stat -c '%n %t:%T' /dev/nvidia* 2>/dev/null").split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def spec(self) -> dict[str, Any]:
        """Return the OCI configuration that runc received."""
        answer = self.pod.host.cri.call("ContainerStatus", container_id=self.id, verbose=True)
        spec: dict[str, Any] = json.loads(answer.info["info"])["runtimeSpec"]
        return spec

    def environment(self) -> dict[str, str]:
        """Return the variables of the container."""
        return dict(row.split("=", 1) for row in self.spec()["process"]["env"])


def security(*, privileged: bool) -> dict[str, object]:
    """Return the security context of a pod or a container."""
    return {"privileged": privileged, "namespace_options": {"network": HOST}}


def eventually(
    read: Callable[[], T | None],
    what: str,
    *,
    timeout_s: float = HOST_PATIENCE_S,
    details: Callable[[], object] = lambda: "",
) -> T:
    """Call READ until its result is not None; return the result. AssertionError with WHAT after TIMEOUT_S."""
    deadline = time.monotonic() + timeout_s
    while (result := read()) is None:
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{details()}"
        time.sleep(0.02)
    return result


@contextmanager
def running_containerd(cache: Path, release: Release) -> Iterator[Containerd]:
    """Run containerd, with the busybox image, until the context ends."""
    with (
        holding_node() as (holder, folder),
        containerd_within(holder, folder, cache=cache, release=release) as host,
    ):
        print(host.version())
        yield host
        host.remove_all()


@contextmanager
def containerd_within(
    holder: int, folder: Path, *, cache: Path, release: Release, settings: str = ""
) -> Iterator[Containerd]:
    """Run containerd with additional SETTINGS in the namespaces of process HOLDER until the context ends."""
    # Only these three programs are linked: others of the release may need a newer libc than the machine has.
    binaries = folder / "bin"
    for made in ("bin", "cdi", "plugins", "conf.d", "nri", "opt"):
        (folder / made).mkdir()
    for binary in ("containerd", "containerd-shim-runc-v2", "ctr"):
        (binaries / binary).symlink_to(cache / release.tree / "usr/bin" / binary)
    (folder / "config.toml").write_text(configuration(release, folder) + settings)
    cri = Cri(folder / "c.sock")
    host = Containerd(release=release, binaries=binaries, folder=folder, holder=holder, cri=cri)
    try:
        host.start()
        write_image(folder / "image.tar", cache / "runtimes-forky/usr/bin/busybox")
        local = ("--local",) if release.version > 2 else ()
        host.ctr("images", "import", *local, "--snapshotter", release.snapshotter, folder / "image.tar")
        yield host
    finally:
        cri.close()
        host.stop()


@contextmanager
def holding_node() -> Iterator[tuple[int, Path]]:
    """Make namespaces and a folder; yield the ID of the first process in them, and the folder.

    At the end, hold-node ends all processes in the namespaces, and removes the folder and the cgroups with
    its name.
    """
    # A socket's path has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="cdigen-node-"))
    # In a new session, so that hold-node continues and cleans up if the tests are killed.
    with subprocess.Popen(
        [Path(__file__).with_name("hold-node"), folder, folder.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as outer:
        assert outer.stdout
        # hold-node outside of the namespaces and hold-node inside write a line each, in any order.
        lines = sorted(outer.stdout.readline() for _ in range(2))
        assert lines[1] == "ready\n", lines
        first = lines[0]
        try:
            yield int(first), folder
        finally:
            outer.communicate(timeout=HOST_PATIENCE_S)


def only_child(pid: int) -> int:
    """Return the ID of the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def configuration(release: Release, folder: Path) -> str:
    """Return containerd's configuration file."""
    text = CONFIG.format(version=release.version, folder=folder, runtime=release.runtime)
    table, _, key = release.image.rpartition(".")
    images = {f"{table}.{key}".strip("."): IMAGE}
    rows = "".join(f'{name} = "{value}"\n' for name, value in images.items())
    if release.images == release.runtime:
        text = text.replace("  enable_cdi", f"  {rows}  enable_cdi")
        text += f'[plugins."{release.runtime}".containerd]\nsnapshotter = "{release.snapshotter}"\n'
    else:
        text += f'[plugins."{release.images}"]\nsnapshotter = "{release.snapshotter}"\n{rows}'
    return text
