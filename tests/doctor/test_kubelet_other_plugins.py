"""The doctor's results for nodes where other programs advertise devices, with or without cdigen."""

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


def remove_cdigen_kubelet(node: KubeNode) -> None:
    """Remove status, socket and record of cdigen kubelet. Its unit stays installed, but is not enabled."""
    node.put(CHECKPOINT, checkpoint())
    shutil.rmtree(node.root / "run/cdigen-kubelet")
    (node.root / "etc/systemd/system/multi-user.target.wants/cdigen-kubelet.service").unlink()
    (node.root / FOLDER / "device-plugins/cdigen-nvidia.com_gpu-01234567.sock").unlink()


@pytest.mark.parametrize(
    ("name", "folder"),
    [("nvidia-gpu.sock", "device-plugins"), ("gpu.nvidia.com-reg.sock", "plugins_registry")],
)
def test_a_node_whose_devices_another_program_advertises_has_no_failure(
    node: KubeNode, name: str, folder: str
) -> None:
    remove_cdigen_kubelet(node)
    node.listen(name, f"{FOLDER}/{folder}")
    assert node.wrong() == {}


def test_a_node_with_another_root_dir_and_another_plugin_has_no_failure(
    node: KubeNode,
) -> None:
    remove_cdigen_kubelet(node)
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
def test_another_kind_of_device_of_the_same_vendor_is_no_conflict(
    node: KubeNode, name: str, folder: str
) -> None:
    node.listen(name, f"{FOLDER}/{folder}")
    assert node.wrong() == {}


def test_only_intels_plugins_for_gpus_are_a_conflict(node: KubeNode) -> None:
    node.write_status(registered("card0", of="gpu.intel.com/i915"), registered("GPU-a", "GPU-b"))
    for name in ("qat.intel.com-cy.sock", "gpu.intel.com-monitoring.sock"):
        node.listen(name)
        assert node.wrong() == {}
    node.listen("gpu.intel.com-xe.sock")
    assert "gpu.intel.com/xe" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_the_plugin_of_gpushare_is_a_conflict(node: KubeNode) -> None:
    node.listen("aliyungpushare.sock")
    assert "aliyun.com/gpu-mem (aliyungpushare.sock)" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_a_resource_with_a_custom_name_conflicts_by_its_devices(node: KubeNode) -> None:
    node.write_status(registered("GPU-a", "GPU-b", of="example.com/a100"))
    node.listen("nvidia-gpu.sock")
    assert "nvidia.com/gpu (nvidia-gpu.sock)" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_a_dra_driver_during_a_rolling_update_is_recognized(node: KubeNode) -> None:
    node.listen("gpu.nvidia.com-0b1c2d3e-0000-4000-8000-00000000000a-reg.sock", REGISTRY)
    assert "DRA (gpu.nvidia.com-0b1c" in node.wrong()["kubelet-plugin-conflict"]["detail"]


def test_network_cards_in_the_record_need_no_visible_plugin(node: KubeNode) -> None:
    node.put(CHECKPOINT, checkpoint(registered={GPU: ["GPU-a"], "nvidia.com/hostdev": ["0000:3b:00.1"]}))
    assert node.wrong() == {}
