"""A GPU host with real runtimes and a `cdigen` that diagnoses it; tests break and fix the host.

Use `diagnosed`. The driver's files in /proc and /sys are mounted over the machine's files. The daemons of the
runtimes run. A double of systemctl restarts them, because the host has no systemd.
"""

import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.containers.chroot_host import DEBIAN_IMAGE, Host, running_host
from support.containers.forky_host import NAMESPACE, lay_driver, running_daemons
from support.containers.gpu_hosts import GPUS, install_hook
from support.hosts.nvidia_kernel import write_kernel_side
from support.own_trees import copied_tree

import cdigen

DEVICE = "nvidia.com/gpu=0"
SPEC = "/var/run/cdi/nvidia.com-gpu.json"
# A folder of the host with copies of the driver's files: the real /proc and /sys hide the original files.
KERNEL = "opt/kernel"

COMMAND = '#!/bin/sh\nPYTHONPATH=/opt/cdigen exec python3 -m cdigen "$@"\n'

MOUNT_KERNEL = f"""
mount -t tmpfs driver /proc/driver
cp -a /{KERNEL}/proc/driver/nvidia /proc/driver/
mount --bind /{KERNEL}/proc/devices /proc/devices
mount -t tmpfs pci /sys/bus/pci
mkdir -p /sys/bus/pci/devices /sys/bus/pci/drivers/nvidia
cp -r /{KERNEL}/pci/. /sys/bus/pci/devices/
"""

UNMOUNT_KERNEL = "umount /proc/driver /proc/devices /sys/bus/pci"

# A double of systemctl that restarts daemons without a service manager.
SYSTEMCTL = """#!/bin/bash
[ "$1" = restart ] || exit 0
case "$2" in docker*) name=dockerd;; containerd*) name=containerd;; *) exit 5;; esac
for pid in $(pidof "$name"); do kill "$pid"; done
for _ in $(seq 100); do pidof "$name" >/dev/null || break; sleep 0.1; done
rm -f /run/docker.pid /var/run/docker.pid
setsid "$name" </dev/null >>"/run/$name.log" 2>&1 &
for _ in $(seq 300); do
    if [ "$name" = dockerd ]; then docker version >/dev/null 2>&1 && exit 0; fi
    if [ "$name" = containerd ]; then ctr version >/dev/null 2>&1 && exit 0; fi
    sleep 0.1
done
exit 1
"""


# A double of rc-service, the program of OpenRC that restarts services on hosts without systemd.
RC_SERVICE = """#!/bin/sh
exec systemctl "$2" "$1"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The command (`run`) with which a runtime starts a container with the device."""

    name: str
    run: str

    def start(self, host: Host) -> bool:
        """Start a container, and return whether it has the GPU's node."""
        return host.attempt(f"{self.run} test -c /dev/nvidia0").returncode == 0


RUNTIMES = {
    "podman": Runtime(name="podman", run=f"podman run --rm --device {DEVICE} {DEBIAN_IMAGE}"),
    "docker": Runtime(name="docker", run=f"docker run --network none --rm --device {DEVICE} {DEBIAN_IMAGE}"),
    "containerd": Runtime(
        name="containerd",
        run=f"ctr --namespace {NAMESPACE} run --rm --device {DEVICE} {DEBIAN_IMAGE}:latest t-$RANDOM-$RANDOM",
    ),
}


def copy_packages(root: Path, *names: str) -> None:
    """Copy this cdigen and the packages NAMES to /opt/cdigen of the tree ROOT."""
    packages = [Path(cdigen.__file__).parent]
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        packages.append(Path(spec.origin).parent)
    for package in packages:
        # Compiled modules work only with this machine's Python. PyYAML works without a compiled module.
        left_out = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(package, root / "opt/cdigen" / package.name, ignore=left_out)


def install_cdigen(root: Path) -> None:
    """Copy this cdigen and its dependencies into the tree ROOT, for the Python of the tree."""
    copy_packages(root, "tomlkit", "yaml")
    shutil.copytree(Path(cdigen.__file__).parents[1] / "schemas", root / "opt/cdigen/schemas")
    put_program(root / "usr/bin/cdigen", COMMAND)


def put_program(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def keep_kernel_side(root: Path, version: str) -> None:
    """Write the kernel's files, and copy the files that the real /proc and /sys of the host will hide."""
    write_kernel_side(root, GPUS, driver_version=version)
    kept = root / KERNEL
    shutil.copytree(root / "proc/driver", kept / "proc/driver")
    shutil.copy(root / "proc/devices", kept / "proc/devices")
    for gpu in GPUS:
        source = (root / "sys/bus/pci/devices" / gpu.bdf).resolve()
        target = kept / "pci" / gpu.bdf
        for name in ("vendor", "device", "class", "uevent"):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)
        (target / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
        for node in gpu.nodes[1:]:
            folder = target / "drm" / Path(node.path).name
            folder.mkdir(parents=True)
            shutil.copy(source / "drm" / folder.name / "dev", folder / "dev")


@contextmanager
def diagnosed(
    cache: Path, *, tree: Path, driver_tree: Path | None, images: Path, version: str
) -> Iterator[Host]:
    """Run a host of TREE, with Docker and containerd if TREE has Docker, until the context ends.

    DRIVER_TREE has the driver's files of VERSION if TREE has none.
    """
    with copied_tree(tree, cache) as root:
        if driver_tree is not None:
            lay_driver(root, driver_tree)
        keep_kernel_side(root, version)
        install_hook(root)
        install_cdigen(root)
        put_program(root / "usr/bin/systemctl", SYSTEMCTL)
        put_program(root / "usr/sbin/rc-service", RC_SERVICE)
        has_docker = (root / "usr/sbin/dockerd").exists()
        with running_host(root, images=images) as host:
            host.run(MOUNT_KERNEL)
            host.run("cdigen generate --write")
            with running_daemons(host) if has_docker else nullcontext():
                yield host


def verdicts(host: Host, *options: str) -> list[dict[str, Any]]:
    """Run the doctor on HOST, and return its results."""
    done = host.attempt(f"cdigen doctor --json {' '.join(options)}")
    assert done.returncode in {0, 1}, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.returncode == any(not row["ok"] for row in rows)
    return rows
