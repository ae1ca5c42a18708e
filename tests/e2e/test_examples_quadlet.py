"""systemd starts the container of the Quadlet example on a booted Debian 13; podman generates the unit."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.booted_host import GPUS, KERNEL, NO_LIMIT, booted
from support.containers.chroot_host import DEBIAN_IMAGE, Host
from support.containers.gpu_hosts import generate
from support.containers.upgrade_host import configure_podman
from support.hosts.nvidia_kernel import write, write_kernel_side
from support.own_trees import WRITTEN_IN_PLACE, copied_tree
from support.paths import REPOSITORY

pytestmark = pytest.mark.e2e

EXAMPLE = REPOSITORY / "examples/quadlet/gpu.container"
IMAGE = "docker.io/library/debian:stable"


@pytest.fixture
def host(cache: Path, images: Path) -> Iterator[Host]:
    """Boot a host with two GPUs, a spec without hooks, and the example in podman's folder."""
    with copied_tree(cache / "host-trixie", cache, own=WRITTEN_IN_PLACE) as root:
        for top in (root, root / KERNEL):
            write_kernel_side(top, GPUS)
        (root / "etc/cdi").mkdir()
        spec = root / "etc/cdi/nvidia.com-gpu.json"
        generate(root, "--layout", "files", "--hook", "none", "--output", spec)
        configure_podman(root, NO_LIMIT)
        write(root / "etc/containers/systemd/gpu.container", EXAMPLE.read_text())
        with booted(root, kernel=root / KERNEL, images=images) as first:
            yield Host(pid=first)


def test_systemd_starts_the_container_of_the_quadlet_with_its_gpu(host: Host) -> None:
    host.run(f"podman save --quiet {DEBIAN_IMAGE} | podman load --quiet; podman tag {DEBIAN_IMAGE} {IMAGE}")
    host.run(
        "systemctl start gpu.service || { systemctl status gpu.service >&2; journalctl -n 30 >&2; false; }"
    )
    logged = host.run("journalctl --output cat --unit gpu.service").split()
    assert {word for word in logged if word.startswith("/dev/nvidia")} == {
        "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
    }  # fmt: skip
