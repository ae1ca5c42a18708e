"""GPU hosts, one host for each delivery of the driver to containers; the real cdigen writes the spec.

`gpu_root` makes a host's root for a `Way` (the layout and the hook of a delivery). `Driven` runs containers,
and returns the file that the loader loads for each name, or the output of a command.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from support.containers.chroot_host import REDHAT_IMAGE, Host
from support.hosts.nvidia_kernel import example_gpus, write_kernel_side
from support.own_trees import copy_tree
from support.paths import REPOSITORY

AS_USER = (
    "cd /home/rl; setpriv --reuid rl --regid rl --init-groups env --ignore-environment HOME=/home/rl USER=rl "
    'LOGNAME=rl PATH="$PATH" XDG_RUNTIME_DIR=/run/user/$(id -u rl) PODMAN_IGNORE_CGROUPSV1_WARNING=1'
)


GPUS = example_gpus(2)
DEVICE = "nvidia.com/gpu=0"

# A script for the container. For each name, it prints the file that the loader loaded, or the error. Then it
# prints device and inode of each file.
LOAD = """dlopen-all "$@" | {
    paths=
    while read -r state rest; do echo "$state $rest"; [ "$state" = fail ] || paths="$paths $rest"; done
    [ -z "$paths" ] || stat -L -c %d:%i $paths
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A delivery of the driver to containers, as values of `--layout` and `--hook` of `cdigen generate`."""

    layout: str
    hook: str


WAYS = {
    "files": Way(layout="files", hook="none"),
    "files+hook": Way(layout="files", hook="cdigen"),
    "view+hook": Way(layout="view", hook="cdigen"),
    "hwcaps": Way(layout="hwcaps", hook="none"),
}
HOOKED = tuple(name for name, way in WAYS.items() if way.hook == "cdigen")
HOOKLESS = tuple(name for name, way in WAYS.items() if way.hook == "none")


# crun refuses to work if both versions of cgroups are mounted.
LONE_CGROUP2 = (
    "unshare --mount --propagation private sh -c 'umount --recursive --lazy /sys && "
    'mount -t sysfs sysfs /sys && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"\' sh'
)


def gpu_root(root: Path, driver_tree: Path, way: Way) -> None:
    """Make the root of a host with two GPUs, the installed hook, and the spec (and view) for WAY."""
    copy_tree(driver_tree, root)
    write_kernel_side(root, GPUS)
    install_hook(root)
    generate(root, "--write", "--layout", way.layout, "--hook", way.hook)


def generate(root: Path, *options: str | Path) -> None:
    """Run `cdigen generate` for the host at ROOT; it must succeed without a warning.

    If the host does not support the layout, cdigen uses another layout, with a warning.
    """
    printed = succeed(sys.executable, "-m", "cdigen", "generate", "--root", root, *options)
    assert "warning" not in printed, printed


def install_hook(root: Path) -> None:
    """Install the hook with `make install-hook`, and compile it for the Python of the host at ROOT."""
    succeed("make", "--silent", "install-hook", f"DESTDIR={root}", f"HOOK_PYTHON={sys.executable}")
    compiled = ("-m", "compileall", "-q", "-f", "--invalidation-mode", "checked-hash")
    succeed("chroot", str(root), "/usr/bin/python3", "-I", *compiled, "/usr/libexec/cdigen/lib")


def succeed(*command: str | Path) -> str:
    """Run a command on this machine, and return all its output; the command must succeed."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, f"exit {done.returncode}: {shlex.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A running host that starts containers with a GPU. `podman` is the command before further options."""

    host: Host
    podman: str = f"podman run --rm --device {DEVICE}"

    @cached_property
    def driver(self) -> dict[str, str]:
        """The host's driver libraries: the file of each SONAME that the host's `ldconfig -p` lists."""
        entries = [entry.split() for entry in cache_entries(self.host.run("ldconfig -p"))]
        files = self.host.run(f"readlink -f {' '.join(entry[-1] for entry in entries)}").splitlines()
        return {
            entry[0]: file
            for entry, file in zip(entries, files, strict=True)
            if file.endswith(".so.550.163.01") and not entry[0].endswith(".so")
        }

    def loaded(
        self, image: str, names: list[str] | None = None, *, options: str = "", before: str = "true"
    ) -> dict[str, str]:
        """Load NAMES (by default all driver libraries) in a container; return the host's file for each name.

        If the loader loads another file, the value is "not the host's PATH". If the loader fails, the value
        is "fail REASON". The container runs the command BEFORE first.
        """
        names = list(self.driver) if names is None else names
        stat = f"stat -c '%d:%i' {' '.join(self.driver.values())}"
        files = dict(zip(self.host.run(stat).split(), self.driver.values(), strict=True))
        listed = self.run(
            image, f"sh -c {shlex.quote(f'{before} && {LOAD}')} sh {' '.join(names)}", options=options
        )
        lines = listed.splitlines()
        rows, numbers = lines[: len(names)], iter(lines[len(names) :])
        found = {}
        for name, row in zip(names, rows, strict=True):
            state, rest = row.split(" ", 1)
            found[name] = row if state == "fail" else files.get(next(numbers), f"not the host's {rest}")
        assert next(numbers, None) is None
        return found

    def run(self, image: str, command: str, *, options: str = "") -> str:
        """Run a command in a container with the GPU, and return its output; the command must succeed."""
        return self.host.run(f"{self.podman} {options} {image} {command}")

    def attempt(self, image: str, command: str, *, options: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a container with the GPU and return the result."""
        return self.host.attempt(f"{self.podman} {options} {image} {command}")

    def plain(self, image: str, command: str, *, options: str = "") -> str:
        """Run a command in a container without the GPU, and return its output; the command must succeed."""
        return self.host.run(f"{self.podman.replace(f' --device {DEVICE}', '')} {options} {image} {command}")


def with_crun(host: Host, options: str = f"--device {DEVICE}") -> Driven:
    """Return a `Driven` that starts containers with crun."""
    podman = f"{LONE_CGROUP2} podman --runtime crun run --cgroups=disabled --rm {options}"
    return Driven(host=host, podman=podman)


# The type of the fixture `driven`, a function that returns the running host for a name in WAYS.
HostOf = Callable[[str], Driven]


def cache_entries(listed: str) -> list[str]:
    """Return the entries of `ldconfig -p` in their order, without its first and last line."""
    return [line.strip() for line in listed.splitlines() if "=>" in line]


def without_root(host: Host) -> Driven:
    """Return a `Driven` for an ordinary user of HOST with a copy of the image: root owns the image store."""
    host.run(
        f"""id rl >/dev/null 2>&1 && exit
        useradd --create-home --shell /bin/bash rl
        install -d -o rl -m 700 /run/user/$(id -u rl)
        install -d -o rl /home/rl/.config /home/rl/.config/containers
        printf '[storage]\\ndriver = "overlay"\\ngraphroot = "%s"\\n' /run/user/$(id -u rl)/storage \
            >/home/rl/.config/containers/storage.conf # not in the home folder: it is on an overlay
        podman save --quiet --output /tmp/image.tar {REDHAT_IMAGE}
        chmod 644 /tmp/image.tar
        {AS_USER} podman load --quiet --input /tmp/image.tar
        rm /tmp/image.tar"""
    )
    return Driven(host=host, podman=f"{AS_USER} podman run --pull=never --rm --device {DEVICE}")
