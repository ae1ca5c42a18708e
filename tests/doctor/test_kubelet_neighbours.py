"""What the doctor says of nodes where others offer devices, on purpose or beside ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.doctor.kubernetes_host import CHECKPOINT, FOLDER, checkpoint, registered
from support.kubelet.resources import GPU

if TYPE_CHECKING:
    from support.doctor.kubernetes_host import KubeNode

REGISTRY = f"{FOLDER}/plugins_registry"
KUBELET = "usr/lib/systemd/system/kubelet.service"


def without_ours(node: KubeNode) -> None:
    """Take what cdigen kubelet has done away; its unit is installed and not enabled."""
    node.put(CHECKPOINT, checkpoint())
    shutil.rmtree(node.root / "run/cdigen-kubelet")
    (node.root / "etc/systemd/system/multi-user.target.wants/cdigen-kubelet.service").unlink()
    (node.root / FOLDER / "device-plugins/cdigen-nvidia.com_gpu-01234567.sock").unlink()


@pytest.mark.parametrize(
    ("name", "folder"),
    [("nvidia-gpu.sock", "device-plugins"), ("gpu.nvidia.com-reg.sock", "plugins_registry")],
)
def test_a_node_whose_devices_another_program_gives_out_lacks_nothing(
    node: KubeNode, name: str, folder: str
) -> None:
    without_ours(node)
    node.listen(name, f"{FOLDER}/{folder}")
    assert node.wrong() == {}


def test_a_node_of_another_folder_whose_devices_another_plugin_gives_out_lacks_nothing(
    node: KubeNode,
) -> None:
    without_ours(node)
    node.put(KUBELET, "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet\n")
    node.listen("kubelet.sock", "data/kubelet/device-plugins")
    node.listen("nvidia-gpu.sock", "data/kubelet/device-plugins")
    assert node.wrong() == {}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("nvidia.com_hostdev.sock", "device-plugins"),
        ("nvidia.com_hostdev.sock", "plugins_registry"),
        ("compute-domain.nvidia.com-reg.sock", "plugins_registry"),
        ("nvidia.com-foo.sock", "plugins_registry"),
        ("gpu.amd.com-reg.sock", "plugins_registry"),
    ],
)
def test_another_kind_of_device_of_the_same_maker_is_no_trouble(
    node: KubeNode, name: str, folder: str
) -> None:
    node.listen(name, f"{FOLDER}/{folder}")
    assert node.wrong() == {}


def test_of_intels_plugins_those_for_gpus_are_beside_ours(node: KubeNode) -> None:
    node.say(registered("card0", of="gpu.intel.com/i915"), registered("GPU-a", "GPU-b"))
    for name in ("qat.intel.com-cy.sock", "gpu.intel.com-monitoring.sock"):
        node.listen(name)
        assert node.wrong() == {}
    node.listen("gpu.intel.com-xe.sock")
    assert "gpu.intel.com/xe" in node.wrong()["kubelet-neighbour"]["detail"]


def test_gpushare_gives_out_the_same_gpus(node: KubeNode) -> None:
    node.listen("aliyungpushare.sock")
    assert "aliyun.com/gpu-mem (aliyungpushare.sock)" in node.wrong()["kubelet-neighbour"]["detail"]


def test_gpus_that_ours_offers_by_a_name_of_somebodys_own_are_known_by_their_devices(node: KubeNode) -> None:
    node.say(registered("GPU-a", "GPU-b", of="example.com/a100"))
    node.listen("nvidia-gpu.sock")
    assert "nvidia.com/gpu (nvidia-gpu.sock)" in node.wrong()["kubelet-neighbour"]["detail"]


def test_a_driver_that_is_being_replaced_is_known_with_its_uid(node: KubeNode) -> None:
    node.listen("gpu.nvidia.com-0b1c2d3e-0000-4000-8000-00000000000a-reg.sock", REGISTRY)
    assert "DRA (gpu.nvidia.com-0b1c" in node.wrong()["kubelet-neighbour"]["detail"]


def test_network_cards_in_the_record_need_no_plugin_that_can_be_seen(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint(registered={GPU: ["GPU-a"], "nvidia.com/hostdev": ["0000:3b:00.1"]}))
    assert node.wrong() == {}
