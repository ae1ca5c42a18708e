"""Containers of NVIDIA's device plugin, with each of its device list strategies and with several policies.

The kubelet applies the response of the plugin's Allocate to the container (k8s-device-plugin 0.20,
internal/plugin/server.go): variables, mounts, annotations of the container, CDI devices, nodes. The runtime
applies CDI devices and annotations before it calls NRI plugins, so the plugins receive the nodes and
variables of these devices. Only containerd from 2.3 on reports the names of the CDI devices.
"""

import pytest
from support.nri.device_names import device_names
from support.nri.host import DEVICES, LISTS, UUID, allowed, container, listing, outcome

from cdigen.config import AllowRule
from cdigen.nri.pods import Container
from cdigen.value import replace

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
OWN = "k8s.device-plugin.nvidia.com"
# The nodes that the option PASS_DEVICE_SPECS adds. CDI devices add the same nodes.
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0")
NAMES = device_names((*DEVICES, "nvidia.com/gpu=none", f"{OWN}/gpu={UUID}"))
GPU, CHANNEL = f"nvidia.com/gpu={UUID}", "nvidia.com/imex-channel=7"
GDS, MOFED, GDRCOPY = (f"nvidia.com/{name}=all" for name in ("gds", "mofed", "gdrcopy"))
GATED = ("NVIDIA_GDS=enabled", "NVIDIA_MOFED=enabled", "NVIDIA_GDRCOPY=enabled")


ANY = allowed("annotation", "mounts", "environment")
LISTS_ONLY, ENV_ONLY = allowed("mounts"), allowed("environment")


def allocated(
    *env: str, mounts: tuple[str, ...] = (), nodes: tuple[str, ...] = (), cdi: tuple[str, ...] = ()
) -> Container:
    """Return a container as the runtime reports it; ENV are variables of the image and the device plugin."""
    return replace(listing(*mounts), env=env, devices=nodes, cdi_devices=cdi)


ENVVAR = allocated(f"{VISIBLE}={UUID}")
MOUNTS = allocated(f"{VISIBLE}={LISTS}", mounts=(UUID,))


@pytest.mark.parametrize(
    ("here", "allow", "expected", "devices"),
    [
        pytest.param(ENVVAR, ANY, "inject", [GPU], id="envvar"),
        pytest.param(ENVVAR, LISTS_ONLY, "nothing", [], id="envvar, not permitted"),
        pytest.param(
            allocated(f"{VISIBLE}={UUID}", "NVIDIA_IMEX_CHANNELS=7"),
            ANY,
            "inject",
            [GPU, CHANNEL],
            id="envvar with a channel",
        ),
        pytest.param(
            allocated(f"{VISIBLE}={UUID}", *GATED),
            ANY,
            "inject",
            [GPU, GDS, MOFED, GDRCOPY],
            id="envvar with GDS, MOFED and GDRCopy",
        ),
        pytest.param(allocated(f"{VISIBLE}=0"), ANY, "inject", ["nvidia.com/gpu=0"], id="envvar by index"),
        pytest.param(MOUNTS, ANY, "inject", [GPU], id="volume-mounts"),
        pytest.param(MOUNTS, LISTS_ONLY, "inject", [GPU], id="volume-mounts, the only permitted source"),
        pytest.param(MOUNTS, ENV_ONLY, "refuse", [], id="volume-mounts, not permitted"),
        pytest.param(MOUNTS, allowed("annotation"), "nothing", [], id="volume-mounts, no permitted source"),
        pytest.param(
            allocated(f"{VISIBLE}={LISTS}", *GATED, mounts=(UUID, "imex/7")),
            LISTS_ONLY,
            "inject",
            [GPU, CHANNEL, GDS, MOFED, GDRCOPY],
            id="volume-mounts with all switches",
        ),
        pytest.param(
            allocated(f"{VISIBLE}=all", mounts=(UUID,)),
            ANY,
            "inject",
            [GPU],
            id="volume-mounts, and a variable of the image",
        ),
        pytest.param(
            allocated(f"{VISIBLE}={UUID}", nodes=NODES),
            ANY,
            "inject",
            ["nvidia.com/gpu=none"],
            id="envvar with the nodes, without the driver's files",
        ),
        pytest.param(
            allocated(f"{VISIBLE}={LISTS}", mounts=("0",), nodes=NODES),
            LISTS_ONLY,
            "inject",
            ["nvidia.com/gpu=none"],
            id="volume-mounts by index, with the nodes, as on Bottlerocket",
        ),
        pytest.param(
            allocated(f"{VISIBLE}=void", nodes=NODES), ANY, "served", [], id="cdi-annotations or cdi-cri"
        ),
        pytest.param(
            allocated(f"{VISIBLE}=void", nodes=NODES, cdi=(f"{OWN}/gpu={UUID}", f"{OWN}/gds=all")),
            ANY,
            "served",
            [],
            id="cdi-cri, reported by containerd 2.3",
        ),
        pytest.param(
            allocated(f"{VISIBLE}=all", cdi=(f"{OWN}/gpu={UUID}",)),
            ANY,
            "served",
            [],
            id="cdi-cri with a spec that sets nothing",
        ),
        pytest.param(
            allocated(f"{VISIBLE}={LISTS}", mounts=(UUID,), nodes=NODES, cdi=(f"{OWN}/gpu={UUID}",)),
            ANY,
            "served",
            [],
            id="volume-mounts and cdi-cri",
        ),
        pytest.param(
            allocated(f"{VISIBLE}=void", mounts=(UUID,), nodes=NODES),
            LISTS_ONLY,
            "served",
            [],
            id="volume-mounts and cdi-annotations",
        ),
    ],
)
def test_each_strategy_injects_the_allocated_device_once(
    here: Container, allow: tuple[AllowRule, ...], expected: str, devices: list[str]
) -> None:
    decision = outcome(here=here, allow=allow, names=NAMES)
    assert (decision.outcome, list(decision.devices)) == (expected, devices), decision
    assert bool(decision.reason) is (expected == "refuse")


@pytest.mark.parametrize(
    "here", [allocated(f"{VISIBLE}={UUID}", *GATED), allocated(f"{VISIBLE}={LISTS}", *GATED, mounts=(UUID,))]
)
def test_a_switch_variable_of_the_device_plugin_is_ignored_if_its_kind_has_no_spec(here: Container) -> None:
    names = device_names(name for name in DEVICES if name.startswith("nvidia.com/gpu="))
    decision = outcome(here=here, names=names)
    assert (decision.devices, [ignored.cause for ignored in decision.ignored_requests]) == (
        (GPU,),
        ["no_spec"] * 3,
    )


def test_a_container_without_an_allocation_gets_nothing() -> None:
    assert outcome(here=container("HOME=/"), names=NAMES).outcome == "nothing"
