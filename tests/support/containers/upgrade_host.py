"""A host with a real upgrade of its driver while `cdigen run` watches it.

The daemon runs outside of the host, with `--root` on the host's tree. The tree with its /dev and /run is all
that the daemon reads, as in a container with the host's root. The host is the tree itself: apt, dpkg
and podman in the host share the tree with the daemon. The host is not an overlay over the tree (as in
chroot_host), because the kernel does not define the effect of changes below an overlay. In the host, /proc
and /sys are those of this machine, because podman needs them. The daemon reads the files that `nvidia_kernel`
wrote into the tree.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.containers.chroot_host import Host, held
from support.containers.gpu_hosts import install_hook
from support.hosts.nvidia_kernel import (
    Gpu,
    example_gpus,
    information_text,
    make_node,
    write,
    write_driver,
    write_kernel_side,
)
from support.hosts.nvidia_kernel import Node as Device
from support.own_trees import WRITTEN_IN_PLACE, copy_tree, remove_tree
from support.paths import REPOSITORY
from support.waiting import HOST_PATIENCE_S

GPUS = example_gpus(2)
SPEC = "run/cdi/nvidia.com-gpu.json"
PACKAGES = "opt/driver"  # has a folder of packages for each version
REPLAYED = "opt/replayed"  # the same with few packages, uncompressed: dpkg unpacks them quickly
BASIC_NODES = ("null 1 3", "zero 1 5", "full 1 7", "random 1 8", "urandom 1 9", "tty 5 0", "console 5 1")

# The script of the host's first process: enter-host without the overlay. It ends with its standard input.
ENTER = """
tree=$1 images=$2 work=$3
read -r pid _ </proc/self/stat
mount --bind "$tree" "$tree"
cd "$tree"
mount -t proc proc proc
mount --rbind /sys sys
mkdir -p dev/pts dev/shm dev/mqueue var/lib/containers
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t mqueue mqueue dev/mqueue
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs containers "$work"
mkdir "$work/images"
mount --bind "$work" var/lib/containers
mount --bind "$images" var/lib/containers/images
mount -o remount,bind,ro var/lib/containers/images
mkdir -p .machine
pivot_root . .machine
exec chroot . /bin/bash -c 'umount --lazy /.machine && rmdir /.machine && echo "$1" && read -r _' host "$pid"
"""

STORAGE = """[storage]
driver = "overlay"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
[storage.options]
additionalimagestores = ["/var/lib/containers/images"]
"""
CONTAINERS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
log_driver = "k8s-file"
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
"""

