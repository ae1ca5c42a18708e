"""Docker and podman start containers with the output of `cdigen docker-args`, also after a driver upgrade.

With nvidia-docker 1.0, a container could not start again after an upgrade, because it used a volume with the
files of the old driver.
"""

import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, ENVIRONMENT, Host
from support.containers.forky_host import lay_driver, running_daemons
from support.containers.gpu_hosts import GPUS, install_hook, succeed
from support.containers.upgrade_host import Upgraded, daemon, entered, upgrade_host
from support.hosts.nvidia_kernel import information_text, write, write_driver, write_kernel_side
from support.own_trees import copied_tree
from support.paths import REPOSITORY
from support.processes import captured, succeeded
from support.waiting import until

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
INVENTORY = EXAMPLES / "hosts/debian13-8xh100.json"
NVIDIA_DOCKER = EXAMPLES / "nvidia-docker/nvidia-docker"
CDIGEN = (sys.executable, "-m", "cdigen")
LIBRARIES = "usr/lib/x86_64-linux-gnu/nvidia/current"
OLD, NEW = "550.163.01", "550.200.07"
# The variable of images for nvidia-docker 1.0, and a script that loads the driver and prints its version.
LOADER = "--env LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
PRINT_DRIVER = (
    "dlopen-all libcuda.so.1 libnvidia-ml.so.1 | cut -d' ' -f1 | uniq; ls /dev/nvidia0; "
    "for each in /usr/local/nvidia/lib64/libcuda.so.*.*; do echo ${each##*.so.}; done"
)


def arguments(root: Path, *words: str) -> str:
    return succeed(*CDIGEN, "docker-args", "--root", str(root), *words).rstrip("\n")


def report(root: Path, target: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(root / "run/cdigen/http.sock"))
        client.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        data = b""
        while piece := client.recv(65536):
            data += piece
    return data.partition(b"\r\n\r\n")[2].decode()


def prune_old_view(root: Path) -> None:
    """Set old times for the views of ROOT and run `cdigen prune`, until it removes one of the two views.

    If a cycle of the daemon writes in between, the views are too new and `cdigen prune` keeps both.
    """

    def pruned() -> object:
        for folder in ("run/cdi", "var/lib/cdigen/views"):
            for path in (root / folder, *(root / folder).iterdir()):
                with suppress(FileNotFoundError):  # a temporary file was removed
                    os.utime(path, (0, 0))
        rows[:] = json.loads(succeeded([*CDIGEN, "prune", "--root", str(root), "--json"], cwd=REPOSITORY))
        return {row["result"] for row in rows} == {"removed", "kept"}

    rows: list[dict[str, str]] = []
    assert until(pruned), rows


def check_start_after_upgrade(
    host: Host, engine: str, root: Path, drivers: tuple[str, str], upgrade: Callable[[], None]
) -> None:
    """Check for each form of arguments that a container of ENGINE starts again after UPGRADE."""
    forms = ("classic", "cdi")
    for form in forms:
        gpu_options = arguments(root, "--form", form, "0")
        host.run(
            f"{engine} create --name {form} --network none {gpu_options} {LOADER} {DEBIAN_IMAGE} "
            f"sh -c {shlex.quote(PRINT_DRIVER)}"
        )
        assert host.run(f"{engine} start --attach {form}").split() == ["ok", "/dev/nvidia0", drivers[0]]
    upgrade()
    prune_old_view(root)
    for form in forms:
        assert host.run(f"{engine} start --attach {form}").split() == ["ok", "/dev/nvidia0", drivers[1]]


def test_podman_containers_start_again_after_a_driver_upgrade(upgrade_tree: Path, images: Path) -> None:
    with upgrade_host(upgrade_tree, images=images) as upgraded, daemon(upgraded, "--layout", "view"):
        assert "podman version 4.3.1" in upgraded.host.run("podman --version")
        upgraded.becomes("ready")
        assert report(upgraded.root, "/docker/cli?dev=0") == arguments(
            upgraded.root, "--form", "classic", "0"
        )
        assert report(upgraded.root, "/docker/cli?dev=0&form=cdi") == arguments(upgraded.root, "0")
        check_start_after_upgrade(
            upgraded.host, "podman", upgraded.root, upgraded.versions, lambda: upgrade_with_dpkg(upgraded)
        )


