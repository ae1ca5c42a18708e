"""A real container with a MIG instance has only the nodes of the GPU and of this instance."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.chroot_host import DEBIAN_IMAGE, Host, running_host
from support.containers.gpu_hosts import generate
from support.hosts.mig import cap_node, minor_of, write_instance, write_minors
from support.hosts.nvidia_kernel import Node, control_nodes, example_gpus, write_kernel_side
from support.own_trees import copy_tree
from support.processes import succeeded

pytestmark = pytest.mark.e2e

GPUS = example_gpus(2)


@pytest.fixture(scope="module")
def mig_host(tmp_path_factory: pytest.TempPathFactory, driver_tree: Path, images: Path) -> Iterator[Host]:
    """Run a host with two MIG instances and a whole GPU; `create-nodes` makes the nodes of one instance."""
    root = tmp_path_factory.mktemp("mig") / "root"
    copy_tree(driver_tree, root)
    write_kernel_side(root, GPUS)
    write_minors(root, 2)
    write_instance(root, 0, 7)
    write_instance(root, 0, 8, nodes=False)
    succeeded([sys.executable, "-m", "cdigen", "create-nodes", "--root", str(root)])
    generate(root, "--write", "--kind", "nvidia.com/gpu")
    with running_host(driver_tree, images=images, state=root) as host:
        yield host


def instance_nodes(gi: int) -> set[Node]:
    return {cap_node(minor_of(0, gi)), cap_node(minor_of(0, gi, 0)), GPUS[0].nodes[0]}


@pytest.mark.parametrize(("device", "gi"), [("0:gi7-ci0", 7), ("0:gi8-ci0", 8)])
def test_a_container_has_only_the_nodes_of_its_mig_instance(mig_host: Host, device: str, gi: int) -> None:
    assert mig_host.gpu_nodes(DEBIAN_IMAGE, f"nvidia.com/gpu={device}") == {
        *instance_nodes(gi),
        *control_nodes(),
    }


def test_the_device_all_injects_both_instances_and_the_whole_gpu(mig_host: Host) -> None:
    wanted = {*instance_nodes(7), *instance_nodes(8), *GPUS[1].nodes, *control_nodes()}
    assert mig_host.gpu_nodes(DEBIAN_IMAGE, "nvidia.com/gpu=all") == wanted


def test_a_gpu_in_mig_mode_is_not_a_device_itself(mig_host: Host) -> None:
    answer = mig_host.attempt(f"podman run --rm --device nvidia.com/gpu=0 {DEBIAN_IMAGE} true")
    assert answer.returncode != 0
    assert "nvidia.com/gpu=0" in answer.stderr
