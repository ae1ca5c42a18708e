"""A device plugin passes nodes of GPUs, and NVIDIA's runtime, which would add the driver, is not there."""

from __future__ import annotations

from typing import Any

import pytest
from support.nri.host import COMPUTE, KINDS, UUID, allowed, container, content, inventory, outcome
from support.nri.host import machine as machine_by

from cdigen.model.inventory import HostNode
from cdigen.nri.decision.select import DeviceNames
from cdigen.value import replace

NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
GIVEN = container(f"NVIDIA_VISIBLE_DEVICES={UUID}", devices=NODES)
FILES = ("nvidia.com/gpu=none", "nvidia.com/gpu-compute=none")
NAMES = DeviceNames([*(f"{kind}={name}" for kind, names in KINDS.items() for name in names), *FILES])


def test_the_container_gets_the_drivers_files() -> None:
    decision = outcome(here=GIVEN, names=NAMES)
    assert decision.devices == ("nvidia.com/gpu=none",)
    (choice,) = decision.choices
    assert (choice.token, choice.origin) == (UUID, "NVIDIA_VISIBLE_DEVICES")
    assert [note.cause for note in decision.notes] == ["served"]


@pytest.mark.parametrize("node", ["/dev/nvidia15", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0/channel"])
def test_so_it_does_with_nodes_of_any_gpu(node: str) -> None:
    here = replace(GIVEN, devices=(node,))
    assert outcome(here=here, names=NAMES).devices == ("nvidia.com/gpu=none",)


@pytest.mark.parametrize("asked", ["0,1:0", "all", "none", "GPU-of-another-spec"])
def test_so_it_does_whatever_it_asks_for(asked: str) -> None:
    here = container(f"NVIDIA_VISIBLE_DEVICES={asked}", devices=NODES)
    assert outcome(here=here, names=NAMES).devices == ("nvidia.com/gpu=none",)


@pytest.mark.parametrize(
    ("capabilities", "kind"), [("utility", "nvidia.com/gpu-compute"), ("all", "nvidia.com/gpu")]
)
def test_the_files_are_those_of_the_capabilities(capabilities: str, kind: str) -> None:
    env = f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"
    assert outcome(env, here=GIVEN, names=NAMES, gpu_kinds=COMPUTE).devices == (f"{kind}=none",)


@pytest.mark.parametrize(
    "settings",
    [{"gpu_kinds": COMPUTE}, {"allow": allowed(kinds=("nvidia.com/*",))}],
    ids=["listed", "allowed"],
)
def test_the_files_are_those_of_the_kind_that_was_named(settings: dict[str, Any]) -> None:
    """Also if the policy allows the kind, and does not list it among the kinds of GPUs."""
    asked = {"devices.cdigen.dev": "nvidia.com/gpu-compute=0"}
    found = outcome(asked=asked, here=container(devices=NODES), names=NAMES, **settings)
    assert found.devices == ("nvidia.com/gpu-compute=none",)


def test_other_devices_come_beside() -> None:
    found = outcome("NVIDIA_GDS=enabled", here=GIVEN, names=NAMES)
    assert found.devices == ("nvidia.com/gds=all", "nvidia.com/gpu=none")


def test_a_gpu_that_is_given_brings_the_files() -> None:
    """By its inventory the host can tell that one of those asked for is there, and the other is not."""
    nodes = {"nodes": (node(0),)}, {"nodes": (node(1),), "partitioned": False, "partitions": ()}
    first, second, _ = inventory().accelerators
    gpus = (replace(first, **nodes[0]), replace(second, **nodes[1]))
    machine = machine_by(content(inventory(accelerators=gpus)))
    asked = {"devices.cdigen.dev": "nvidia.com/gpu=0,nvidia.com/gpu=1"}
    names = DeviceNames([*FILES, "nvidia.com/gpu=0", "nvidia.com/gpu=1"])
    found = outcome(asked=asked, here=container(devices=NODES), names=names, machine=machine)
    assert found.devices == ("nvidia.com/gpu=1",)


def node(minor: int) -> HostNode:
    path = f"/dev/nvidia{minor}"
    return HostNode(path=path, host_path=path, role="gpu", major=195, minor=minor, mode=0o666, uid=0, gid=0)


def test_what_does_not_count_stays_as_it_is() -> None:
    assert outcome(here=GIVEN, names=NAMES, allow=()).outcome == "nothing"
    silent = container(devices=NODES)
    assert outcome(here=silent, names=NAMES).outcome == "nothing"


def test_what_has_the_driver_stays_as_it_is() -> None:
    here = container(*GIVEN.env, devices=NODES, mounts=("/usr/lib64/libcuda.so.1",))
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
def test_of_the_cdi_devices_of_kubelet_those_of_gpus_bring_the_driver(device: str, *, files: bool) -> None:
    found = outcome(here=replace(GIVEN, cdi_devices=(device,)), names=NAMES)
    assert found.devices == (("nvidia.com/gpu=none",) if files else ())


def test_no_container_starts_without_the_driver_where_no_spec_gives_it_alone() -> None:
    decision = outcome(here=GIVEN)
    assert (decision.outcome, decision.cause) == ("refuse", "nodes_without_driver")
    assert decision.reason.endswith("no spec offers these alone, as nvidia.com/gpu=none does")


def test_the_policy_may_refuse_it() -> None:
    decision = outcome(here=GIVEN, names=NAMES, nodes_without_driver="refuse")
    assert (decision.outcome, decision.cause) == ("refuse", "nodes_without_driver")


def test_the_policy_may_let_it_start() -> None:
    decision = outcome(here=GIVEN, names=NAMES, nodes_without_driver="warn")
    assert decision.outcome == "served"
    assert [note.cause for note in decision.notes] == ["nodes_without_driver", "served"]


def test_what_the_image_requires_of_the_driver_is_judged() -> None:
    decision = outcome("NVIDIA_REQUIRE_CUDA=cuda>=99", here=GIVEN, names=NAMES)
    assert (decision.outcome, decision.cause) == ("refuse", "requirement")


def test_a_privileged_container_gets_what_it_asks_for() -> None:
    """Its nodes are the host's: nobody has chosen among them."""
    here = replace(GIVEN, may_use_all_devices=True)
    assert outcome(here=here, names=NAMES).devices == (f"nvidia.com/gpu={UUID}",)


def test_the_driver_without_a_gpu_is_no_part_of_all() -> None:
    names = DeviceNames(["nvidia.com/gpu=none", f"nvidia.com/gpu={UUID}"])
    assert outcome("NVIDIA_VISIBLE_DEVICES=all", names=names).devices == (f"nvidia.com/gpu={UUID}",)