def upgrade_with_dpkg(upgraded: Upgraded) -> None:
    _, newer = upgraded.versions
    upgraded.host.run(f"dpkg --install /opt/replayed/{newer}/*.deb")
    upgraded.load_module(newer)
    upgraded.wait_for(newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """A host with Docker, two GPUs and their spec; `root` contains the files of the host."""

    host: Host
    root: Path


@pytest.fixture(scope="module")
def docker_host(cache: Path, driver_tree: Path, images: Path) -> Iterator[DockerHost]:
    with copied_tree(cache / "runtimes-forky", cache) as root:
        work = root.parent / "work"
        work.mkdir()
        lay_driver(root, driver_tree)
        write_kernel_side(root, GPUS)
        install_hook(root)
        generate(root)
        with entered(root, images=images, work=work) as host, running_daemons(host):
            assert host.run("docker version --format '{{.Server.Version}}'").startswith("28.")
            yield DockerHost(host=host, root=root)


def generate(root: Path) -> None:
    succeed(*CDIGEN, "generate", "--root", str(root), "--write", "--layout", "view")


def test_docker_containers_start_again_after_a_driver_upgrade(docker_host: DockerHost) -> None:
    def upgrade() -> None:
        rename_driver(docker_host.root)
        generate(docker_host.root)

    check_start_after_upgrade(docker_host.host, "docker", docker_host.root, (OLD, NEW), upgrade)


def test_the_nvidia_docker_example_adds_the_requested_gpus(docker_host: DockerHost, tmp_path: Path) -> None:
    host, root = docker_host.host, docker_host.root
    running = (root / "sys/module/nvidia/version").read_text().strip()
    write(root / "run/cdigen/inventory.json", INVENTORY.read_text().replace(OLD, running))
    host.run(f"docker create --name base {DEBIAN_IMAGE} true")
    for name, cuda in (("old", "8.0"), ("newer", "99.0")):
        labels = f"LABEL com.nvidia.volumes.needed=nvidia_driver com.nvidia.cuda.version={cuda}"
        host.run(f"docker commit --change {shlex.quote(labels)} base {name}")
    (tmp_path / "cdigen").write_text(
        f'#!/bin/sh\ncommand=$1\nshift\nexec {shlex.join(CDIGEN)} "$command" --root {root} "$@"\n'
    )
    (tmp_path / "cdigen").chmod(0o755)
    inside = f"nsenter --target={host.pid} --mount --pid --root --wd env {' '.join(ENVIRONMENT)} docker"

    def docker(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return captured(
            [NVIDIA_DOCKER, *arguments],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "NV_DOCKER": inside, **environment},
        )

    run, gpus = ("run", "--rm", "--network", "none"), ("sh", "-c", "ls /dev/nvidia[0-9]")
    for options, image, variables, expected in (
        ((), "old", {}, [0, 1]),
        ((), "old", {"NV_GPU": "1"}, [1]),
        (("-eNVIDIA_VISIBLE_DEVICES=0", "--runtime=nvidia"), DEBIAN_IMAGE, {}, [0]),
        (("--gpus", '"device=1"'), DEBIAN_IMAGE, {}, [1]),
        (("--gpus=2", "-e", "A=a b\n$(id)"), DEBIAN_IMAGE, {}, [0, 1]),
    ):
        done = docker(*run, *options, image, *gpus, **variables)
        assert (done.stdout.split(), done.stderr) == ([f"/dev/nvidia{number}" for number in expected], "")
    assert docker(*run, DEBIAN_IMAGE, *gpus).returncode == 2
    refused = docker(*run, "newer", *gpus)
    assert refused.returncode == 1
    assert "com.nvidia.cuda.version='cuda>=99.0' is not met" in refused.stderr
    assert docker("image", "ls", "--quiet", "newer").stdout == host.run("docker image ls --quiet newer")


def rename_driver(root: Path) -> None:
    """Change the driver version in the tree ROOT: in the names of libraries and in the kernel's files."""
    folder = root / LIBRARIES
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and (target := os.readlink(path)).endswith(OLD):
            path.unlink()
            path.symlink_to(target.replace(OLD, NEW))
        elif path.name.endswith(OLD):
            path.rename(path.with_name(path.name.replace(OLD, NEW)))
    succeed("chroot", str(root), "/usr/sbin/ldconfig")
    write_driver(root / "proc/driver/nvidia", NEW, open_module=False)
    write(root / "sys/module/nvidia/version", f"{NEW}\n")
    for gpu in GPUS:
        write(root / f"proc/driver/nvidia/gpus/{gpu.bdf}/information", information_text(gpu, NEW))