# This program runs in the host, without code of cdigen. It reads the spec as a runtime does, until its
# standard input is closed. It prints a line with the time for each result that differs from the previous
# result, for each event of the file (written, removed), and for each new state of the vendor nvidia.
READER = r"""
import ctypes, json, os, select, stat, struct, sys, time
SPEC, STATUS = sys.argv[1:]
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
DELETE, MOVED_TO, MODIFY = 0x200, 0x80, 0x2
if libc.inotify_add_watch(watch, os.path.dirname(SPEC).encode(), DELETE | MOVED_TO | MODIFY) < 0:
    sys.exit("no watch")
last = {}
def report(**what):
    kind = what["kind"]
    if kind == "event" or last.get(kind) != what:
        last[kind] = dict(what)
        print(json.dumps({**what, "at": time.monotonic()}), flush=True)
def missing(document):
    edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
    for edit in edits:
        for mount in edit.get("mounts", ()):
            if not os.path.exists(mount["hostPath"]):
                yield mount["hostPath"]
        for node in edit.get("deviceNodes", ()):
            path = node.get("hostPath", node["path"])
            try:
                found = os.lstat(path)
            except OSError:
                yield path
                continue
            numbers = {"major": os.major(found.st_rdev), "minor": os.minor(found.st_rdev)}
            if not stat.S_ISCHR(found.st_mode) or {**node, **numbers} != {**numbers, **node}:
                yield path + " is another"
        for hook in edit.get("hooks", ()):
            if not os.access(hook["path"], os.X_OK):
                yield hook["path"]
def look():
    try:
        with open(SPEC) as file:
            text = file.read()
            number = os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return report(kind="spec", found="none")
    try:
        gone = sorted(missing(json.loads(text)))
    except (ValueError, KeyError, TypeError) as error:
        return report(kind="spec", found="torn", error=repr(error), text=text[:200])
    report(kind="spec", found="broken" if gone else "whole", inode=number, gone=gone[:3])
def state():
    try:
        with open(STATUS) as file:
            found = json.load(file)
    except FileNotFoundError:
        return
    for row in found["vendors"]:
        if row["vendor"] == "nvidia":
            report(kind="state", state=row["state"], reason=row["reason"])
while True:
    ready, _, _ = select.select([watch, 0], [], [], 0.02)
    if watch in ready:
        data = os.read(watch, 65536)
        while data:
            _, mask, _, size = struct.unpack_from("iIII", data)
            name = data[16:16 + size].rstrip(b"\0").decode()
            data = data[16 + size:]
            if name == os.path.basename(SPEC):
                report(kind="event", what="removed" if mask & DELETE else "written")
    look()
    state()
    if 0 in ready:
        break
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """A running GPU host with two versions of the driver; ``root`` is its tree."""

    host: Host
    root: Path

    @property
    def versions(self) -> tuple[str, str]:
        """The versions of the driver that can be installed, the older one first."""
        older, newer = sorted(folder.name for folder in (self.root / PACKAGES).iterdir())
        return older, newer

    def install(self, version: str) -> None:
        """Upgrade the driver to VERSION with apt from the local folder, as an administrator does."""
        options = "--assume-yes --allow-downgrades --no-install-recommends --option=Dpkg::Use-Pty=0"
        self.apt(f"install {options} /{PACKAGES}/{version}/*.deb")

    def remove(self) -> None:
        """Remove every package of the driver with apt, without autoremove."""
        folder = self.root / PACKAGES / self.versions[0]
        names = " ".join(sorted(file.name.partition("_")[0] for file in folder.glob("*.deb")))
        self.apt(f"remove --assume-yes --option=Dpkg::Use-Pty=0 {names}")

    def apt(self, words: str) -> None:
        self.host.run(f"DEBIAN_FRONTEND=noninteractive apt-get {words}", timeout_s=300)

    def load_module(self, version: str, gpus: tuple[Gpu, ...] = GPUS) -> None:
        """Write the kernel's files for a module of VERSION, as after a reload; device nodes stay."""
        write_driver(self.root / "proc/driver/nvidia", version, open_module=False)
        write(self.root / "sys/module/nvidia/version", f"{version}\n")
        for gpu in gpus:
            information = self.root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information"
            write(information, information_text(gpu, version))

    def unload_module(self) -> None:
        """Remove the files of the kernel module."""
        for path in ("proc/driver/nvidia", "sys/module/nvidia"):
            remove_tree(self.root / path, within=self.root)

    def spec(self) -> dict[str, Any] | None:
        """Return the present spec, None if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.root / SPEC).read_text())
        except FileNotFoundError:
            return None
        return found

    def status(self) -> dict[str, Any]:
        """Return the daemon's status, {} before the daemon's first cycle."""
        try:
            found: dict[str, Any] = json.loads((self.root / "run/cdigen/status.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    @property
    def state(self) -> str:
        """The state of the vendor nvidia in the daemon's status."""
        rows = self.status().get("vendors", [])
        return next((row["state"] for row in rows if row["vendor"] == "nvidia"), "")

    def becomes(self, state: str) -> float:
        """Wait until the daemon reports STATE for the vendor nvidia; return the waiting time in seconds."""
        return wait_until(lambda: self.state == state, f"the state {state}")

    def wait_for(self, version: str) -> float:
        """Wait until the spec mounts only files of VERSION; return the waiting time in seconds."""
        return wait_until(lambda: self.served() == {version}, f"a spec of {version}")

    def served(self) -> set[str]:
        """Return the versions in the names of all files that the spec mounts into containers."""
        found = self.spec()
        if found is None:
            return set()
        names: set[str] = set()
        for mount in found["containerEdits"]["mounts"]:
            path = self.root / mount["hostPath"].lstrip("/")
            names.add(path.name)
            if path.is_dir():
                names.update(name for _, _, files in os.walk(path) for name in files)
        return {version for version in self.versions if any(name.endswith(version) for name in names)}


@contextmanager
def upgrade_host(
    driver_tree: Path, *, images: Path, config: str = "", gpus: tuple[Gpu, ...] = GPUS, hook: bool = True
) -> Iterator[Upgraded]:
    """Run a copy of the Debian 12 tree as a host with GPUS until the context ends.

    The copy consists of hard links, except in WRITTEN_IN_PLACE. In other folders, dpkg, apt and ldconfig
    replace files by rename.
    """
    with tempfile.TemporaryDirectory(prefix="upgrade-", dir=driver_tree.parent) as folder:
        root, work = Path(folder) / "root", Path(folder) / "work"
        copy_tree(driver_tree, root, own=WRITTEN_IN_PLACE)
        work.mkdir()
        older = min(path.name for path in (root / PACKAGES).iterdir())
        write_kernel_side(root, gpus, driver_version=older)
        if hook:
            install_hook(root)
        if config:
            write(root / "etc/cdigen/config.yaml", config)
        with entered(root, images=images, work=work) as host:
            yield Upgraded(host=host, root=root)


