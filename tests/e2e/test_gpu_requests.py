"""Docker and containerd start containers with AMD and Intel devices, by name or by `--gpus driver=cdi`.

`--gpus` without `driver=cdi` has different meanings in different releases (docs/reference/other-tools.md).
The tests do not use it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.containers import forky_host
from support.containers.chroot_host import Host, running_host
from support.containers.forky_host import running_daemons
from support.containers.gpu_hosts import succeed
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

RUNTIMES = ("docker", "containerd")
AMDS = {"/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128"}
INTELS = {"/dev/dri/card40", "/dev/dri/renderD168"}
LISTING = "find /dev/kfd /dev/dri /dev/accel -type c -not -path '*/by-path/*' 2>/dev/null; true"


@pytest.fixture(scope="module")
def forky(tmp_path_factory: pytest.TempPathFactory, cache: Path, images: Path) -> Iterator[Host]:
    root = tmp_path_factory.mktemp("gpus") / "root"
    amd_tree.write(root, amd_tree.mi210(1))
    intel_tree.lay(root, intel_tree.gpu(40, "0000:e7:00.0", intel_tree.FLEX_170, "i915"))
    for folder in ("run", "var"):
        (root / folder).mkdir()
    (root / "var/run").symlink_to("/run")
    succeed(sys.executable, "-m", "cdigen", "generate", "--root", root, "--write")
    tree = cache / "runtimes-forky"
    with running_host(tree, images=images, state=root) as host, running_daemons(host):
        yield host


def nodes(host: Host, runtime: str, options: str) -> set[str]:
    starter = forky_host.RUNTIMES[runtime]
    return set(host.run(f'{starter.run} {options} {starter.image} sh -c "{LISTING}"').splitlines())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_devices_of_two_vendors_are_injected_by_name(forky: Host, runtime: str) -> None:
    assert nodes(forky, runtime, "--device amd.com/gpu=0") == AMDS
    assert nodes(forky, runtime, "--device intel.com/gpu=card40") == INTELS
    assert nodes(forky, runtime, "--device amd.com/gpu=all --device intel.com/gpu=all") == AMDS | INTELS


def test_docker_injects_intel_devices_for_the_gpus_option_with_driver_cdi(forky: Host) -> None:
    assert nodes(forky, "docker", """--gpus '"device=intel.com/gpu=0",driver=cdi'""") == INTELS


def test_docker_lists_the_devices_of_both_vendors(forky: Host) -> None:
    discovered = forky.run("docker info --format '{{json .DiscoveredDevices}}'")
    for name in (
        "amd.com/gpu=0",
        "amd.com/gpu=all",
        "intel.com/gpu=0000-e7-00-0-0x56c0",
        "intel.com/gpu=card40",
    ):
        assert f'"{name}"' in discovered
