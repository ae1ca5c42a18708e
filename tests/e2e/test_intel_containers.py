"""Real podman starts containers with Intel's devices by index, PCI address and card name, and with `all`.

The host is Debian 13 with podman. The kernel's files are written by the test; the device nodes are real.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host, running_host
from support.containers.gpu_hosts import succeed
from support.hosts.intel_tree import flex_170, lay, npu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

FLEX = {
    "/dev/dri/card1": "e2:1",
    "/dev/dri/renderD129": "e2:81",
    "/dev/dri/by-path/pci-0000:4d:00.0-card": "e2:1",
    "/dev/dri/by-path/pci-0000:4d:00.0-render": "e2:81",
}
# stat reads the mounted node. At a bind mount, `find -type` may read the type of the file below the mount.
LISTING = "find /dev/dri /dev/accel -exec stat -c '%n %t:%T' {} + 2>/dev/null | grep -v ' 0:0$'"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, driver_tree: Path, images: Path) -> Iterator[Host]:
    root = tmp_path_factory.mktemp("intel")
    (root / "run").mkdir()
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    lay(root, *flex_170(1), npu())
    succeed(sys.executable, "-m", "cdigen", "generate", "--root", root, "--vendor", "intel", "--write")
    with running_host(driver_tree, images=images, state=root) as host:
        yield host


def nodes(host: Host, device: str, options: str = "") -> dict[str, str]:
    listed = host.run(f'podman run --rm {options} --device {device} {DEBIAN_IMAGE} sh -c "{LISTING}"')
    return dict(line.rsplit(" ", 1) for line in listed.splitlines())


@pytest.mark.parametrize("name", ["1", "0000-4d-00-0-0x56c0", "card1"])
def test_a_container_has_the_nodes_of_the_requested_gpu_and_udevs_links_to_them(
    host: Host, name: str
) -> None:
    assert nodes(host, f"intel.com/gpu={name}") == FLEX


def test_the_device_all_injects_the_nodes_of_all_gpus_and_of_no_npu(host: Host) -> None:
    every = {node for name in "012" for node in nodes(host, f"intel.com/gpu={name}")}
    assert nodes(host, "intel.com/gpu=all").keys() == every


def test_a_container_has_the_npu(host: Host) -> None:
    assert nodes(host, "intel.com/npu=accel0") == {"/dev/accel/accel0": "105:0"}


def test_a_container_in_a_user_namespace_has_the_same_nodes(host: Host) -> None:
    """In a user namespace, a runtime cannot create nodes. It bind-mounts host paths, also udev's links."""
    assert nodes(host, "intel.com/gpu=1", "--uidmap 0:100000:65536") == FLEX
