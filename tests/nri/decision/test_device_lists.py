"""A container with GPU nodes of a device plugin, and without NVIDIA's runtime, gets the driver's files."""

from __future__ import annotations

from typing import Any

import pytest
from support.nri.device_names import device_names
from support.nri.host import COMPUTE, KINDS, UUID, allowed, container, content, inventory, outcome
from support.nri.host import host_gpus as host_gpus_by

from cdigen.model.inventory import HostNode
from cdigen.value import replace

NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
WITH_NODES = container(f"NVIDIA_VISIBLE_DEVICES={UUID}", devices=NODES)
FILES = ("nvidia.com/gpu=none", "nvidia.com/gpu-compute=none")
NAMES = device_names([*(f"{kind}={name}" for kind, names in KINDS.items() for name in names), *FILES])


def test_a_container_with_gpu_nodes_gets_the_drivers_files() -> None:
    decision = outcome(here=WITH_NODES, names=NAMES)
    assert decision.devices == ("nvidia.com/gpu=none",)
    (choice,) = decision.choices
    assert (choice.token, choice.origin) == (UUID, "NVIDIA_VISIBLE_DEVICES")
    assert [ignored.cause for ignored in decision.ignored_requests] == ["served"]


@pytest.mark.parametrize("node", ["/dev/nvidia15", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0/channel"])
def test_a_container_with_nodes_of_any_gpu_gets_the_drivers_files(node: str) -> None:
    here = replace(WITH_NODES, devices=(node,))
    assert outcome(here=here, names=NAMES).devices == ("nvidia.com/gpu=none",)


@pytest.mark.parametrize("value", ["0,1:0", "all", "none", "GPU-of-another-spec"])
def test_any_gpu_request_gets_the_drivers_files(value: str) -> None:
    here = container(f"NVIDIA_VISIBLE_DEVICES={value}", devices=NODES)
    assert outcome(here=here, names=NAMES).devices == ("nvidia.com/gpu=none",)


@pytest.mark.parametrize(
    ("capabilities", "kind"), [("utility", "nvidia.com/gpu-compute"), ("all", "nvidia.com/gpu")]
)
def test_the_files_match_the_capabilities(capabilities: str, kind: str) -> None:
    env = f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"
    assert outcome(env, here=WITH_NODES, names=NAMES, gpu_kinds=COMPUTE).devices == (f"{kind}=none",)


@pytest.mark.parametrize(
    "settings",
    [{"gpu_kinds": COMPUTE}, {"allow": allowed(kinds=("nvidia.com/*",))}],
    ids=["listed", "allowed"],
)
def test_a_qualified_request_gets_the_files_of_its_kind(settings: dict[str, Any]) -> None:
    """This applies also to a kind that a rule permits and `gpu_kinds` does not list."""
    asked = {"devices.cdigen.dev": "nvidia.com/gpu-compute=0"}
    found = outcome(pod_annotations=asked, here=container(devices=NODES), names=NAMES, **settings)
    assert found.devices == ("nvidia.com/gpu-compute=none",)


def test_other_requested_devices_are_injected_beside_the_drivers_files() -> None:
    found = outcome("NVIDIA_GDS=enabled", here=WITH_NODES, names=NAMES)
    assert found.devices == ("nvidia.com/gds=all", "nvidia.com/gpu=none")


def test_an_injected_gpu_includes_the_drivers_files() -> None:
    """The inventory shows that the container has GPU 0 of the two requested GPUs, but not GPU 1."""
    nodes = {"nodes": (node(0),)}, {"nodes": (node(1),), "partitioned": False, "partitions": ()}
    first, second, _ = inventory().accelerators
    gpus = (replace(first, **nodes[0]), replace(second, **nodes[1]))
    host_gpus = host_gpus_by(content(inventory(accelerators=gpus)))
    asked = {"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gpu=1"}
    names = device_names([*FILES, "nvidia.com/gpu=0", "nvidia.com/gpu=1"])
    found = outcome(pod_annotations=asked, here=container(devices=NODES), names=names, host_gpus=host_gpus)
    assert found.devices == ("nvidia.com/gpu=1",)


def node(minor: int) -> HostNode:
    path = f"/dev/nvidia{minor}"
    return HostNode(path=path, host_path=path, role="gpu", major=195, minor=minor, mode=0o666, uid=0, gid=0)


def test_a_container_without_permission_is_unchanged() -> None:
    assert outcome(here=WITH_NODES, names=NAMES, allow=()).outcome == "nothing"
    without_request = container(devices=NODES)
    assert outcome(here=without_request, names=NAMES).outcome == "nothing"


def test_a_container_with_the_drivers_files_is_unchanged() -> None:
    here = container(*WITH_NODES.env, devices=NODES, mounts=("/usr/lib64/libcuda.so.1",))
    assert outcome(here=here, names=NAMES).outcome == "served"


@pytest.mark.parametrize(
    ("device", "files"),
    [
        ("example.com/nic=eth1", True),
        ("k8s.device-plugin.nvidia.com/gdrcopy=all", True),
        ("nvidia.com/imex-channel=0", True),
        ("k8s.device-plugin.nvidia.com/gpu=0", False),
        ("k8s.gpu.nvidia.com/claim=u", False),
        ("nvidia.com/gpu-compute=0", False),
    ],
)
def test_a_cdi_device_from_the_kubelet_includes_the_drivers_files_only_if_it_is_a_gpu(
    device: str, *, files: bool
) -> None:
    found = outcome(here=replace(WITH_NODES, cdi_devices=(device,)), names=NAMES)
    assert found.devices == (("nvidia.com/gpu=none",) if files else ())


def test_a_container_is_refused_if_no_spec_has_a_device_for_the_drivers_files() -> None:
    decision = outcome(here=WITH_NODES)
    assert (decision.outcome, decision.cause) == ("refuse", "nodes_without_driver")
    assert decision.reason.endswith("no spec defines a device such as nvidia.com/gpu=none")


def test_the_policy_can_refuse_a_container_with_nodes_and_without_the_drivers_files() -> None:
    decision = outcome(here=WITH_NODES, names=NAMES, nodes_without_driver="refuse")
    assert (decision.outcome, decision.cause) == ("refuse", "nodes_without_driver")


def test_the_policy_can_permit_a_container_with_nodes_and_without_the_drivers_files() -> None:
    decision = outcome(here=WITH_NODES, names=NAMES, nodes_without_driver="warn")
    assert decision.outcome == "served"
    assert [ignored.cause for ignored in decision.ignored_requests] == ["nodes_without_driver", "served"]


def test_image_requirements_are_checked_before_the_drivers_files_are_injected() -> None:
    decision = outcome("NVIDIA_REQUIRE_CUDA=cuda>=99", here=WITH_NODES, names=NAMES)
    assert (decision.outcome, decision.cause) == ("refuse", "requirement")


def test_a_privileged_container_gets_the_requested_gpu() -> None:
    """A privileged container has all nodes of the host, so the nodes are no sign of an injected GPU."""
    here = replace(WITH_NODES, may_use_all_devices=True)
    assert outcome(here=here, names=NAMES).devices == (f"nvidia.com/gpu={UUID}",)


def test_the_request_all_does_not_include_the_device_none() -> None:
    names = device_names(["nvidia.com/gpu=none", f"nvidia.com/gpu={UUID}"])
    assert outcome("NVIDIA_VISIBLE_DEVICES=all", names=names).devices == (f"nvidia.com/gpu={UUID}",)
