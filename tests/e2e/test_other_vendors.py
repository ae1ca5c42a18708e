"""Containers of real podman have the requested nodes of AMD's and Intel's devices, and no other nodes.

The tests run podman of this machine, of Debian 13 and of forky. The kernel's files of the devices are written
by the test, and the device nodes are real. The drivers are missing, so an open of a node fails with ENXIO.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, MACHINE, Host, running_host
from support.containers.gpu_hosts import succeed
from support.hosts import amd_tree, intel_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

# Two MI300X in DPX (renderD128 to renderD143), a Flex 170 with a firmware node, and an NPU of each vendor.
AMD = amd_tree.mi300x(2, count=2)
MEI = (("i915.mei-gscfi.59136", 1),)
INTEL = (intel_tree.gpu(40, "0000:e7:00.0", intel_tree.FLEX_170, "i915", mei=MEI), intel_tree.npu())
# Release of podman -> its tree in the cache, and the options for the target of the specs.
PODMANS: dict[str, tuple[str, tuple[str, ...]]] = {
    "this machine's": ("", ()),
    "Debian 13's": ("driver-trixie", ("--target", "podman-5.4")),
    "forky's": ("runtimes-forky", ("--target", "podman-5.8")),
}
WITH_GIDS = tuple(name for name, (_, options) in PODMANS.items() if options)

KFD = f"/dev/kfd {amd_tree.KFD_MAJOR:x}:0"


def drm(card: int, render: int) -> set[str]:
    return {f"/dev/dri/card{card} e2:{card:x}", f"/dev/dri/renderD{render} e2:{render:x}"}


FIRST, SECOND, THIRD, FOURTH = drm(1, 128), drm(2, 129), drm(9, 136), drm(10, 137)
FLEX = drm(40, 168)
ACCEL, AMDS_ACCEL = ({f"/dev/accel/accel{number} {intel_tree.ACCEL_MAJOR:x}:{number}"} for number in (0, 1))
FIRMWARE = {f"/dev/mei1 {intel_tree.MEI_MAJOR:x}:1"}
UUID = f"0x{AMD[1].unique_id:X}"
REQUESTS = {
    "amd.com/gpu=0": {KFD, *FIRST},
    "amd.com/gpu=3": {KFD, *FOURTH},
    f"amd.com/gpu={AMD[0].bdf}": {KFD, *FIRST, *SECOND},
    f"amd.com/gpu={UUID}": {KFD, *THIRD, *FOURTH},
    "amd.com/gpu=all": {KFD, *FIRST, *SECOND, *THIRD, *FOURTH},
    "intel.com/gpu=0": FLEX,
    "intel.com/gpu=0000-e7-00-0-0x56c0": FLEX,
    "intel.com/gpu=card40": FLEX,
    "intel.com/gpu=all": FLEX,
    "intel.com/gpu-mei=0": FIRMWARE,
    "intel.com/npu=0": ACCEL,
    "amd.com/npu=0": AMDS_ACCEL,
    "amd.com/gpu=1 --device intel.com/gpu=0 --device intel.com/npu=0": {KFD, *SECOND, *FLEX, *ACCEL},
}
# Device -> one of its nodes, and the groups of all its nodes.
GROUPS = {
    "amd.com/gpu=0": ("/dev/kfd", {amd_tree.RENDER_GID, amd_tree.VIDEO_GID}),
    "intel.com/gpu=0": ("/dev/dri/renderD168", {intel_tree.RENDER, intel_tree.VIDEO}),
    "intel.com/npu=0": ("/dev/accel/accel0", {intel_tree.RENDER}),
}
# Lists nodes by their numbers, because some runtimes bind-mount nodes. udev's links to nodes are omitted.
LISTING = "find /dev -not -path '*/by-path/*' -exec stat -c '%n %t:%T' {} + 2>/dev/null | grep -v ' 0:0$'"


@pytest.fixture(scope="module", params=PODMANS)
def podman(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path, images: Path
) -> Iterator[tuple[str, Host]]:
    """Run a host with AMD's and Intel's GPUs, a podman of PODMANS, and cdigen's specs for this podman."""
    tree, options = PODMANS[request.param]
    root = tmp_path_factory.mktemp("others") / "root"
    amd_tree.write(root, AMD)
    amd_tree.write_npu(root, number=1)
    intel_tree.lay(root, *INTEL)
    for folder in ("run", "var"):
        (root / folder).mkdir()
    (root / "var/run").symlink_to("/run")
    succeed(sys.executable, "-m", "cdigen", "generate", "--root", root, "--write", *options)
    with running_host(cache / tree if tree else MACHINE, images=images, state=root) as host:
        print(host.run("podman --version; runc --version"))
        yield request.param, host


