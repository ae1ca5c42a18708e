"""Hosts for podman: a Debian tree as the root, as if the machine had booted it, or the machine itself.

Use `running_host`. A host cannot change the machine: its root is a temporary overlay, and its mounts and
processes are in their own namespaces and end with the host. enter-host makes the mounts.
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
REDHAT_IMAGE = "localhost/redhat-like"  # libraries in /usr/lib64, the only folder that its loader searches
BULLSEYE_IMAGE = "localhost/bullseye-like"  # glibc 2.31, /lib is a folder
MUSL_IMAGE = "localhost/musl-like"  # musl's loader, libtiny.so in /usr/lib
# The Debian image with a change:
MANY_IMAGE = "localhost/many-libraries"  # 5,000 more libraries in /opt/many/lib, found through the cache
NO_CACHE_IMAGE = "localhost/no-cache"  # no /etc/ld.so.cache
OLD_DRIVER_IMAGE = "localhost/old-driver"  # libcuda and libnvidia-ml 535 in the default folder
OLD_DRIVER_ELSEWHERE_IMAGE = "localhost/old-driver-elsewhere"  # the same, in /opt/old-driver/lib
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
    # podman runs for a tenth of a second. Garbage collection took a quarter of its CPU time.
    "GOGC=off",
    "HOME=/root",
    "LANG=C.UTF-8",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PODMAN_IGNORE_CGROUPSV1_WARNING=1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A running host, identified by its first process (by its ID on this machine)."""

    pid: int

    def attempt(
        self, script: str, *, stdin: str = "", timeout_s: float = HOST_PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a bash script as root in the host and return the result."""
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--root", "--wd")
        bash = ("env", "--ignore-environment", *ENVIRONMENT, "bash", "-eu", "-o", "pipefail", "-c")
        return captured([*enter, *bash, script], input=stdin, timeout=timeout_s)

    def run(self, script: str, *, stdin: str = "", timeout_s: float = HOST_PATIENCE_S) -> str:
        """Run a bash script as root in the host, and return its standard output; the script must succeed."""
        done = self.attempt(script, stdin=stdin, timeout_s=timeout_s)
        assert done.returncode == 0, f"exit {done.returncode}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def gpu_nodes(self, image: str, device: str) -> set[Node]:
        """Start a container with a CDI device (vendor/class=name), and return the GPU nodes in it.

        The nodes in /dev/dri/by-path, which are further names of nodes in /dev/dri, are left out.
        """
        command = (
            "find /dev -type c \\( -name 'nvidia*' -o -path '/dev/dri/*' \\) -not -path '*/by-path/*' "
            "-exec stat -c '%n %t %T' {} +"
        )
        listed = self.run(f'podman run --rm --device {device} {image} sh -c "{command}"')
        rows = (line.split() for line in listed.splitlines())
        return {Node(path=path, major=int(major, 16), minor=int(minor, 16)) for path, major, minor in rows}

    def put(self, path: str, content: str) -> None:
        """Write a file from inside the host: outside, links like /var/run would lead to the machine."""
        self.run(f"mkdir -p '{Path(path).parent}' && cat >'{path}'", stdin=content)


@contextmanager
def running_host(tree: Path, *, images: Path, state: Path | None = None) -> Iterator[Host]:
    """Run the Debian tree (or MACHINE) as a host until the context ends.

    IMAGES is the podman store that `provision` makes. STATE is a folder whose dev/ and run/ are copied into
    the host's new /dev and /run. By default STATE is TREE, so that the host has the nodes and specs of TREE.
    Raises RuntimeError if the host cannot be set up.
    """
    enter_host = Path(__file__).with_name("enter-host")
    with tempfile.TemporaryDirectory(prefix="cdigen-host-") as work:
        if state is None:
            state = tree if tree != MACHINE else Path(work)
        with held(enter_host, tree, images, state, work) as host:
            yield host


@contextmanager
def held(*enter: str | Path) -> Iterator[Host]:
    """Run the command ENTER in new namespaces as the first process of a host until the context ends.

    ENTER prints its process ID on this machine when the host is ready, and runs until its standard input
    ends. Raises RuntimeError with the output of ENTER if it fails.
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
            # The containers' cgroups do not end with the host's namespaces.
            host.attempt("podman rm --all --force --time 0")
    finally:
        # The end of its standard input ends the first process. Then the kernel ends all other processes.
        try:
            holder.communicate(timeout=HOST_PATIENCE_S)
        except subprocess.TimeoutExpired:
            holder.kill()
            raise
