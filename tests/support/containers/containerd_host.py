"""A real containerd with CRI and NRI, of which nothing is the machine's own: `running_containerd`.

`RELEASES` are those that `provision` unpacks. Root, state and sockets are in a folder; its processes and
mounts are in namespaces of their own and end with them. Pods share the network in there, so that no CNI is
needed. There is one image, busybox, made here.
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

HOST = 2  # NamespaceMode NODE: the namespace is the machine's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A containerd: the tree below the cache that has it, and the tables of its configuration.

    `image` is the key that names the pause image, in a table of its own or in that of the images. The
    `snapshotter` copies by default what an image has, so that it works on every file system.
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
    # 1.7: its NRI, 0.6, drops CDI devices silently.
    "trixie": Release(
        tree="containerd-trixie",
        version=2,
        runtime="io.containerd.grpc.v1.cri",
        images="io.containerd.grpc.v1.cri",
        image="sandbox_image",
    ),
}

# restrict_oom_score_adj: lowering it needs CAP_SYS_RESOURCE, which a test machine may lack.
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
    """Where a runtime and its plugins meet, all below FOLDER."""

    folder: Path

    @property
    def specs(self) -> Path:
        """The one folder with CDI specs."""
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
        """The last that containerd has said."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def enter(self, *command: str | Path) -> list[str | Path]:
        """Return COMMAND as one that runs where containerd does."""
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

        eventually(is_up, "containerd listens", told=lambda: self.log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon as its service manager does, or by another signal; containers live on."""
        if self._process and self._process.poll() is None:
            # nsenter does not pass signals on to the process that it waits for.
            os.kill(only_child(self._process.pid), number)
            self._process.wait(timeout=HOST_PATIENCE_S)

    def _sockets(self) -> set[tuple[int, int] | None]:
        """Return what tells its sockets from those of its last run, which stay; None: one is not there."""
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
        """Call ctr in the namespace of CRI."""
        command = (self.binaries / "ctr", "--address", self.folder / "c.sock", "--namespace", "k8s.io")
        succeeded(self.enter(*command, *arguments), timeout=HOST_PATIENCE_S)

    def version(self) -> str:
        """Return the version that CRI tells."""
        said: str = self.cri.call("Version", wait=True).runtime_version
        return said

    # Pods and containers.

    def pod(
        self,
        *,
        namespace: str = "ml",
        handler: str = "",
        privileged: bool = False,
        **fields: Mapping[str, str],
    ) -> "Pod":
        """Run a pod (FIELDS are annotations and labels), whose containers may be PRIVILEGED, and are then."""
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
        """Run a pod with a container that has ENV (KEY=value); CriError."""
        pod = self.pod(namespace=namespace, annotations=annotations or {})
        return pod.container(*env, **fields)

    def remove_all(self) -> None:
        """Remove all pods with their containers."""
        for pod in self.cri.call("ListPodSandbox", wait=True).items:
            self.cri.call("StopPodSandbox", pod_sandbox_id=pod.id)
            self.cri.call("RemovePodSandbox", pod_sandbox_id=pod.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that runs."""

    host: Containerd
    id: str
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config["metadata"]["name"])

    def create(self, *env: str, name: str = "main", **fields: object) -> "Container":
        """Create a container with ENV (KEY=value) and FIELDS of cri.proto's ContainerConfig; CriError."""
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
        """Create and start a container; CriError."""
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
        """Run a shell script in it, and return all that it says."""
        answer = self.pod.host.cri.call(
            "ExecSync", container_id=self.id, cmd=["sh", "-c", script], timeout=30
        )
        said: str = (answer.stdout + answer.stderr).decode()
        return said

    def nodes(self) -> dict[str, str]:
        """Return the GPU nodes in it, each with its numbers in hexadecimal."""
        rows = self.sh("stat -c '%n %t:%T' /dev/nvidia* 2>/dev/null").split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def spec(self) -> dict[str, Any]:
        """Return what runc was given."""
        answer = self.pod.host.cri.call("ContainerStatus", container_id=self.id, verbose=True)
        spec: dict[str, Any] = json.loads(answer.info["info"])["runtimeSpec"]
        return spec

    def environment(self) -> dict[str, str]:
        """Return its variables."""
        return dict(row.split("=", 1) for row in self.spec()["process"]["env"])


def security(*, privileged: bool) -> dict[str, object]:
    """Return the security context of a pod or a container."""
    return {"privileged": privileged, "namespace_options": {"network": HOST}}


def eventually(
    ask: Callable[[], T | None],
    what: str,
    *,
    timeout_s: float = HOST_PATIENCE_S,
    told: Callable[[], object] = lambda: "",
) -> T:
    """Ask until the answer is not None, and return it; AssertionError names WHAT did not come."""
    deadline = time.monotonic() + timeout_s
    while (answer := ask()) is None:
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}\n{told()}"
        time.sleep(0.02)
    return answer


@contextmanager
def running_containerd(cache: Path, release: Release) -> Iterator[Containerd]:
    """Run containerd until the context ends, with its image."""
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
    """Run containerd, configured by further SETTINGS, in the namespaces of HOLDER until the context ends."""
    # Nothing else of the release's tree: what it comes with may need a newer libc than the machine has.
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
    """Hold new namespaces, and yield their first process and a folder; all ends together (hold-node).

    So do cgroups of the folder's name, and all processes in the namespaces.
    """
    # A socket's path has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="cdigen-node-"))
    # Not with the tests' own group: it cleans up after tests that were killed.
    with subprocess.Popen(
        [Path(__file__).with_name("hold-node"), folder, folder.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as outer:
        assert outer.stdout
        # The process outside and the one inside write a line each, in any order.
        lines = sorted(outer.stdout.readline() for _ in range(2))
        assert lines[1] == "ready\n", lines
        first = lines[0]
        try:
            yield int(first), folder
        finally:
            outer.communicate(timeout=HOST_PATIENCE_S)


def only_child(pid: int) -> int:
    """Return the one child of a process."""
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
