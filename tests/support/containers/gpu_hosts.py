"""GPU hosts whose spec the real cdigen wrote, one for each way in which the driver reaches containers.

`gpu_root` makes a host's root, `Way` says how it delivers the driver, and `Driven` asks its containers what
they find: which file the loader takes for a name, what `ldconfig -p` lists.
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

# In the container: for each name the file that the loader took, or why it took none; then the files' numbers.
LOAD = """dlopen-all "$@" | {
    paths=
    while read -r state rest; do echo "$state $rest"; [ "$state" = fail ] || paths="$paths $rest"; done
    [ -z "$paths" ] || stat -L -c %d:%i $paths
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the driver reaches containers: the options of `cdigen generate`."""

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


# crun refuses to work where both versions of cgroups are mounted.
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

    A layout that the host cannot give is replaced by another, with a warning.
    """
    printed = succeed(sys.executable, "-m", "cdigen", "generate", "--root", root, *options)
    assert "warning" not in printed, printed


def install_hook(root: Path) -> None:
    """Install the hook as `make install-hook` on that host would, where it is compiled for its Python."""
    succeed("make", "--silent", "install-hook", f"DESTDIR={root}", f"HOOK_PYTHON={sys.executable}")
    compiled = ("-m", "compileall", "-q", "-f", "--invalidation-mode", "checked-hash")
    succeed("chroot", str(root), "/usr/bin/python3", "-I", *compiled, "/usr/libexec/cdigen/lib")


def succeed(*command: str | Path) -> str:
    """Run a command of this machine, which must succeed, and return all that it printed."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, f"exit {done.returncode}: {shlex.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Driven:
    """A running host, and what containers with its GPU find. `podman` starts the command of a container."""

    host: Host
    podman: str = f"podman run --rm --device {DEVICE}"

    @cached_property
    def driver(self) -> dict[str, str]:
        """The host's driver libraries: each SONAME that its `ldconfig -p` lists, and the file behind it."""
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
        """Load libraries by name (all of the driver's) and return for each the host's file that came.

        Where it was no file of the host's driver, that is said: "not the host's PATH" or "fail REASON".
        The command `before` is run in the container first.
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
        """Run a command in a container with the GPU, which must succeed, and return its output."""
        return self.host.run(f"{self.podman} {options} {image} {command}")

    def attempt(self, image: str, command: str, *, options: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a container with the GPU and return what became of it."""
        return self.host.attempt(f"{self.podman} {options} {image} {command}")

    def plain(self, image: str, command: str, *, options: str = "") -> str:
        """Run a command in the same container without the GPU."""
        return self.host.run(f"{self.podman.replace(f' --device {DEVICE}', '')} {options} {image} {command}")


def with_crun(host: Host, options: str = f"--device {DEVICE}") -> Driven:
    """Start containers with crun."""
    podman = f"{LONE_CGROUP2} podman --runtime crun run --cgroups=disabled --rm {options}"
    return Driven(host=host, podman=podman)


# Returns the running host of a way in WAYS (the fixture `driven`).
HostOf = Callable[[str], Driven]


def cache_entries(listed: str) -> list[str]:
    """Return the entries of `ldconfig -p` in their order, without the line before and after them."""
    return [line.strip() for line in listed.splitlines() if "=>" in line]


def without_root(host: Host) -> Driven:
    """Let a user of the host run podman, with an image of their own (the store's files belong to root)."""
    host.run(
        f"""id rl >/dev/null 2>&1 && exit
        useradd --create-home --shell /bin/bash rl
        install -d -o rl -m 700 /run/user/$(id -u rl)
        install -d -o rl /home/rl/.config /home/rl/.config/containers
        printf '[storage]\\ndriver = "overlay"\\ngraphroot = "%s"\\n' /run/user/$(id -u rl)/storage \
            >/home/rl/.config/containers/storage.conf # no overlay can carry another: not in its home
        podman save --quiet --output /tmp/image.tar {REDHAT_IMAGE}
        chmod 644 /tmp/image.tar
        {AS_USER} podman load --quiet --input /tmp/image.tar
        rm /tmp/image.tar"""
    )
    return Driven(host=host, podman=f"{AS_USER} podman run --pull=never --rm --device {DEVICE}")
