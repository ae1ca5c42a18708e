"""Real podman starts containers with Intel's devices: by number, by address, by node, and all of them.

The host is Debian 13 with podman; of Intel's side there is what the kernel shows, and real character devices.
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
# By stat, not find's -type: of a node that is bound, a folder tells what it lies over.
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
def test_a_container_has_the_nodes_of_the_gpu_it_asked_for_and_udevs_names_of_them(
    host: Host, name: str
) -> None:
    assert nodes(host, f"intel.com/gpu={name}") == FLEX


def test_a_container_has_the_nodes_of_all_gpus_and_of_no_npu(host: Host) -> None:
    every = {node for name in "012" for node in nodes(host, f"intel.com/gpu={name}")}
    assert nodes(host, "intel.com/gpu=all").keys() == every


def test_a_container_has_the_npu(host: Host) -> None:
    assert nodes(host, "intel.com/npu=accel0") == {"/dev/accel/accel0": "105:0"}


def test_a_container_with_users_of_its_own_has_the_nodes_as_well(host: Host) -> None:
    """There the runtime may make no node, and binds what lies at its path on the host: udev's link, too."""
    assert nodes(host, "intel.com/gpu=1", "--uidmap 0:100000:65536") == FLEX