@contextmanager
def entered(root: Path, *, images: Path, work: Path) -> Iterator[Host]:
    """Run the tree ROOT itself as a host until the context ends; WORK is an empty folder."""
    _make_running(root)
    with held("bash", "-euc", ENTER, "enter", root, images, work) as host:
        yield host


def _make_running(root: Path) -> None:
    """Add the device nodes of every machine and podman's settings to the tree ROOT."""
    make_basic_nodes(root)
    (root / "run/cdi").mkdir(parents=True, exist_ok=True)
    configure_podman(root)


def make_basic_nodes(root: Path) -> None:
    """Make the device nodes and links that every machine has in /dev."""
    for line in BASIC_NODES:
        name, major, minor = line.split()
        make_node(root, Device(path=f"/dev/{name}", major=int(major), minor=int(minor)))
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd")):
        (root / "dev" / name).unlink(missing_ok=True)
        (root / "dev" / name).symlink_to(target)


def configure_podman(root: Path, containers: str = "") -> None:
    """Write podman's settings; CONTAINERS are further rows of the table `containers`."""
    write(root / "etc/containers/storage.conf", STORAGE)
    text = CONTAINERS.replace("[containers]\n", f"[containers]\n{containers}")
    write(root / "etc/containers/containers.conf", text)


@contextmanager
def daemon(upgraded: Upgraded, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the real daemon on the host's tree. At the end, it must exit with code 0 after SIGTERM."""
    log = upgraded.root.parent / "daemon.log"
    command = (sys.executable, "-m", "cdigen", "run", "--root", str(upgraded.root), *options)
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            code = process.wait(timeout=HOST_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        print(log.read_text(), end="")
    assert code == 0, f"the daemon ended with {code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The results of a `Reader`, in order."""

    rows: tuple[dict[str, Any], ...]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["kind"] == kind]

    @property
    def writes(self) -> int:
        """The number of times that the spec file was written or replaced."""
        return sum(row["what"] == "written" for row in self.of("event"))

    @property
    def states(self) -> list[str]:
        """The states of the vendor, one entry for each change."""
        found = [row["state"] for row in self.of("state")]
        return [state for place, state in enumerate(found) if not place or found[place - 1] != state]

    @property
    def torn(self) -> list[dict[str, Any]]:
        return [row for row in self.of("spec") if row["found"] == "torn"]

    @property
    def broken(self) -> list[dict[str, Any]]:
        return [row for row in self.of("spec") if row["found"] == "broken"]

    @property
    def broken_s(self) -> float:
        """The longest time in seconds for which the spec named a missing or replaced file."""
        longest, since = 0.0, None
        for row in self.of("spec"):
            if row["found"] == "broken":
                since = row["at"] if since is None else since
            elif since is not None:
                longest, since = max(longest, row["at"] - since), None
        assert since is None, "the last spec that was read names a missing file"
        return longest


class Reader:
    """A program in the host that reads the spec continuously, as runtimes do."""

    def __init__(self, upgraded: Upgraded) -> None:
        enter = ("nsenter", f"--target={upgraded.host.pid}", "--mount", "--pid", "--root", "--wd")
        run = ("/usr/bin/python3", "-I", "-S", "-c", READER, f"/{SPEC}", "/run/cdigen/status.json")
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen([*enter, *run], stdin=subprocess.PIPE, stdout=self._output)

    def end(self) -> Reading:
        """Stop the program and return its results."""
        self._process.communicate(timeout=HOST_PATIENCE_S)
        assert self._process.returncode == 0
        self._output.seek(0)
        return Reading(rows=tuple(json.loads(line) for line in self._output))

    def close(self) -> None:
        """End the program if it still runs, and discard its output."""
        self._process.kill()
        self._process.communicate()
        self._output.close()


@contextmanager
def reading(upgraded: Upgraded) -> Iterator[Reader]:
    """Run a `Reader`; end it after the body if it still runs."""
    reader = Reader(upgraded)
    try:
        yield reader
    finally:
        reader.close()


def wait_until(true: Callable[[], bool], what: str, *, timeout_s: float = HOST_PATIENCE_S) -> float:
    """Wait until TRUE() is true, and return the waiting time in seconds; raises AssertionError."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < timeout_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - begun
