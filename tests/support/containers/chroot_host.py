"""Hosts to run podman in: a Debian tree entered as if the machine had booted it, or the machine itself.

`running_host` is the one to call. What happens in a host stays there: its root is a throw-away overlay, its
mounts and processes are in namespaces of their own and end with it. enter-host does the mounting.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.hosts.nvidia_kernel import Node
from support.processes import captured
from support.waiting import HOST_PATIENCE_S

MACHINE = Path("/")
DEBIAN_IMAGE = "localhost/debian-like"  # libraries in /usr/lib/x86_64-linux-gnu
REDHAT_IMAGE = "localhost/redhat-like"  # libraries in /usr/lib64, the only place that its loader searches
BULLSEYE_IMAGE = "localhost/bullseye-like"  # glibc 2.31, /lib is a folder
MUSL_IMAGE = "localhost/musl-like"  # musl's loader, libtiny.so in /usr/lib
# The Debian image with a change:
MANY_IMAGE = "localhost/many-libraries"  # 5,000 more in /opt/many/lib, found through the cache
NO_CACHE_IMAGE = "localhost/no-cache"  # no /etc/ld.so.cache
OLD_DRIVER_IMAGE = "localhost/old-driver"  # libcuda and libnvidia-ml 535 in the default folder
OLD_DRIVER_ELSEWHERE_IMAGE = "localhost/old-driver-elsewhere"  # in /opt/old-driver/lib, by the cache
GLIBC_IMAGES = (
    DEBIAN_IMAGE,
    REDHAT_IMAGE,
    BULLSEYE_IMAGE,
    MANY_IMAGE,
    NO_CACHE_IMAGE,
    OLD_DRIVER_IMAGE,
    OLD_DRIVER_ELSEWHERE_IMAGE,
)

ENVIRONMENT = (
    # podman lives for a tenth of a second: a quarter of its processor time was garbage collection.
    "GOGC=off",
    "HOME=/root",
    "LANG=C.UTF-8",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PODMAN_IGNORE_CGROUPSV1_WARNING=1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A running host, known by its first process (the number that this machine gives it)."""

    pid: int

    def attempt(
        self, script: str, *, stdin: str = "", timeout_s: float = HOST_PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a bash script as root in the host and return what became of it."""
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--root", "--wd")
        bash = ("env", "--ignore-environment", *ENVIRONMENT, "bash", "-eu", "-o", "pipefail", "-c")
        return captured([*enter, *bash, script], input=stdin, timeout=timeout_s)

    def run(self, script: str, *, stdin: str = "", timeout_s: float = HOST_PATIENCE_S) -> str:
        """Run a bash script as root in the host, which must succeed, and return its standard output."""
        done = self.attempt(script, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, f"exit {done.returncode}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def gpu_nodes(self, image: str, device: str) -> set[Node]:
        """Start a container with a CDI device (vendor/class=name) and list the GPU nodes that it finds."""
        command = (
            "find /dev -type c \\( -name 'nvidia*' -o -path '/dev/dri/*' \\) -exec stat -c '%n %t %T' {} +"
        )
        listed = self.run(f'podman run --rm --device {device} {image} sh -c "{command}"')
        rows = (line.split() for line in listed.splitlines())
        return {Node(path=path, major=int(major, 16), minor=int(minor, 16)) for path, major, minor in rows}

    def put(self, path: str, content: str) -> None:
        """Write a file of the host. Not from outside: there, links like /var/run lead to this machine's."""
        self.run(f"mkdir -p '{Path(path).parent}' && cat >'{path}'", stdin=content)


@contextmanager
def running_host(tree: Path, *, images: Path, state: Path | None = None) -> Iterator[Host]:
    """Run the Debian tree (or MACHINE) as a host until the context ends.

    images is the podman store that `provision` makes. state is a folder whose dev/ and run/ appear in the
    host's new /dev and /run; by default tree itself, so that nodes and specs written there before are seen.
    Raises RuntimeError where the host cannot be set up.
    """
    enter_host = Path(__file__).with_name("enter-host")
    with tempfile.TemporaryDirectory(prefix="cdigen-host-") as work:
        if state is None:
            state = tree if tree != MACHINE else Path(work)
        with held(enter_host, tree, images, state, work) as host:
            yield host


@contextmanager
def held(*enter: str | Path) -> Iterator[Host]:
    """Run the command ENTER in namespaces of its own as the first process of a host until the context ends.

    It prints its number on this machine once all is there, and lives until its standard input ends. Raises
    RuntimeError with its words where it does not come to that.
    """
    unshare = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
    holder = subprocess.Popen(
        [*unshare, *enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        pid = holder.stdout.readline().strip()
        if not pid:
            raise RuntimeError(f"cannot enter the host: {holder.stderr.read()}")
        host = Host(pid=int(pid))
        try:
            yield host
        finally:
            # By hand: containers' cgroups lie outside of every namespace of the host.
            host.attempt("podman rm --all --force --time 0")
    finally:
        # The end of its standard input ends the first process; the kernel then ends all the others.
        try:
            holder.communicate(timeout=HOST_PATIENCE_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            raise