def started(host: Host, devices: str, script: str, options: str = "") -> str:
    return host.run(f'podman run --rm {options} --device {devices} {DEBIAN_IMAGE} sh -c "{script}"')


@pytest.mark.parametrize("devices", REQUESTS)
def test_a_container_has_the_requested_nodes_with_their_device_numbers_and_no_other_nodes(
    podman: tuple[str, Host], devices: str
) -> None:
    _, host = podman
    plain = set(host.run(f'podman run --rm {DEBIAN_IMAGE} sh -c "{LISTING}"').splitlines())
    assert set(started(host, devices, LISTING).splitlines()) - plain == REQUESTS[devices]


def test_a_container_may_open_its_nodes_and_no_other_nodes(podman: tuple[str, Host]) -> None:
    _, host = podman
    script = "mknod /tmp/other c 226 130; cat /dev/kfd /dev/dri/renderD129 /dev/dri/card2 /tmp/other"
    command = f'podman run --rm --cap-add CAP_MKNOD --device amd.com/gpu=1 {DEBIAN_IMAGE} sh -c "{script}"'
    assert host.attempt(command).stderr.splitlines() == [
        "cat: /dev/kfd: No such device or address",
        "cat: /dev/dri/renderD129: No such device or address",
        "cat: /dev/dri/card2: No such device or address",
        "cat: /tmp/other: Operation not permitted",
    ]


def test_nodes_in_a_container_have_the_groups_and_modes_of_the_hosts_nodes(podman: tuple[str, Host]) -> None:
    _, host = podman
    script = "stat -c '%u:%g %a' /dev/kfd /dev/dri/card1 /dev/dri/renderD128"
    assert started(host, "amd.com/gpu=0", script).splitlines() == [
        f"0:{amd_tree.RENDER_GID} 660",
        f"0:{amd_tree.VIDEO_GID} 660",
        f"0:{amd_tree.RENDER_GID} 660",
    ]


@pytest.mark.parametrize("device", GROUPS)
def test_a_user_of_the_container_who_is_not_root_can_open_its_nodes(
    podman: tuple[str, Host], device: str
) -> None:
    """The CDI library makes the container's user the owner of its nodes, so the user needs no group."""
    name, host = podman
    node, groups = GROUPS[device]
    user = "--user 1000:1000"
    script = f"cat {node} 2>&1; true"
    assert started(host, device, script, user) == f"cat: {node}: No such device or address\n"
    added = groups if name in WITH_GIDS else set()
    assert {int(gid) for gid in started(host, device, "id -G", user).split()} == {1000, *added}


@pytest.mark.parametrize("device", GROUPS)
def test_other_users_of_the_container_need_the_groups_of_the_nodes(
    podman: tuple[str, Host], device: str
) -> None:
    name, host = podman
    node, groups = GROUPS[device]
    group_options = "" if name in WITH_GIDS else "".join(f"--group-add {gid} " for gid in groups)
    become = "setpriv --reuid 1234 --regid 1234 {option} --inh-caps=-all cat {node} 2>&1; true"
    kept = started(host, device, become.format(option="--keep-groups", node=node), group_options)
    assert kept == f"cat: {node}: No such device or address\n"
    cleared = started(host, device, become.format(option="--clear-groups", node=node), group_options)
    assert cleared == f"cat: {node}: Permission denied\n"


@pytest.mark.parametrize(
    "device", ["amd.com/gpu=4", "intel.com/gpu=1", "intel.com/gpu=card0", "amd.com/npu=1"]
)
def test_the_error_for_a_missing_device_contains_its_name(podman: tuple[str, Host], device: str) -> None:
    _, host = podman
    answer = host.attempt(f"podman run --rm --device {device} {DEBIAN_IMAGE} true")
    assert answer.returncode != 0
    assert device in answer.stderr


def test_only_containers_of_a_device_with_a_missing_node_fail(podman: tuple[str, Host]) -> None:
    _, host = podman
    host.run("mv /dev/dri/renderD129 /dev/away")
    try:
        answer = host.attempt(f"podman run --rm --device amd.com/gpu=1 {DEBIAN_IMAGE} true")
        assert answer.returncode != 0
        assert "/dev/dri/renderD129" in answer.stderr
        for other in ("amd.com/gpu=0", "intel.com/gpu=0"):
            started(host, other, "true")
    finally:
        host.run("mv /dev/away /dev/dri/renderD129")


def test_each_kind_has_a_separate_spec_file(podman: tuple[str, Host]) -> None:
    _, host = podman
    kinds = [json.loads(host.run(f"cat /run/cdi/{file}"))["kind"] for file in host.run("ls /run/cdi").split()]
    assert set(kinds) == {"amd.com/gpu", "amd.com/npu", "intel.com/gpu", "intel.com/gpu-mei", "intel.com/npu"}
